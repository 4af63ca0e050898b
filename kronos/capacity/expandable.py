"""Expandable segments: instead of many segments, one address range per pool that grows.

The range is address space without memory; the allocator puts memory behind it, granule by
granule, where a request needs more than is free (`grow`), and takes away again whichever granules
lie wholly in free blocks (`unmap`). So the chain of a range ends, and after an `empty_cache` may
be interrupted, by blocks that are *unmapped*.
"""

from typing import Final

from kronos.capacity.blocks import LARGE_SEGMENT, Block, Device, Pool, round_up

RANGE: Final = 2**16 * LARGE_SEGMENT
"""Bytes of address space of a range, whole granules. PyTorch takes 9/8 of the card's memory;
whatever no run fills gives the same figures."""


def prefer_least_room(pool: Pool, index: int) -> int:
    """From the best fit on, the block whose range has least room to grow into.

    A free block in front of unmapped space counts with that space, so the end of the range is
    kept for what fits nowhere else.
    """
    blocks = pool.blocks
    while index + 1 < len(blocks) and _room(blocks[index + 1]) < _room(blocks[index]):
        index += 1
    return index


def _room(block: Block) -> int:
    following = block.next
    return block.size + (0 if following is None or following.mapped else following.size)


def grow(pool: Pool, size: int, device: Device) -> Block | None:
    """A free block of at least `size` bytes, in no pool any more; None where the card is full.

    What was mapped before the card refused stays mapped.
    """
    block = _lowest_with_room(pool, size) or _new_range(pool, size, device)
    if not block.mapped and not _map(block, min(block.size, size), device):
        return None
    while block.size < size:
        following = block.next
        assert following is not None, "there was room"
        if not _map(following, min(size - block.size, following.size), device):
            return None
        block = following  # it absorbed the free block before it
    pool.remove(block)
    return block


def _lowest_with_room(pool: Pool, size: int) -> Block | None:
    """The lowest free or unmapped block from which `size` bytes can be strung together."""
    for unmapped in pool.unmapped:
        before = unmapped.prev
        first = before if before is not None and before.free else unmapped
        found = 0
        block: Block | None = first
        while found < size and block is not None and block.free:
            found += block.size
            block = block.next
        if found >= size:
            return first
    return None


def _new_range(pool: Pool, size: int, device: Device) -> Block:
    length = round_up(max(size, RANGE), pool.granule)
    base = device.new_address(length)
    block = Block(base, length, pool, base, mapped=False)
    pool.add(block)
    return block


def _map(block: Block, size: int, device: Device) -> bool:
    """Put memory behind the first `size` bytes of an unmapped block, rounded up to granules."""
    pool = block.pool
    size = min(round_up(size, pool.granule), block.size)
    if not device.take(size):
        return False
    pool.remove(block)
    if size < block.size:
        pool.add(block.split(size))
    block.mapped = True
    pool.reclaim(block)
    return True


def unmap(block: Block, device: Device) -> None:
    """Give the granules that lie wholly in a free block back to the card."""
    pool, base = block.pool, block.base
    assert base is not None, "only a growing range can shrink"
    begin = base + round_up(block.address - base, pool.granule)
    end = block.address + block.size
    end -= (end - base) % pool.granule
    if begin >= end:
        return
    pool.remove(block)
    if begin > block.address:
        head, block = block, block.split(begin - block.address)
        pool.add(head)
    if end < block.address + block.size:
        pool.add(block.split(end - block.address))
    block.mapped = False
    pool.reclaim(block)
    device.give_back(end - begin)
    if block.prev is None and block.next is None:  # nothing left of the range but addresses
        pool.remove(block)

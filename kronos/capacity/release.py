"""The three ways in which the caching allocator gives cached memory back to the card."""

from collections.abc import Collection

from kronos.capacity.blocks import Block, Device, Pool
from kronos.capacity.expandable import unmap


def release_cached(pools: Collection[Pool], device: Device) -> None:
    """All that is wholly free: segments, and granules of expandable segments."""
    for pool in pools:
        for block in list(pool.blocks):
            if block.base is not None:
                unmap(block, device)
            elif block.whole_segment:
                _release(block, device)


def release_oversize(pool: Pool, size: int, max_split_size: int, device: Device) -> bool:
    """Segments of at least `max_split_size`, as few as make up `size`; whether they did.

    Not checked against a real trace.
    """
    wanted = max(size, max_split_size)
    enough_alone = pool.blocks[pool.best_fit(wanted) :]  # smallest first
    oversize = pool.blocks[pool.best_fit(max_split_size) :]
    released = 0
    for block in enough_alone or reversed(oversize):
        if released < wanted and block.whole_segment:
            released += block.size
            _release(block, device)
    return released >= wanted


def collect_garbage(pools: Collection[Pool], device: Device, allowed: int) -> None:
    """The large segments that lay unused longest, until `allowed` bytes are reserved or less.

    A block's age is the number of searches for large blocks, by any stream, since it became free.
    Each round takes all blocks of at least the average age. Not checked against a real trace.
    """
    excess = device.reserved - allowed
    ages = {
        block: pool.searches - block.searches_before
        for pool in pools
        if not pool.small
        for block in pool.blocks
        if block.whole_segment
    }
    while excess > 0 and ages:
        average = sum(ages.values()) / len(ages)
        for block in [block for block, age in ages.items() if age >= average]:
            del ages[block]
            excess -= block.size
            _release(block, device)


def _release(block: Block, device: Device) -> None:
    block.pool.remove(block)
    device.give_back(block.size)

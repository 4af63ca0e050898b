"""What PyTorch's caching allocator keeps books of: the card, blocks of memory, pools of free ones.

A *segment* is memory taken from the card in one go. *Blocks* tile a segment from end to end, each
live or free; a doubly linked chain holds them in order of address. A *pool* holds the free blocks
of one stream that are small, or large, for the best fit to be found.

Every size is in bytes. After c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from kronos.hardware import MIB

MIN_BLOCK: Final = 512
"""Every block's size is a multiple of this."""
SMALL_REQUEST: Final = MIB
"""The largest request that a small pool serves."""
SMALL_SEGMENT: Final = 2 * MIB
LARGE_SEGMENT: Final = 20 * MIB
"""Shared by large requests below `LARGE_REQUEST`."""
LARGE_REQUEST: Final = 10 * MIB
"""From here on a request has a segment of its own, rounded up to `SEGMENT_STEP`."""
SEGMENT_STEP: Final = 2 * MIB


def round_up(size: int, step: int) -> int:
    return -(-size // step) * step


def segment_size(size: int) -> int:
    """Bytes of the segment taken from the card for a request of `size` bytes."""
    if size <= SMALL_REQUEST:
        return SMALL_SEGMENT
    if size < LARGE_REQUEST:
        return LARGE_SEGMENT
    return round_up(size, SEGMENT_STEP)


@dataclass(slots=True)
class Device:
    """The card as the allocator sees it: so many bytes to take, and addresses."""

    capacity: int | None = None
    """Bytes that may be reserved; None for a card without end."""
    reserved: int = 0
    peak_reserved: int = 0
    missing: int = 0
    """What the card lacked when it last refused."""
    lowest: int = 0
    """Every segment so far lies at or above this address."""

    def take(self, size: int) -> bool:
        """Reserve `size` bytes, or refuse."""
        if self.capacity is not None and self.reserved + size > self.capacity:
            self.missing = self.reserved + size - self.capacity
            return False
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return True

    def give_back(self, size: int) -> None:
        self.reserved -= size

    def new_address(self, size: int) -> int:
        """Where a new segment lies: made up, each below the last.

        Addresses matter only as the tie-break between free blocks of one size. Of 54 recorded
        streams, descending addresses reproduce all and ascending ones all but one.
        """
        self.lowest -= size
        return self.lowest


@dataclass(slots=True, eq=False)
class Block:
    """A stretch of memory, handed out or free."""

    address: int
    size: int
    pool: "Pool" = field(repr=False)
    base: int | None = None
    """Start of the growing address range it is part of; None in a segment of fixed size."""
    mapped: bool = True
    """Whether memory stands behind the addresses; False only in a growing range."""
    free: bool = True
    let_go: bool = False
    """Whether its owner is done with it while another stream may still use it."""
    requested: int = 0
    """What the caller asked for, before rounding; 0 while it is free."""
    searches_before: int = 0
    """The pool's `searches` when the block became free; its age follows."""
    prev: "Block | None" = field(default=None, repr=False)
    next: "Block | None" = field(default=None, repr=False)

    @property
    def whole_segment(self) -> bool:
        """Whether it is all of a segment of fixed size, so that the card can have it back."""
        return self.prev is None and self.next is None and self.base is None

    def split(self, size: int) -> "Block":
        """Keep the first `size` bytes; return the rest, in no pool yet."""
        rest = Block(self.address + size, self.size - size, self.pool, self.base, self.mapped)
        rest.prev, rest.next = self, self.next
        if rest.next is not None:
            rest.next.prev = rest
        self.next = rest
        self.size = size
        return rest

    def absorb(self, neighbour: "Block") -> None:
        """Take over the bytes of the block just before or just behind."""
        if neighbour is self.prev:
            self.address = neighbour.address
            self.prev = neighbour.prev
            if self.prev is not None:
                self.prev.next = self
        else:
            self.next = neighbour.next
            if self.next is not None:
                self.next.prev = self
        self.size += neighbour.size


@dataclass(slots=True, eq=False)
class Pool:
    """The free blocks of one stream, either the small or the large ones."""

    stream: int
    small: bool
    blocks: list[Block] = field(default_factory=list)
    """The mapped ones, by (size, address)."""
    keys: list[tuple[int, ...]] = field(default_factory=list)
    """(size, address) of each of `blocks`; tuples compare faster than a key function runs."""
    unmapped: list[Block] = field(default_factory=list)
    """Address space without memory behind it, by address."""
    searches: int = 0
    """How often a block of this kind was looked for, by any stream; counted only for garbage
    collection."""

    @property
    def granule(self) -> int:
        """The step in which a growing range takes memory from the card."""
        return SMALL_SEGMENT if self.small else LARGE_SEGMENT

    def best_fit(self, size: int) -> int:
        """Index of the smallest block of at least `size` bytes, of equals the lowest address."""
        return bisect_left(self.keys, (size,))

    def pop(self, index: int) -> Block:
        del self.keys[index]
        return self.blocks.pop(index)

    def add(self, block: Block) -> None:
        if block.mapped:
            key = (block.size, block.address)
            index = bisect_left(self.keys, key)
            self.keys.insert(index, key)
            self.blocks.insert(index, block)
            block.searches_before = self.searches
        else:
            insort(self.unmapped, block, key=attrgetter("address"))

    def remove(self, block: Block) -> None:
        if block.mapped:
            index = bisect_left(self.keys, (block.size, block.address))
            assert self.blocks[index] is block, "the free list disagrees with the blocks"
            self.pop(index)
        else:
            self.unmapped.remove(block)

    def reclaim(self, block: Block) -> None:
        """Add a block that became free, together with its free neighbours of the same kind."""
        for neighbour in (block.prev, block.next):
            if neighbour is not None and neighbour.free and neighbour.mapped is block.mapped:
                self.remove(neighbour)
                block.absorb(neighbour)
        self.add(block)

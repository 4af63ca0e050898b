"""A model of PyTorch's CUDA caching allocator: what it reserves for a stream of requests.

No memory is touched and no card is needed: only the bookkeeping is redone, exactly. Why it
matters: the bytes a process reserves depend on the order of its requests, not on their sum.

    malloc: round up, then the best fit among the free blocks of the stream
            else a new segment from the card, giving cached memory back first if it is full
            then cut off what is left over
    free:   merge with the free neighbours, keep for later

Every size is in bytes.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kronos.capacity.blocks import (
    LARGE_SEGMENT,
    MIN_BLOCK,
    SMALL_REQUEST,
    Block,
    Device,
    Pool,
    round_up,
    segment_size,
)
from kronos.capacity.expandable import grow, prefer_least_room
from kronos.capacity.release import collect_garbage, release_cached, release_oversize
from kronos.capacity.start import Segment, place
from kronos.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class AllocatorSettings:
    """The card's size and what `PYTORCH_CUDA_ALLOC_CONF` says."""

    capacity: int | None = None
    """Bytes that may be reserved; None for a card without end.

    The end of a real card. `torch.cuda.set_per_process_memory_fraction` is stricter towards
    expandable segments: it counts a whole segment where they would map less.
    """
    expandable_segments: bool = False
    max_split_size: int | None = None
    """Requests from this size on are given a block whole. Not checked against a real trace."""
    garbage_collection_threshold: float = 0.0
    """Fraction of `capacity` above which unused segments are given back before a new one is
    taken; 0 for never. Not checked against a real trace."""
    roundup_power2_divisions: int = 0
    """Steps between powers of two that requests are rounded up to; 0 for steps of 512 bytes.
    Not checked against a real trace."""

    def __post_init__(self) -> None:
        if self.capacity is not None and self.capacity < 0:
            raise ConfigError(
                f"capacity is a number of bytes from 0 on, got {self.capacity}; "
                "leave it out for a card without end"
            )
        if self.max_split_size is not None and self.max_split_size <= LARGE_SEGMENT:
            raise ConfigError(
                f"max_split_size lies above {LARGE_SEGMENT} bytes (20 MiB), "
                f"got {self.max_split_size}; leave it out to split blocks of any size"
            )
        if not 0 <= self.garbage_collection_threshold < 1:
            raise ConfigError(
                "garbage_collection_threshold is a fraction from 0 to below 1, "
                f"got {self.garbage_collection_threshold}; 0 collects nothing"
            )
        divisions = self.roundup_power2_divisions
        if divisions and (divisions < 2 or divisions & (divisions - 1)):
            raise ConfigError(
                f"roundup_power2_divisions is a power of two from 2 on, got {divisions}; "
                "0 rounds to 512 bytes"
            )


DEFAULTS: Final = AllocatorSettings()


class OutOfMemory(Exception):
    """The card has no room for a request, even with all cached memory given back."""

    def __init__(self, requested: int, allocated: int, device: Device) -> None:
        self.requested = requested
        """Bytes asked for, before rounding; 0 where the state to start from did not fit."""
        self.allocated = allocated
        self.reserved = device.reserved
        self.capacity = device.capacity
        self.missing = device.missing
        """By how many bytes the card is too small for the segment that was needed."""
        super().__init__(
            f"{requested} bytes asked for, {self.missing} missing: {self.reserved} of "
            f"{self.capacity} reserved, {allocated} of them allocated"
        )


class CachingAllocator:
    """What `torch.cuda.memory_stats` would say, after each `malloc` and `free`."""

    def __init__(self, settings: AllocatorSettings = DEFAULTS) -> None:
        self.settings = settings
        self.device = Device(settings.capacity)
        self.pools: dict[tuple[int, bool], Pool] = {}
        """By stream, and whether of small blocks."""
        self.allocated = 0
        """Sum of the live blocks, unused tails included."""
        self.requested = 0
        """Sum of what the callers of the live blocks asked for."""
        self.peak_allocated = 0
        self.peak_requested = 0
        self.flushes = 0
        """How often all cached memory was given back because the card was full."""
        self._expandable = settings.expandable_segments
        self._max_split = settings.max_split_size or math.inf
        allowed = settings.garbage_collection_threshold * (settings.capacity or 0)
        self._collect_above = int(allowed) if allowed else None

    @property
    def reserved(self) -> int:
        """Bytes taken from the card."""
        return self.device.reserved

    @property
    def peak_reserved(self) -> int:
        return self.device.peak_reserved

    def malloc(self, size: int, stream: int = 0) -> Block | None:
        """A live block of at least `size` bytes; None for 0 bytes, as a null pointer.

        Raises:
            OutOfMemory: the capacity does not suffice, even without cached memory.
        """
        if size <= 0:
            assert size == 0, "a size is not negative"
            return None
        rounded = self._round(size)
        pool = self._pool(stream, rounded <= SMALL_REQUEST)
        block = self._cached(pool, rounded) or self._from_card(pool, rounded, size)
        rest = block.size - rounded
        if rest >= MIN_BLOCK and (
            pool.small or self._expandable or (rest > SMALL_REQUEST and rounded < self._max_split)
        ):
            pool.add(block.split(rounded))
        block.free = False
        block.requested = size
        self._count(block)
        return block

    def let_go(self, block: Block | None) -> None:
        """The owner is done with a block that another stream may still use.

        It no longer counts as allocated, and is not free before `free` says so.
        """
        if block is None or block.let_go:
            return
        self.allocated -= block.size
        self.requested -= block.requested
        block.requested = 0
        block.let_go = True

    def free(self, block: Block | None) -> None:
        """Keep a block for later requests; None is ignored, as a null pointer."""
        if block is None:
            return
        assert not block.free, "a block is freed once"
        self.let_go(block)
        block.let_go = False
        block.free = True
        block.pool.reclaim(block)

    def empty_cache(self) -> None:
        """Give back to the card what is wholly free, as `torch.cuda.empty_cache`."""
        release_cached(self.pools.values(), self.device)

    def load(self, segments: Iterable[Segment]) -> list[Block]:
        """Start from segments found on a card; returns the live blocks.

        The peaks start at the sums. Cached memory beyond the capacity is given back.

        Raises:
            OutOfMemory: what is in use lies beyond the capacity.
        """
        assert not self.pools, "segments are loaded first"
        device = self.device
        live = place(segments, self._pool, device)
        for block in live:
            self._count(block)
        fits = device.take(0)  # asks for nothing, so it refuses only where there is too much
        if not fits:
            self.flushes += 1
            self.empty_cache()
            fits = device.take(0)
        device.peak_reserved = device.reserved
        if not fits:
            raise OutOfMemory(0, self.allocated, device)
        return live

    def _count(self, block: Block) -> None:
        self.allocated += block.size
        self.requested += block.requested
        if self.allocated > self.peak_allocated:
            self.peak_allocated = self.allocated
        if self.requested > self.peak_requested:
            self.peak_requested = self.requested

    def _round(self, size: int) -> int:
        divisions = self.settings.roundup_power2_divisions
        if divisions and size > MIN_BLOCK * divisions:
            below = 1 << (size.bit_length() - 1)  # the power of two that `size` is not below
            return round_up(size, below // divisions)
        return round_up(size, MIN_BLOCK)

    def _pool(self, stream: int, small: bool) -> Pool:
        pool = self.pools.get((stream, small))
        if pool is None:
            pool = self.pools[stream, small] = Pool(stream, small)
        return pool

    def _cached(self, pool: Pool, size: int) -> Block | None:
        """The best fit, taken out of the pool."""
        if self._collect_above is not None:
            for other in self.pools.values():
                other.searches += other.small is pool.small
        index = pool.best_fit(size)
        if index == len(pool.blocks):
            return None
        if self._expandable:
            index = prefer_least_room(pool, index)
        found = pool.blocks[index].size
        if size < self._max_split:
            if found >= self._max_split:
                return None  # oversize blocks are kept for oversize requests
        elif found >= size + LARGE_SEGMENT:
            return None
        return pool.pop(index)

    def _from_card(self, pool: Pool, size: int, requested: int) -> Block:
        """Memory that was not cached; gives back more and more of what is until there is room."""
        if self._collect_above is not None:
            collect_garbage(self.pools.values(), self.device, self._collect_above)
        block = self._grow(pool, size)
        limit = self.settings.max_split_size
        if block is None and limit and release_oversize(pool, size, limit, self.device):
            block = self._grow(pool, size)
        if block is None:
            self.flushes += 1
            self.empty_cache()
            block = self._grow(pool, size)
        if block is None:
            raise OutOfMemory(requested, self.allocated, self.device)
        return block

    def _grow(self, pool: Pool, size: int) -> Block | None:
        if self._expandable:
            return grow(pool, size, self.device)
        segment = segment_size(size)
        if not self.device.take(segment):
            return None
        return Block(self.device.new_address(segment), segment, pool)

"""A stream of allocations, sent through the model of the caching allocator.

The stream may come from a card's recording (`kronos.capacity.traces`) or from anywhere else: all
it needs is a key for each allocation.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kronos.capacity.allocator import DEFAULTS, AllocatorSettings, CachingAllocator, OutOfMemory
from kronos.capacity.blocks import SEGMENT_STEP, Block
from kronos.capacity.start import Segment

Event = tuple[Hashable, int, int]
"""(key, bytes, stream): an allocation, known by its key from here on.

In place of the bytes may stand one of the words below.
"""
FREE: Final = -1
"""The key's allocation is freed; a key that is not allocated is ignored."""
LET_GO: Final = -4
"""The key's owner is done with it; another stream may still use it until `FREE`."""
EMPTY_CACHE: Final = -2
NOTHING: Final = -3
"""Keeps the numbers of the events where a recording has more to say than the allocator needs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutOfMemoryAt:
    """Where a stream found the card full for good."""

    event: int | None
    """Number of the event; None where what it started from was too large already."""
    requested: int
    """Bytes asked for, before rounding."""
    missing: int
    """By how many bytes the card was too small for the segment that was needed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """What the allocator did with a stream, up to its end or to where memory ran out.

    Events are numbered from 0; None stands for the state before the first.
    """

    peak_allocated: int
    peak_reserved: int
    peak_requested: int
    allocated_peak_at: int | None
    """The event that first reached `peak_allocated`."""
    reserved_peak_at: int | None
    """The event that first reached `peak_reserved`."""
    flushes: tuple[int | None, ...]
    """The events that found the card full, so that all cached memory was given back."""
    oom: OutOfMemoryAt | None

    @property
    def fits(self) -> bool:
        """Whether the stream went through to its end."""
        return self.oom is None


def replay_events(
    events: Iterable[Event],
    settings: AllocatorSettings = DEFAULTS,
    *,
    start: Iterable[Segment] = (),
) -> Replay:
    """Send a stream of allocations through the allocator.

    Args:
        start: segments on the card before the first event; the keys of their live blocks are
            the addresses.
    """
    allocator = CachingAllocator(settings)
    watch = _Watch(allocator)
    live: dict[Hashable, Block | None] = {}
    event = oom = None
    try:
        live.update((block.address, block) for block in allocator.load(start))
        watch.note(None)
        for event, (key, size, stream) in enumerate(events):
            if size >= 0:
                allocator.free(live.pop(key, None))  # where its free went unrecorded
                live[key] = allocator.malloc(size, stream)
                watch.note(event)
            elif size == FREE:
                allocator.free(live.pop(key, None))
            elif size == LET_GO:
                allocator.let_go(live.get(key))
            elif size == EMPTY_CACHE:
                allocator.empty_cache()
    except OutOfMemory as error:
        watch.note(event)
        oom = OutOfMemoryAt(event=event, requested=error.requested, missing=error.missing)
    return watch.replay(oom)


def smallest_capacity(
    events: Sequence[Event],
    settings: AllocatorSettings = DEFAULTS,
    *,
    start: Sequence[Segment] = (),
) -> int:
    """Bytes that the allocator has to be allowed for a stream to go through.

    A multiple of 2 MiB such that the stream fits, and with 2 MiB less does not. Found by replays
    under capacities between the peaks of requested and reserved bytes. Where the card is full,
    cached memory is given back and the stream goes on, so this may lie well below
    `peak_reserved`; a run that close to the edge is slow.
    """
    unlimited = replay_events(events, replace(settings, capacity=None), start=start)
    too_small = (unlimited.peak_requested - 1) // SEGMENT_STEP
    # A card so large that not even garbage is collected changes nothing.
    untouched = unlimited.peak_reserved / (settings.garbage_collection_threshold or 1)
    enough = math.ceil(untouched / SEGMENT_STEP)
    while enough - too_small > 1:
        middle = (too_small + enough) // 2
        limited = replace(settings, capacity=middle * SEGMENT_STEP)
        if replay_events(events, limited, start=start).fits:
            enough = middle
        else:
            too_small = middle
    return enough * SEGMENT_STEP


class _Watch:
    """Notes at which events the peaks rose and the cache was flushed."""

    def __init__(self, allocator: CachingAllocator) -> None:
        self.allocator = allocator
        self.peak_allocated = self.peak_reserved = 0
        self.allocated_peak_at: int | None = None
        self.reserved_peak_at: int | None = None
        self.flushes: list[int | None] = []

    def note(self, event: int | None) -> None:
        allocator = self.allocator
        if allocator.peak_allocated > self.peak_allocated:
            self.peak_allocated = allocator.peak_allocated
            self.allocated_peak_at = event
        if allocator.device.peak_reserved > self.peak_reserved:
            self.peak_reserved = allocator.device.peak_reserved
            self.reserved_peak_at = event
        if allocator.flushes > len(self.flushes):
            self.flushes.append(event)

    def replay(self, oom: OutOfMemoryAt | None) -> Replay:
        return Replay(
            peak_allocated=self.peak_allocated,
            peak_reserved=self.peak_reserved,
            peak_requested=self.allocator.peak_requested,
            allocated_peak_at=self.allocated_peak_at,
            reserved_peak_at=self.reserved_peak_at,
            flushes=tuple(self.flushes),
            oom=oom,
        )

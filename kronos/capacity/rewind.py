"""The memory at the end of a history of allocations, taken back to where the history began."""

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from kronos.capacity.blocks import LARGE_SEGMENT, MIN_BLOCK, SMALL_REQUEST, SMALL_SEGMENT, round_up
from kronos.errors import SnapshotError

Event = list[Any]
"""[letter, address, bytes, stream], as in a trace."""


def misfit(what: str) -> SnapshotError:
    return SnapshotError(
        f"a history does not lead to the memory at its end ({what}); record all actions, without "
        "skip_actions, and dump while nothing else allocates"
    )


@dataclass(frozen=True, slots=True)
class Segment:
    address: int
    size: int
    stream: int
    large: bool
    expandable: bool

    @property
    def end(self) -> int:
        return self.address + self.size


class Memory:
    """One card's segments and blocks, taken from the end of the history back to its start."""

    def __init__(self) -> None:
        self.segments: dict[int, Segment] = {}
        self.starts: list[int] = []
        """Addresses of the segments, sorted."""
        self.blocks: dict[int, tuple[int, int]] = {}
        """(size, requested) of the blocks in use, by address; size 0 where it is not known."""
        self.waiting: set[int] = set()
        """Blocks freed, but still needed by another stream."""
        self.private = 0
        self.events: list[Event] = []

    @property
    def reserved(self) -> int:
        return sum(segment.size for segment in self.segments.values())

    @property
    def allocated(self) -> int:
        return sum(size for at, (size, _) in self.blocks.items() if at not in self.waiting)

    def undo(self, letter: str, address: int, size: int, stream: int) -> bool:
        """Take one event back; whether it leads to what was there."""
        if letter == "a":
            return self.blocks.pop(address, None) is not None
        if letter == "c":
            self.waiting.add(address)
            return self.blocks.setdefault(address, block := (0, size)) is block
        if letter == "r":
            waited = address in self.waiting
            self.waiting.discard(address)
            return waited
        if letter in "AM":
            return self._cut(address, size)
        if letter in "FU":
            return self._join(address, size, stream, expandable=letter == "U")
        return True

    def _at(self, address: int) -> Segment | None:
        """The last segment that begins at or below an address."""
        index = bisect_right(self.starts, address)
        return self.segments[self.starts[index - 1]] if index else None

    def add(self, segment: Segment) -> bool:
        below = self._at(segment.end - 1)
        if below is not None and below.end > segment.address:
            return False
        self.segments[segment.address] = segment
        insort(self.starts, segment.address)
        return True

    def _cut(self, address: int, size: int) -> bool:
        """Take out a segment, or out of an expandable one what was mapped."""
        segment = self._at(address)
        if segment is None or segment.end < address + size:
            return False
        if not segment.expandable and (segment.address, segment.size) != (address, size):
            return False
        self._remove(segment)
        if address > segment.address:
            self.add(replace(segment, size=address - segment.address))
        if segment.end > address + size:
            end = address + size
            self.add(replace(segment, address=end, size=segment.end - end))
        return True

    def _join(self, address: int, size: int, stream: int, *, expandable: bool) -> bool:
        """Put back a segment, or what was unmapped, which is one with what it touches.

        Large segments are of 20 MiB or above 10 MiB, and large granules are of 20 MiB.
        """
        large = size % LARGE_SEGMENT == 0 if expandable else size > SMALL_SEGMENT
        segment = Segment(address, size, stream, large, expandable)
        if not self.add(segment):
            return False
        for other in (self._at(address - 1), self.segments.get(segment.end)):
            if other is None or not (expandable and other.expandable and other.stream == stream):
                continue
            if other.end == segment.address or segment.end == other.address:
                self._remove(other)
                self._remove(segment)
                begin = min(other.address, segment.address)
                segment = replace(other, address=begin, size=other.size + segment.size)
                self.add(segment)
        return True

    def _remove(self, segment: Segment) -> None:
        del self.segments[segment.address]
        del self.starts[bisect_left(self.starts, segment.address)]

    def rows(self, expandable: bool, max_split: int) -> list[list[Any]]:
        """`segments_at_start` of a trace.

        A block that was freed later has lost its size. What the large pool cuts off is more than
        1 MiB, so a shorter rest behind a request is part of its block; from `max_split` bytes on
        nothing is cut off.
        """
        order, ends = sorted(self.blocks), self._ends()
        rows: list[list[Any]] = []
        for segment in map(self.segments.__getitem__, self.starts):
            found = bisect_left(order, segment.address), bisect_left(order, segment.end)
            live = []
            for at, limit in pairwise([*order[slice(*found)], segment.end]):
                known, requested = self.blocks.pop(at)
                size = known or round_up(requested, MIN_BLOCK)
                if at + size > limit:
                    raise misfit(f"its block at {at:#x} reaches into the next")
                rest = min(limit, ends.get(at, limit)) - at - size
                if not known and segment.large and not expandable:
                    whole = 0 < rest <= SMALL_REQUEST or 0 < max_split <= size
                    size += rest if whole else 0
                live.append([at, size, requested])
            kind = int(segment.large)
            rows.append([segment.address, segment.size, segment.stream, kind, live])
        if self.blocks:
            raise misfit(f"its block at {min(self.blocks):#x} lies in no segment")
        return rows

    def _ends(self) -> dict[int, int]:
        """Where blocks end, by what was first allocated behind them while they were in use.

        Free neighbours are always merged and allocated from below, so nothing lies between.
        """
        ends: dict[int, int] = {}
        order, gone = sorted(self.blocks), set()
        for letter, address, _, _ in self.events if order else ():
            if letter == "c":
                gone.add(address)
            elif letter == "a" and (index := bisect_right(order, address)):
                if (at := order[index - 1]) not in gone:
                    ends.setdefault(at, address)
        return ends

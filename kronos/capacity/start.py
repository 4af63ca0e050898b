"""The state that a recording starts in: segments found on a card, some of their blocks in use."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from kronos.capacity.blocks import Block, Device, Pool
from kronos.capacity.expandable import RANGE


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A stretch of memory taken from the card, at its recorded address."""

    address: int
    size: int
    stream: int
    small: bool
    """Whether it serves small requests."""
    live: tuple[tuple[int, int, int], ...] = ()
    """Blocks in use, by address: (address, size, requested)."""
    expandable: bool = False
    """Whether it is the mapped part of a growing address range."""


def place(
    segments: Iterable[Segment], pool_of: Callable[[int, bool], Pool], device: Device
) -> list[Block]:
    """Put segments, which must not overlap, into empty books; returns the live blocks."""
    order = sorted(segments, key=lambda segment: (*_kind(segment), segment.address))
    live: list[Block] = []
    for (stream, small, expandable), alike in groupby(order, key=_kind):
        pool = pool_of(stream, small)
        for run in _ranges(alike) if expandable else ([segment] for segment in alike):
            live += _place_run(run, pool)
    device.reserved = sum(segment.size for segment in order)
    device.lowest = min((segment.address for segment in order), default=0)
    return live


def _kind(segment: Segment) -> tuple[int, bool, bool]:
    return segment.stream, segment.small, segment.expandable


def _ranges(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    """Those of one growing range together: near enough to one another to be."""
    run: list[Segment] = []
    for segment in segments:
        if run and segment.address >= run[0].address + RANGE:
            yield run
            run = []
        run.append(segment)
    yield run


def _place_run(run: list[Segment], pool: Pool) -> list[Block]:
    """Chain the blocks of one segment, or of one growing range; returns the live ones."""
    address = run[0].address
    base = address if run[0].expandable else None
    live, spare = [], []
    last: Block | None = None
    for size, mapped, requested in _pieces(run):
        block = Block(address, size, pool, base, mapped, free=False, prev=last)
        if last is not None:
            last.next = block
        if requested is None:
            spare.append(block)
        else:
            block.requested = requested
            live.append(block)
        address += size
        last = block
    for block in spare:
        block.free = True
        pool.reclaim(block)
    return live


def _pieces(run: list[Segment]) -> Iterator[tuple[int, bool, int | None]]:
    """(size, mapped, requested if live) of each block in order of address.

    Between and behind the segments of a growing range lies unmapped space. What it had in front
    of its first segment is not known: none is assumed.
    """
    at = run[0].address
    for segment in run:
        if segment.address > at:
            yield segment.address - at, False, None
            at = segment.address
        for address, size, requested in segment.live:
            if address > at:
                yield address - at, True, None
            yield size, True, requested
            at = address + size
        end = segment.address + segment.size
        if end > at:
            yield end - at, True, None
            at = end
    end = run[0].address + RANGE
    if run[0].expandable and end > at:
        yield end - at, False, None

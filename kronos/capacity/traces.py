"""Recordings of a real card's allocator, as JSON: read, checked, and replayed.

A recording is an object of

    events             [action, address, bytes, stream] each: `a` allocated, `r` free requested,
                       `c` free completed; `A`/`F` segment allocated / freed, `M`/`U` memory
                       mapped / unmapped in an expandable segment; `o` out of memory
    segments_at_start  [address, bytes, stream, pool, live] each, or null: pool 0 is the small
                       one and 1 the large, live are [address, bytes, requested] each
    expandable_segments, max_split_size (-1 for none)

and what else it says is not looked at. `A` and `M` are what a replay has to find out by itself.
Memory counts as allocated up to `r`, as in PyTorch; between `r` and `c` another stream may still
use it, so it is not free.
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from kronos.capacity.allocator import AllocatorSettings
from kronos.capacity.replay import (
    EMPTY_CACHE,
    FREE,
    LET_GO,
    NOTHING,
    Event,
    Replay,
    replay_events,
)
from kronos.capacity.start import Segment
from kronos.errors import ConfigError, SnapshotError

_HEEDED: Final = frozenset("arc")
_RELEASES: Final = frozenset("FU")
_OTHERS: Final = frozenset("AMo") | _RELEASES
"""Actions whose numbers are not looked at."""
_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """A recording made ready for `replay_events`; keys are addresses."""

    events: tuple[Event, ...]
    """As many as the recording has, in its order."""
    settings: AllocatorSettings
    start: tuple[Segment, ...]


def load_trace(path: str | Path) -> dict[str, Any]:
    """The object in a `.json` or `.json.gz` file.

    Raises:
        SnapshotError: the file cannot be read, or holds no JSON object.
    """
    try:
        content = Path(path).read_bytes()
        if content.startswith(_GZIP):
            content = gzip.decompress(content)
        trace = json.loads(content)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SnapshotError(
            f"an allocation trace is a complete .json or .json.gz file; {str(path)!r} cannot be "
            f"read ({reason:.100}); record or copy it again"
        ) from None
    if not isinstance(trace, dict):
        raise SnapshotError(
            f"an allocation trace is a JSON object with events; {str(path)!r} holds a "
            f"{type(trace).__name__}; record it again"
        )
    return trace


def replay_trace(
    trace: Mapping[str, Any],
    *,
    capacity: int | None = None,
    expandable_segments: bool | None = None,
) -> Replay:
    """What the allocator does with a recording, on its card or on another.

    Args:
        capacity: bytes that may be reserved; None for no limit.
        expandable_segments: None for what the recording ran with.

    Raises:
        SnapshotError: the trace is malformed.
        ConfigError: a negative capacity.
    """
    recording = read_trace(trace, expandable_segments=expandable_segments)
    settings = replace(recording.settings, capacity=capacity)
    return replay_events(recording.events, settings, start=recording.start)


def read_trace(trace: Mapping[str, Any], *, expandable_segments: bool | None = None) -> Recording:
    """Check a recording and put it into the words of `replay_events`.

    Segments at its start stay as they are where `expandable_segments` says otherwise than the
    recording: what was allocated before counts as of fixed size.

    Raises:
        SnapshotError: the trace is malformed; the message says where.
    """
    _require(isinstance(trace, Mapping), "everything stands in one object", trace)
    recorded = trace.get("expandable_segments", False)
    _require(isinstance(recorded, bool), "expandable_segments is true or false", recorded)
    expandable = recorded if expandable_segments is None else expandable_segments
    limit = trace.get("max_split_size", -1)
    _require(limit is None or type(limit) is int, "max_split_size is a number of bytes", limit)
    try:
        settings = AllocatorSettings(
            expandable_segments=expandable,
            max_split_size=None if limit is None or limit < 0 else limit,
        )
    except ConfigError as error:
        raise SnapshotError(f"the trace's {error}") from None
    return Recording(
        events=tuple(_events(trace.get("events"))),
        settings=settings,
        start=tuple(_segments(trace.get("segments_at_start"), expandable and recorded)),
    )


def _events(rows: Any) -> Iterator[Event]:
    """A run of segments freed or unmapped is what one `empty_cache` leaves in a recording."""
    _require(isinstance(rows, list), "events is a list", rows)
    releasing = False
    for number, row in enumerate(rows):
        if not _is_event(row):
            raise _malformed(f"event {number} is [action, address, bytes, stream]", row)
        action, address, size, stream = row
        if action == "a":
            yield address, size, stream
        elif action == "r":
            yield address, LET_GO, 0
        elif action == "c":
            yield address, FREE, 0
        elif action in _RELEASES and not releasing:
            yield None, EMPTY_CACHE, 0
        else:
            yield None, NOTHING, 0
        releasing = action in _RELEASES


def _is_event(row: Any) -> bool:
    if not (_is_row(row, 4) and isinstance(row[0], str)):
        return False
    action, *numbers = row
    return action in _OTHERS or (action in _HEEDED and _are_whole(numbers) and numbers[1] >= 0)


def _segments(rows: Any, expandable: bool) -> list[Segment]:
    _require(rows is None or isinstance(rows, list), "segments_at_start is a list or null", rows)
    segments = [_segment(number, row, expandable) for number, row in enumerate(rows or ())]
    spans = sorted((segment.address, segment.size) for segment in segments)
    _require(_apart(spans), "segments_at_start do not overlap", spans)
    return segments


def _segment(number: int, row: Any, expandable: bool) -> Segment:
    name = f"segment {number} at the start"
    _require(
        _is_segment(row),
        f"{name} is [address, bytes, stream, pool, [[address, bytes, requested], ...]]",
        row,
    )
    address, size, stream, pool, blocks = row
    live = sorted((at, length, requested) for at, length, requested in blocks)
    edges = [(address, 0), *((at, length) for at, length, _ in live), (address + size, 0)]
    _require(_apart(edges), f"{name} holds its blocks side by side", row)
    return Segment(
        address=address,
        size=size,
        stream=stream,
        small=pool == 0,
        live=tuple(live),
        expandable=expandable,
    )


def _is_segment(row: Any) -> bool:
    if not (_is_row(row, 5) and isinstance(row[4], list)):
        return False
    *numbers, blocks = row
    return (
        _are_whole(numbers)
        and numbers[1] > 0
        and numbers[3] in (0, 1)
        and all(_is_row(block, 3) and _are_whole(block) for block in blocks)
        and all(size > 0 and requested >= 0 for _, size, requested in blocks)
    )


def _is_row(row: Any, length: int) -> bool:
    return isinstance(row, (list, tuple)) and len(row) == length


def _are_whole(values: Iterable[Any]) -> bool:
    return all(type(value) is int for value in values)  # bool is an int to isinstance


def _apart(spans: Sequence[tuple[int, int]]) -> bool:
    """Whether none of the (address, size) reaches into the next."""
    return all(at + size <= behind for (at, size), (behind, _) in pairwise(spans))


def _require(holds: bool, rule: str, value: object) -> None:
    if not holds:
        raise _malformed(rule, value)


def _malformed(rule: str, value: object) -> SnapshotError:
    return SnapshotError(f"in an allocation trace {rule}; got {value!r:.80}; record it again")

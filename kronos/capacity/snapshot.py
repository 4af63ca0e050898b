"""A user's own memory snapshot, `torch.cuda.memory._dump_snapshot`, made ready for a replay.

A snapshot holds the allocator's memory when it was dumped, and the last so many events before: a
ring buffer, which may begin in the middle of the run. What was cached and in use when it began is
found by undoing the events from the end backwards (`rewind`), so that each card's history becomes
a trace that `kronos.capacity.traces` replays. It is a pickle, of which `data_pickle` takes care.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from kronos.capacity.data_pickle import MAKE_ONE, load_data
from kronos.capacity.replay import Replay
from kronos.capacity.rewind import Event, Memory, Segment, misfit
from kronos.capacity.traces import replay_trace
from kronos.errors import SnapshotError
from kronos.hardware import format_size

Kind = TypeVar("Kind")

_LETTERS: Final = {
    "alloc": "a", "free_requested": "r", "free_completed": "c", "oom": "o", "snapshot": "",
    "segment_alloc": "A", "segment_free": "F", "segment_map": "M", "segment_unmap": "U",
}  # fmt: skip
_STATES: Final = ("active_allocated", "active_pending_free", "active_awaiting_free", "inactive")
_UNTOLD: Final = (
    *("garbage_collection_threshold", "roundup_power2_divisions"),
    *("large_segment_size", "max_non_split_rounding"),
)
"""What `PYTORCH_CUDA_ALLOC_CONF` may set and a trace has no word for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceHistory:
    """What a snapshot says of one card."""

    index: int
    trace: dict[str, Any]
    """As `kronos.capacity.traces.replay_trace` takes it. A block that is freed, but waits for
    another stream, counts as in use."""
    allocated_at_end: int
    reserved_at_end: int
    remarks: tuple[str, ...]
    """What a reader of the replay has to know, a line each."""

    @property
    def recorded(self) -> bool:
        """Whether there is any history; else the trace is the memory at the end, standing still."""
        return bool(self.trace["events"])

    @property
    def complete(self) -> bool:
        """Whether the history begins before the first memory was taken from the card."""
        return bool(self.trace["starts_empty"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """The cards of a snapshot that have memory or a history."""

    devices: tuple[DeviceHistory, ...]


def read_snapshot(path: str | Path) -> Snapshot:
    """Read a file of `torch.cuda.memory._dump_snapshot`; nothing in it is executed.

    Raises:
        OSError: the file cannot be read.
        SnapshotError: it is no such file, is damaged, or its history contradicts its end.
    """
    try:
        return _snapshot(load_data(Path(path).read_bytes()))
    except SnapshotError as error:
        raise SnapshotError(f"{str(path)!r}: {error}") from None
    except (MemoryError, RecursionError) as error:
        raise SnapshotError(f"{str(path)!r} is too large to read here: {error!r:.80}") from None


def _wrong(where: str, rule: str, value: Any) -> SnapshotError:
    scalar = value is None or isinstance(value, int | float | str)
    shown = f"{value!r:.60}" if scalar else f"a {type(value).__name__}"
    return SnapshotError(f"{where} of a memory snapshot must be {rule}, got {shown}; {MAKE_ONE}")


def _typed(kind: type[Kind], value: Any, where: str) -> Kind:
    if type(value) is not kind:
        raise _wrong(where, f"a {kind.__name__}", value)
    return value


def _number(owner: dict[str, Any], key: str, where: str, low: int = 0) -> int:
    value = owner.get(key)
    if type(value) is not int or not low <= value < 2**64:
        raise _wrong(f"{where}.{key}", f"a whole number from {low} on", value)
    return value


def _snapshot(content: Any) -> Snapshot:
    content = _typed(dict, content, "the whole")
    settings = _typed(dict, content.get("allocator_settings", {}), "allocator_settings")
    segments = _typed(list, content.get("segments"), "segments")
    histories = _typed(list, content.get("device_traces"), "device_traces")
    memories: defaultdict[int, Memory] = defaultdict(Memory)
    lists = [
        _typed(dict, segment, f"segments[{number}]").get("blocks")
        for number, segment in enumerate(segments)
    ]
    filled = [id(one) for one in [*lists, *histories] if one]
    if len(set(filled)) < len(filled):  # a few bytes could repeat a long list without end
        raise SnapshotError("two segments or cards of the snapshot share a list; dump it again")
    for number, segment in enumerate(segments):
        where = f"segments[{number}]"
        memory = memories[_number({"device": 0} | segment, "device", where)]
        _read_segment(memory, segment, where)
    for index, entries in enumerate(histories):
        if _typed(list, entries, f"device_traces[{index}]"):
            memories[index].events = _events(entries, f"device_traces[{index}]")
    if not memories:
        raise SnapshotError(f"the snapshot holds neither memory nor a history; {MAKE_ONE}")
    return Snapshot(
        devices=tuple(_history(index, memories[index], settings) for index in sorted(memories))
    )


def _events(entries: list[Any], where: str) -> list[Event]:
    events = []
    for number, entry in enumerate(entries):
        spot = f"{where}[{number}]"
        action = _typed(dict, entry, spot).get("action")
        letter = _LETTERS.get(action) if isinstance(action, str) else None
        if letter is None:
            raise _wrong(f"{spot}.action", f"one of {', '.join(_LETTERS)}", action)
        if not letter:
            continue
        address = 0 if letter == "o" else _number(entry, "addr", spot)
        size = _number(entry, "size", spot, 1)
        stream = _number(entry, "stream", spot, -(2**63))
        events.append([letter, address, size, stream])
    return events


def _history(index: int, memory: Memory, settings: dict[str, Any]) -> DeviceHistory:
    allocated, reserved, events = memory.allocated, memory.reserved, memory.events
    expandable = (
        settings.get("expandable_segments") is True
        or any(segment.expandable for segment in memory.segments.values())
        or any(event[0] in "MU" for event in events)
    )
    limit = settings.get("max_split_size")
    max_split = limit if type(limit) is int and 0 < limit < 2**62 else -1
    for letter, address, size, stream in reversed(events):
        if not memory.undo(letter, address, size, stream):
            raise misfit(f"its event {letter!r} of {size} bytes at {address:#x}")
    start = memory.rows(expandable, max_split)
    trace = {
        "events": events,
        "segments_at_start": start,
        "expandable_segments": expandable,
        "max_split_size": max_split,
        "starts_empty": not start,
    }
    return DeviceHistory(
        index=index,
        trace=trace,
        allocated_at_end=allocated,
        reserved_at_end=reserved,
        remarks=tuple(_remarks(events, memory, settings)),
    )


def _read_segment(memory: Memory, entry: dict[str, Any], where: str) -> None:
    """Add one of a snapshot's segments, which the blocks must tile."""
    kind = entry.get("segment_type")
    if kind not in ("small", "large"):
        raise _wrong(f"{where}.segment_type", "small or large", kind)
    segment = Segment(
        address=_number(entry, "address", where),
        size=_number(entry, "total_size", where, 1),
        stream=_number(entry, "stream", where, -(2**63)),
        large=kind == "large",
        expandable=entry.get("is_expandable") is True,
    )
    if not memory.add(segment):
        raise _wrong(f"{where}.address", "apart from other segments", segment.address)
    memory.private += entry.get("segment_pool_id", (0, 0)) != (0, 0)
    at = segment.address
    for number, block in enumerate(_typed(list, entry.get("blocks"), f"{where}.blocks")):
        at += _read_block(memory, block, at, f"{where}.blocks[{number}]")
    if (total := at - segment.address) != segment.size:
        raise _wrong(f"{where}.total_size", f"the sum of its blocks, {total}", segment.size)


def _read_block(memory: Memory, block: Any, at: int, where: str) -> int:
    size = _number(_typed(dict, block, where), "size", where, 1)
    if block.get("address", at) != at:
        raise _wrong(f"{where}.address", f"{at}, behind the block before", block["address"])
    if (state := block.get("state")) not in _STATES:
        raise _wrong(f"{where}.state", f"one of {', '.join(_STATES)}", state)
    if state != "inactive":
        requested = _number({"requested_size": size} | block, "requested_size", where)
        memory.blocks[at] = size, requested
        if state != "active_allocated":
            memory.waiting.add(at)
    return size


def _remarks(events: list[Event], memory: Memory, settings: dict[str, Any]) -> Iterator[str]:
    if not events:
        yield f"no history was recorded, so no peak is in it: {MAKE_ONE}, before recording stops"
    elif memory.segments:
        yield (
            f"the {len(events)} events begin in the middle of the run: what was higher before is "
            "not in them; record from the start on, with a larger max_entries"
        )
    if failed := [event[2] for event in events if event[0] == "o"]:
        yield (
            f"the run was out of memory when it asked for {format_size(failed[-1])}: what it would "
            "have taken from there on is not in it"
        )
    if memory.private:
        yield f"segments of CUDA graphs or MemPools: {memory.private}; a replay has no such pools"
    conf = settings.get("PYTORCH_CUDA_ALLOC_CONF")
    if isinstance(conf, str) and (untold := [word for word in _UNTOLD if word in conf]):
        yield f"the run was set to {', '.join(untold)}; a replay does without"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """Whether a recorded run would go through on another card."""

    replay: Replay
    fits: bool | None
    """None where nothing spoke against it, but the history is not of the whole run."""


def judge_snapshot(
    history: DeviceHistory, capacity: int | None, *, expandable_segments: bool | None = None
) -> Judgement:
    """Replay a card's history with `capacity` bytes for the allocator (None: without end).

    A card has less to give than its size: the CUDA context lies outside the allocator.

    Args:
        expandable_segments: None for what the run was set to.

    Raises:
        ConfigError: a negative capacity.
    """
    replay = replay_trace(history.trace, capacity=capacity, expandable_segments=expandable_segments)
    whole = history.complete and all(event[0] != "o" for event in history.trace["events"])
    return Judgement(replay=replay, fits=(True if whole else None) if replay.fits else False)

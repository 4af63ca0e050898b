"""Recordings of a card's allocator: what each row of one means, and the real ones to the byte."""

import gzip
import json
from pathlib import Path

import pytest

from kronos.capacity.replay import OutOfMemoryAt, smallest_capacity
from kronos.capacity.traces import load_trace, read_trace, replay_trace
from kronos.errors import ConfigError, SnapshotError
from kronos.hardware import MIB

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "gpu_traces"


def _trace(*events, **more):
    """A recording; sizes of events in MiB."""
    rows = [
        [action, address, int(size * MIB), stream]
        for action, address, size, *rest in events
        for stream in [*rest, 0][:1]
    ]
    return {"events": rows, "expandable_segments": False, "max_split_size": -1} | more


def _reserved(trace, **options):
    return replay_trace(trace, **options).peak_reserved // MIB


def test_only_completed_frees_free():
    allocated, again = ("a", 1, 12), ("a", 2, 12)
    assert _reserved(_trace(allocated, ("r", 1, 12), again)) == 24
    assert _reserved(_trace(allocated, ("r", 1, 12), ("c", 1, 12), again)) == 12
    assert _reserved(_trace(allocated, ("c", 7, 12), again)) == 24


def test_what_the_card_did_is_not_looked_at():
    trace = _trace(("A", 1, 30), ("a", 1, 12), ("M", 1, 4), ("a", 2, 1))
    trace["events"] += [["o", None, None, None], ("o", 1, -1, "?")]
    assert _reserved(trace) == 14


@pytest.mark.parametrize("released", ["F", "U"])
def test_a_run_of_releases_empties_the_cache(released):
    emptied = [("a", 1, 12), ("c", 1, 12), (released, 1, 12), (released, 9, 2)]
    assert _reserved(_trace(*emptied, ("a", 2, 14))) == 14
    assert _reserved(_trace(*emptied, *emptied, ("a", 2, 14))) == 14
    assert _reserved(_trace(*emptied[:2], ("a", 2, 14))) == 26


def test_events_are_counted_as_the_recording_counts():
    trace = _trace(("A", 1, 12), ("a", 1, 12), ("F", 3, 2), ("F", 3, 2), ("r", 7, 1), ("a", 2, 24))
    replay = replay_trace(trace, capacity=30 * MIB)
    assert replay.oom == OutOfMemoryAt(event=5, requested=24 * MIB, missing=6 * MIB)
    assert replay_trace(trace).allocated_peak_at == 5


def test_an_address_allocated_again_was_freed_before():
    assert _reserved(_trace(("a", 1, 12), ("a", 1, 12))) == 12


def test_streams_are_told_apart():
    events = ("a", 1, 12, 5), ("c", 1, 12, 5), ("a", 1, 12, 6)
    assert _reserved(_trace(*events)) == 24


def test_a_recording_may_split_no_large_blocks():
    events = ("a", 1, 40), ("c", 1, 40), ("a", 2, 24), ("a", 3, 16)
    assert _reserved(_trace(*events)) == 40
    assert _reserved(_trace(*events, max_split_size=32 * MIB)) == 80
    assert _reserved(_trace(*events, max_split_size=None)) == 40


def _found(*segments, **more):
    """A recording that starts with segments, and asks for 4 MiB."""
    return _trace(("a", 1, 4), segments_at_start=list(segments), **more)


LARGE = [64 * MIB, 20 * MIB, 0, 1, [[72 * MIB, 8 * MIB, 8 * MIB], [64 * MIB, 4 * MIB, MIB]]]
SMALL = [8 * MIB, 2 * MIB, 0, 0, [[8 * MIB, 512, 7]]]


def test_a_recording_starts_from_the_segments_it_found():
    replay = replay_trace(_found(LARGE, SMALL))
    assert replay.peak_reserved == 22 * MIB
    assert (replay.peak_allocated, replay.allocated_peak_at) == (16 * MIB + 512, 0)
    assert replay.peak_requested == 13 * MIB + 7
    freed = _found(LARGE, SMALL)
    freed["events"] = [["c", 72 * MIB, 0, 0], ["a", 1, 16 * MIB, 0]]
    assert replay_trace(freed).peak_reserved == 22 * MIB


def test_other_streams_may_not_use_what_was_found():
    assert _reserved(_found([*LARGE[:2], 9, *LARGE[3:]])) == 40
    assert _reserved(_found([*LARGE[:3], 0, LARGE[4]])) == 40


def test_found_memory_of_a_range_grows_on():
    trace = _found(LARGE, expandable_segments=True)
    trace["events"] += [["a", 2, 21 * MIB, 0]]
    assert _reserved(trace) == 40
    assert _reserved(trace, expandable_segments=False) == 42


def test_a_recording_may_be_replayed_with_expandable_segments():
    trace = _trace(("a", 1, 12), ("c", 1, 12), ("a", 2, 14), ("a", 3, 5.75))
    assert _reserved(trace) == 26
    assert _reserved(trace, expandable_segments=True) == 20
    found = _found(LARGE)
    found["events"] += [["a", 2, 21 * MIB, 0]]
    assert _reserved(found, expandable_segments=True) == 60


def test_a_reader_may_look_for_the_smallest_capacity():
    recording = read_trace(_trace(("a", 1, 12), ("r", 1, 12), ("c", 1, 12), ("a", 2, 14)))
    assert len(recording.events) == 4
    assert smallest_capacity(recording.events, recording.settings, start=recording.start) == (
        14 * MIB
    )


def test_a_capacity_below_0_is_refused():
    with pytest.raises(ConfigError, match="capacity is a number of bytes from 0 on, got -1"):
        replay_trace(_trace(), capacity=-1)


EVENT = r"event 1 is \[action, address, bytes, stream\]; got "
SEGMENT = r"segment 0 at the start is \[address, bytes, stream, pool, \[\[.*\]\]; got "
BAD_TRACES = [
    ([], r"everything stands in one object; got \[\]; record it again"),
    ({}, "in an allocation trace events is a list; got None; record it again"),
    ({"events": {}}, "events is a list; got {}"),
    *(
        (_trace(("a", 1, 1)) | {"events": [["a", 1, 1, 0], row]}, EVENT)
        for row in (
            *(None, "aaaa", {}, [], ["a", 1, 1], ["a", 1, 1, 0, 0], [["a"], 1, 1, 0]),
            *(["x", 1, 1, 0], ["ar", 1, 1, 0], ["", 1, 1, 0], [None, 1, 1, 0]),
            *(["a", "1", 1, 0], ["a", 1, 1.5, 0], ["a", 1, -1, 0], ["a", 1, 1, None]),
            *(["a", 1, True, 0], ["c", None, 1, 0], ["a", 1, "\n" * 999, 0]),
        )
    ),
    (_trace(expandable_segments="no"), "expandable_segments is true or false; got 'no'"),
    (_trace(max_split_size="1"), "max_split_size is a number of bytes; got '1'"),
    (_trace(max_split_size=5), "the trace's max_split_size lies above 20971520 bytes"),
    (_trace(segments_at_start={}), "segments_at_start is a list or null; got {}"),
    *(
        (_found(row), SEGMENT)
        for row in (
            *(None, [], LARGE[:4], [*LARGE, 0], [*LARGE[:4], None], [*LARGE[:3], 2, []]),
            *([0, 0, 0, 1, []], [0, 1.5, 0, 1, []], [0, 512, None, 1, []], [0, 512, 0, True, []]),
            *([0, 512, 0, 1, [None]], [0, 512, 0, 1, [[0, 512]]], [0, 512, 0, 1, [[0, 0, 0]]]),
            *([0, 512, 0, 1, [[0, 512, -1]]], [0, 512, 0, 1, [[0, 512, "1"]]]),
        )
    ),
    *(
        (_found([1024, 1024, 0, 1, blocks]), "segment 0 at the start holds its blocks side by")
        for blocks in (
            *([[512, 512, 1]], [[512, 1024, 1]], [[2048, 512, 1]], [[1024, 1536, 1]]),
            [[1536, 512, 1], [1024, 1024, 1]],
        )
    ),
    (_found(SMALL, LARGE, SMALL), "segments_at_start do not overlap; got"),
    (_found([0, 513, 0, 1, []], [512, 512, 0, 1, []]), "segments_at_start do not overlap; got"),
]


@pytest.mark.parametrize(("trace", "message"), BAD_TRACES)
def test_a_malformed_recording_is_refused_in_one_line(trace, message):
    with pytest.raises(SnapshotError, match=message) as caught:
        replay_trace(trace)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_segments_and_blocks_may_touch():
    whole = [1024, 1024, 0, 1, [[1024, 512, 0], [1536, 512, 1]]]
    assert replay_trace(_found([0, 1024, 0, 1, []], whole)).fits


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "trace"])
def test_a_recording_is_read_packed_or_not(tmp_path, name):
    trace = _trace(("a", 1, 12))
    content = json.dumps(trace).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert load_trace(path) == load_trace(str(path)) == trace


PACKED = gzip.compress(json.dumps(_trace(*[("a", 1, 12)] * 99)).encode())
BAD_FILES = {
    "empty": b"",
    "half": b'{"events": [["a", 1',
    "packed half": PACKED[: len(PACKED) // 2],
    "packed, one byte wrong": PACKED[:20] + bytes([PACKED[20] ^ 255]) + PACKED[21:],
    "packed, no end": PACKED[:-1],
    "packed header": PACKED[:5],
    "picture": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "pickle": b"\x80\x04}q\x00.",
    "deep": b"[" * 100_000,
    "long number": b"[" + b"9" * 5_000 + b"]",
    "list": b"[1, 2]",
    "text": b'"events"',
}


@pytest.mark.parametrize("content", BAD_FILES.values(), ids=BAD_FILES)
def test_a_file_that_is_no_recording_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "some file"
    path.write_bytes(content)
    with pytest.raises(SnapshotError, match=r"an allocation trace is .*some file'") as caught:
        load_trace(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(path))


def test_a_file_that_cannot_be_opened_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "absent", tmp_path / "a\0b"):
        with pytest.raises(SnapshotError, match="cannot be read"):
            load_trace(path)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the recordings in shared/data/gpu_traces")
def test_real_recordings_have_the_peaks_of_the_card():
    names = sorted(SHARED.glob("*.json.gz"))
    traces = {path.name: load_trace(path) for path in names}
    replays = {name: replay_trace(trace) for name, trace in traces.items()}
    told = {name: (r.peak_allocated, r.peak_reserved) for name, r in replays.items()}
    assert told
    assert told == {
        name: (trace["peak_allocated_bytes"], trace["peak_reserved_bytes"])
        for name, trace in traces.items()
    }


def test_memory_let_go_counts_no_more_and_is_not_free_yet():
    """Another stream may use it until its free completes; `allocated` falls before."""
    mib = 2**20
    recorded = [["a", 0, 30 * mib, 0], ["r", 0, 30 * mib, 0], ["a", 1, 30 * mib, 0]]
    pending = replay_trace({"events": recorded})
    assert (pending.peak_allocated, pending.peak_reserved) == (30 * mib, 60 * mib)
    done = [*recorded[:2], ["c", 0, 30 * mib, 0], recorded[2]]
    completed = replay_trace({"events": done})
    assert (completed.peak_allocated, completed.peak_reserved) == (30 * mib, 30 * mib)
    twice = replay_trace({"events": [*done, ["r", 1, 30 * mib, 0], ["r", 1, 30 * mib, 0]]})
    assert twice.peak_allocated == 30 * mib

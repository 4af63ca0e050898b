"""Memory snapshots: nothing runs, nothing but SnapshotError, and the start is found again."""

import contextlib
import copy
import copyreg
import gzip
import io
import json
import os
import pickle
import pickletools
import random
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kronos.capacity.data_pickle import DataOnly as _DataOnly
from kronos.capacity.snapshot import judge_snapshot, read_snapshot
from kronos.capacity.traces import load_trace, replay_trace
from kronos.errors import SnapshotError
from kronos.hardware import MIB

TRACES = Path(__file__).parents[3] / "shared" / "data" / "gpu_traces"
ACTIONS = {
    "a": "alloc",
    "r": "free_requested",
    "c": "free_completed",
    "A": "segment_alloc",
    "F": "segment_free",
    "M": "segment_map",
    "U": "segment_unmap",
}
STATES = {"live": "active_allocated", "waiting": "active_pending_free", "free": "inactive"}


class Card:
    """A card whose allocator keeps real books of blocks and writes down what it does.

    Where a block goes is left to chance: finding the start again must not depend on it.
    """

    def __init__(self, seed=0, expandable=False, cut=-1):
        self.chance = random.Random(seed)
        self.expandable = expandable
        self.segments = []
        self.events = []
        self.cut = cut
        self.start = []
        """A copy of the segments behind the first `cut` events."""

    def _note(self, letter, address, size, stream):
        self.events.append((letter, address, size, stream))
        if len(self.events) == self.cut:
            self.start = copy.deepcopy(self.segments)

    def _blocks(self, state, **of):
        return [
            (segment, block)
            for segment in self.segments
            for block in segment["blocks"]
            if block["state"] == state and all(segment[key] == of[key] for key in of)
        ]

    def allocate(self, requested, stream):
        size, large = -(-requested // 512) * 512, requested > MIB
        fitting = [
            found
            for found in self._blocks("free", stream=stream, large=large)
            if found[1]["size"] >= size
        ]
        found = self.chance.choice(fitting) if fitting else self._take(size, stream, large)
        segment, block = found
        rest = block["size"] - size
        if rest > MIB or (rest and (self.expandable or not large)):
            self._split(segment, block, size)
        block.update(state="live", requested=requested)
        self._note("a", block["address"], requested, stream)

    @staticmethod
    def _split(segment, block, size):
        """Keep the first `size` bytes of a free block."""
        behind = {
            "address": block["address"] + size,
            "size": block["size"] - size,
            "requested": 0,
            "state": "free",
        }
        block["size"] = size
        segment["blocks"].insert(segment["blocks"].index(block) + 1, behind)

    def _take(self, size, stream, large):
        """A free block that is large enough: of a new segment, or of a range grown by granules."""
        granule = (20 if large else 2) * MIB
        if not self.expandable:
            length = granule if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            address = (1 + len(self.events)) << 40
            self._add("A", address, length, stream, large)
        else:
            top = (1 + 2 * stream + large) << 40
            ends = [s["address"] + s["size"] for s in self.segments if s["top"] == top]
            address = max(ends, default=top)  # holes further down stay
            for at in range(address, address + size, granule):
                self._add("M", at, granule, stream, large, top)
        return next(
            found
            for found in self._blocks("free", stream=stream, large=large)
            if found[1]["address"] <= address < found[1]["address"] + found[1]["size"]
        )

    def _add(self, letter, address, size, stream, large, top=None):
        block = {"address": address, "size": size, "requested": 0, "state": "free"}
        below = [s for s in self.segments if s["address"] + s["size"] == address and top]
        if below:
            below[0]["size"] += size
            below[0]["blocks"].append(block)
            self._merge(below[0])
        else:
            segment = {"address": address, "size": size, "stream": stream, "large": large}
            self.segments.append(segment | {"top": top, "blocks": [block]})
            self.segments.sort(key=lambda segment: segment["address"])
        self._note(letter, address, size, stream)

    @staticmethod
    def _merge(segment):
        merged = []
        for block in segment["blocks"]:
            if merged and merged[-1]["state"] == block["state"] == "free":
                merged[-1]["size"] += block["size"]
            else:
                merged.append(block)
        segment["blocks"] = merged

    def request_free(self, pick, *, wait):
        if live := self._blocks("live"):
            segment, block = live[pick % len(live)]
            block["state"] = "waiting"
            self._note("r", block["address"], block["requested"], segment["stream"])
            if not wait:
                self._complete(segment, block)

    def complete(self, pick):
        if waiting := self._blocks("waiting"):
            self._complete(*waiting[pick % len(waiting)])

    def _complete(self, segment, block):
        address, requested = block["address"], block["requested"]
        block.update(state="free", requested=0)
        self._merge(segment)
        self._note("c", address, requested, segment["stream"])

    def empty_cache(self):
        for segment, block in self._blocks("free"):
            if segment["top"] is not None:
                self._unmap(segment, block)
            elif len(segment["blocks"]) == 1:
                self.segments.remove(segment)
                self._note("F", segment["address"], segment["size"], segment["stream"])

    def _unmap(self, segment, block):
        """Give the whole granules in a free block back, and make two segments of the rest."""
        granule = (20 if segment["large"] else 2) * MIB
        skipped = (segment["top"] - block["address"]) % granule  # up to the first whole granule
        begin = block["address"] + skipped
        end = begin + (block["size"] - skipped) // granule * granule
        if begin >= end:
            return
        segment = next(one for one in self.segments if block in one["blocks"])
        if begin > block["address"]:
            self._split(segment, block, begin - block["address"])
            block = segment["blocks"][segment["blocks"].index(block) + 1]
        if end < block["address"] + block["size"]:
            self._split(segment, block, end - begin)
        where = segment["blocks"].index(block)
        self.segments.remove(segment)
        for blocks in (segment["blocks"][:where], segment["blocks"][where + 1 :]):
            if blocks:
                size = sum(block["size"] for block in blocks)
                part = {"address": blocks[0]["address"], "size": size, "blocks": blocks}
                self.segments.append(segment | part)
        self.segments.sort(key=lambda segment: segment["address"])
        self._note("U", begin, end - begin, segment["stream"])

    def run(self, steps):
        for _ in range(steps):
            kind = self.chance.choice(
                ["allocate"] * 5 + ["free"] * 3 + ["wait", "complete", "empty"]
            )
            pick = self.chance.randrange(99)
            if kind == "allocate":
                self.allocate(self._size(), stream=self.chance.randrange(2))
            elif kind == "complete":
                self.complete(pick)
            elif kind == "empty":
                self.empty_cache()
            else:
                self.request_free(pick, wait=kind == "wait")
        return self

    def _size(self):
        """Of both pools, often leaving about 1 MiB; few large granules' worth of small blocks."""
        small = self.chance.randrange(1, MIB // 4 if self.expandable else MIB)
        large = self.chance.choice([3, 5, 9, 12, 20, 21]) * MIB
        return self.chance.choice([small, large + self.chance.choice([-MIB, -512, -1, 0, 1, MIB])])

    def rows(self, segments):
        """What a trace says of the segments."""
        return [
            [
                *(segment["address"], segment["size"], segment["stream"], int(segment["large"])),
                [
                    [block["address"], block["size"], block["requested"]]
                    for block in segment["blocks"]
                    if block["state"] != "free"
                ],
            ]
            for segment in segments
        ]

    def snapshot(self, keep=None):
        """As torch dumps it, with a history of the last `keep` events."""
        kept = self.events if keep is None else self.events[len(self.events) - keep :]
        return {
            "segments": [_segment(segment) for segment in self.segments],
            "device_traces": [[_entry(*event) for event in kept]],
            "allocator_settings": {
                "PYTORCH_CUDA_ALLOC_CONF": "",
                "expandable_segments": self.expandable,
                "max_split_size": -1,
                "garbage_collection_threshold": 0.0,
            },
        }


def _segment(segment):
    return {
        "device": 0,
        "address": segment["address"],
        "total_size": segment["size"],
        "stream": segment["stream"],
        "segment_type": "large" if segment["large"] else "small",
        "segment_pool_id": (0, 0),
        "is_expandable": segment["top"] is not None,
        "frames": [],
        "blocks": [
            {
                "address": block["address"],
                "size": block["size"],
                "requested_size": block["requested"],
                "state": STATES[block["state"]],
                "frames": [],
            }
            for block in segment["blocks"]
        ],
    }


def _entry(letter, address, size, stream):
    entry = {"action": ACTIONS[letter], "addr": address, "size": size, "stream": stream}
    return entry | {"time_us": 1_700_000_000_000_000, "pool_id": (0, 0)}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("snapshots") / "snapshot.pickle"


@pytest.fixture
def refusal(file):
    """refusal(content): what is said of a file, or of an object pickled into one."""
    return lambda content: _refusal(file, content)


def _write(file, content):
    file.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content))


def _refusal(file, content=None):
    if content is not None:
        _write(file, content)
    with pytest.raises(SnapshotError) as caught:
        read_snapshot(file)
    message = str(caught.value)
    assert file.name in message
    assert len(message.splitlines()) == 1
    return message


@pytest.fixture
def read(file):
    """read(content): the only card of a snapshot."""

    def read(content):
        _write(file, content)
        (device,) = read_snapshot(file).devices
        return device

    return read


def _small_card():
    """In use at the end: 3 MiB of the 20 + 2 MiB reserved; in between it was 6 MiB and 1 KiB."""
    card = Card()
    card.allocate(3 * MIB, 0)
    card.allocate(1000, 0)
    card.allocate(3 * MIB - 100, 0)
    card.request_free(1, wait=False)
    card.request_free(1, wait=False)
    return card


# Reconstruction


@given(st.integers(0, 60), st.integers(0, 2**32), st.booleans(), st.data())
def test_finds_what_a_history_began_with(file, steps, seed, expandable, data):
    everything = Card(seed, expandable).run(steps).events
    keep = data.draw(st.integers(0, len(everything)))
    card = Card(seed, expandable, cut=len(everything) - keep).run(steps)
    content = card.snapshot(keep)
    if not card.segments and not keep:
        assert "neither memory nor a history" in _refusal(file, content)
        return
    if data.draw(st.booleans(), label="as before allocator_settings"):
        del content["allocator_settings"]
    if data.draw(st.booleans(), label="as before block addresses"):
        for segment in content["segments"]:
            for block in segment["blocks"]:
                del block["address"]
    _write(file, content)
    (device,) = read_snapshot(file).devices
    start = card.start if keep < len(everything) else []
    if not keep:
        start = card.segments
    trace = device.trace
    assert trace["segments_at_start"] == _as_told(card.rows(start), start, trace["events"], card)
    assert trace["events"] == [list(event) for event in card.events[len(everything) - keep :]]
    assert trace["starts_empty"] is (start == [])
    assert device.complete is (keep > 0 and start == [])
    assert device.recorded is (keep > 0)
    assert device.reserved_at_end == sum(segment["size"] for segment in card.segments)
    live = [block for _, block in card._blocks("live")]
    assert device.allocated_at_end == sum(block["size"] for block in live)
    assert json.loads(json.dumps(trace)) == trace
    replay_trace(trace)


def _as_told(rows, start, events, card):
    """The rows, less what no snapshot tells: a block's unused tail that nobody lives behind.

    The block was freed since, free memory follows it, and none of that was used while it lived.
    """
    used, told = set(), set()
    for letter, address, _, _ in events:
        used |= {address} if letter == "c" else set()
        told |= {(address, frozenset(used))} if letter == "a" else set()
    for row, segment in zip(rows, start, strict=True):
        free = {block["address"] for block in segment["blocks"] if block["state"] == "free"}
        for live in row[4]:
            address, size, requested = live
            behind = address + size
            seen = any(at == behind and address not in gone for at, gone in told)
            if address in used and behind in free and not seen:
                live[1] = -(-requested // 512) * 512
    return rows


def _end_of(trace):
    """The segments behind the events of a real recording, as `Card` keeps them."""
    segments = {address: [size, stream, pool] for address, size, stream, pool, _ in _start(trace)}
    blocks = {at: [size, asked] for *_, live in _start(trace) for at, size, asked in live}
    for letter, address, size, stream in trace["events"]:
        if letter == "a":
            blocks[address] = [None, size]
        elif letter == "c":
            del blocks[address]
        elif letter == "A":
            segments[address] = [size, stream, int(size > 2 * MIB)]
        elif letter == "F":
            del segments[address]
    end = []
    for begin, (length, stream, large) in sorted(segments.items()):
        inside = sorted(at for at in blocks if begin <= at < begin + length)
        tiles, at = [], begin
        for address, limit in pairwise([*inside, begin + length]):
            size, asked = blocks[address]
            if size is None:
                size = -(-asked // 512) * 512
                size = limit - address if large and limit - address - size <= MIB else size
            tiles.append({"address": at, "size": address - at, "requested": 0, "state": "free"})
            tiles.append({"address": address, "size": size, "requested": asked, "state": "live"})
            at = address + size
        tiles.append({"address": at, "size": begin + length - at, "requested": 0, "state": "free"})
        segment = {"address": begin, "size": length, "stream": stream, "large": large}
        tiles = [tile for tile in tiles if tile["size"]]
        end.append(segment | {"top": None, "blocks": tiles})
    return end


def _start(trace):
    return trace["segments_at_start"] or []


@pytest.mark.skipif(not TRACES.is_dir(), reason="the recordings of real cards are not here")
@pytest.mark.parametrize("number", ["01", "04", "36", "40", "47"])
def test_finds_what_a_real_history_began_with(read, number):
    """Sizes of blocks that were freed later are in the recording, but not in the snapshot."""
    trace = load_trace(TRACES / f"trace_{number}.json.gz")
    card = Card()
    card.segments, card.events = _end_of(trace), [tuple(event) for event in trace["events"]]
    device = read(card.snapshot())
    assert device.trace["segments_at_start"] == sorted(_start(trace))
    assert device.trace["events"] == trace["events"]
    assert replay_trace(device.trace) == replay_trace(trace)
    assert replay_trace(device.trace).peak_reserved == trace["peak_reserved_bytes"]


def test_where_nothing_is_left_out_the_history_is_complete(read):
    card = _small_card()
    whole, cut = read(card.snapshot()), read(card.snapshot(8))
    assert (whole.complete, whole.remarks) == (True, ())
    assert not cut.complete
    assert "the 8 events begin in the middle of the run" in cut.remarks[0]
    assert (whole.allocated_at_end, whole.reserved_at_end) == (3 * MIB, 22 * MIB)


def test_without_a_history_only_the_end_is_told(read):
    device = read(_small_card().snapshot(0))
    assert not device.recorded
    assert (device.allocated_at_end, device.reserved_at_end) == (3 * MIB, 22 * MIB)
    assert replay_trace(device.trace).peak_allocated == 3 * MIB
    assert "no history was recorded, so no peak is in it" in device.remarks[0]


def test_each_card_has_its_own_history(file):
    content = _small_card().snapshot()
    content["device_traces"] = [[], content["device_traces"][0], []]
    for segment in content["segments"]:
        segment["device"] = 1
    other = copy.deepcopy(content["segments"][0]) | {"device": 7}
    _write(file, content | {"segments": [*content["segments"], other]})
    one, seven = read_snapshot(file).devices
    assert (one.index, one.complete, seven.index, seven.recorded) == (1, True, 7, False)


def test_snapshots_taken_meanwhile_are_no_events(read):
    content = _small_card().snapshot()
    content["device_traces"][0].insert(3, {"action": "snapshot", "addr": 0, "size": 0, "stream": 0})
    assert read(content).trace == read(_small_card().snapshot()).trace


def test_running_out_of_memory_is_remarked(read):
    content = _small_card().snapshot()
    oom = {"action": "oom", "device_free": 5, "size": 3 * MIB, "stream": 0}
    content["device_traces"][0].append(oom)
    device = read(content)
    assert device.trace["events"][-1] == ["o", 0, 3 * MIB, 0]
    assert "out of memory when it asked for 3.00 MiB" in device.remarks[0]
    assert judge_snapshot(device, None).fits is None


def test_what_a_replay_leaves_out_is_remarked(read):
    content = _small_card().snapshot()
    content["segments"][0]["segment_pool_id"] = (0, 1)
    conf = "garbage_collection_threshold:0.8,max_split_size_mb:100"
    content["allocator_settings"] |= {"PYTORCH_CUDA_ALLOC_CONF": conf, "max_split_size": 100 * MIB}
    device = read(content)
    assert "segments of CUDA graphs or MemPools: 1;" in device.remarks[0]
    assert "the run was set to garbage_collection_threshold;" in device.remarks[1]
    assert device.trace["max_split_size"] == 100 * MIB


def test_blocks_beyond_max_split_size_are_whole(read):
    card = Card()
    card.allocate(47 * MIB, 0)  # of a segment of 48 MiB, so with nothing to split
    card.segments[0]["size"] = card.segments[0]["blocks"][0]["size"] = 60 * MIB
    card.events[0] = ("A", card.events[0][1], 60 * MIB, 0)
    card.request_free(0, wait=False)
    content = card.snapshot(2)
    assert read(content).trace["segments_at_start"][0][4][0][1] == 47 * MIB
    content["allocator_settings"]["max_split_size"] = 47 * MIB
    assert read(content).trace["segments_at_start"][0][4][0][1] == 60 * MIB


def test_a_history_without_requests_to_free_will_do(read):
    content = _small_card().snapshot()
    (history,) = content["device_traces"]
    history[:] = [entry for entry in history if entry["action"] != "free_requested"]
    assert read(content).complete


@pytest.mark.parametrize(
    ("actions", "where"),
    [
        ("alloc", "its event 'c'"),
        ("free_completed", "its event 'r'"),
        ("free_requested, free_completed", "its event 'a'"),
        ("segment_free", "its event 'A'"),
    ],
)
def test_a_history_must_lead_to_its_end(refusal, actions, where):
    card = Card()
    for _ in range(2):
        card.allocate(1000, 0)
        card.request_free(0, wait=False)
        card.empty_cache()
        card.allocate(1000, 0)
        card.request_free(0, wait=False)
    content = card.snapshot()
    (history,) = content["device_traces"]
    history[:] = [entry for entry in history if entry["action"] not in actions]
    message = refusal(content)
    assert where in message
    assert "without skip_actions" in message


@pytest.mark.parametrize(
    ("letter", "offset", "size"),
    [
        *[("A", 0, 4 * MIB), ("A", 0, 1 * MIB), ("A", MIB, MIB), ("A", -1, MIB), ("A", 2 * MIB, 1)],
        *[("F", 0, 2 * MIB), ("F", MIB, 2 * MIB), ("F", -MIB, 2 * MIB), ("F", -1, 4 * MIB)],
        *[("M", 0, 4 * MIB), ("M", -MIB, 2 * MIB), ("U", 0, 2 * MIB)],
    ],
)
def test_a_history_must_fit_the_segments(refusal, letter, offset, size):
    card = Card(expandable=letter in "MU")
    card.allocate(1000, 0)
    ((_, address, _, _), _) = card.events
    card.events = [(letter, address + offset, size, 0)]
    assert f"its event {letter!r} of {size} bytes" in refusal(card.snapshot())


def test_a_granule_is_taken_out_of_the_middle(read):
    card = Card(expandable=True)
    card.allocate(60 * MIB, 0)
    address = card.segments[0]["address"]
    card.segments[0]["blocks"][0].update(state="free", requested=0)
    card.events = [("M", address + 20 * MIB, 20 * MIB, 0)]
    rows = read(card.snapshot()).trace["segments_at_start"]
    assert [row[:2] for row in rows] == [[address, 20 * MIB], [address + 40 * MIB, 20 * MIB]]


def test_a_block_in_use_at_the_end_keeps_its_size(read):
    card = Card()
    card.allocate(3 * MIB, 0)
    card.allocate(3 * MIB, 0)
    first, *_ = card.segments[0]["blocks"]
    card._split(card.segments[0], first, 3 * MIB - 512)  # as expandable segments cut, for a while
    ((*_, live),) = read(card.snapshot(0)).trace["segments_at_start"]
    assert live[0][1] == 3 * MIB - 512


def test_expandable_segments_leave_no_tail(read):
    card = Card(expandable=True)
    card.allocate(20 * MIB - 512, 0)
    card.request_free(0, wait=False)
    ((*_, live),) = read(card.snapshot(2)).trace["segments_at_start"]
    assert live[0][1] == 20 * MIB - 512


def test_what_came_behind_a_block_later_does_not_end_it(read):
    card = Card()
    card.allocate(2 * MIB, 0)
    card.allocate(3 * MIB, 0)
    start = card.rows(copy.deepcopy(card.segments))
    card.request_free(0, wait=False)
    card.request_free(0, wait=False)
    card.allocate(5 * MIB + MIB // 2, 0)  # over both
    card.allocate(2 * MIB, 0)  # half a MiB behind where the second block ended
    assert read(card.snapshot(6)).trace["segments_at_start"] == start


@pytest.mark.parametrize("sign", ["setting", "segment", "event", "none"])
def test_one_sign_of_expandable_segments_will_do(read, sign):
    card = Card()
    card.allocate(20 * MIB, 0)
    content = card.snapshot()
    content["allocator_settings"]["expandable_segments"] = sign == "setting"
    content["segments"][0]["is_expandable"] = sign == "segment"
    content["device_traces"][0][0]["action"] = "segment_map" if sign == "event" else "segment_alloc"
    assert read(content).trace["expandable_segments"] is (sign != "none")


@pytest.mark.parametrize(
    ("letter", "expandable", "stream", "joined"),
    [("U", True, 0, True), ("U", True, 1, False), ("U", False, 0, False), ("F", True, 0, False)],
)
@pytest.mark.parametrize("offset", [-20 * MIB, 20 * MIB])
def test_only_a_growing_range_is_joined(read, letter, expandable, stream, joined, offset):
    card = Card(expandable=expandable)
    card.allocate(20 * MIB, 0)
    (segment,) = card.segments
    address, segment["large"] = segment["address"], True
    card.events = [(letter, address + offset, 20 * MIB, stream)]
    rows = read(card.snapshot()).trace["segments_at_start"]
    first = [min(address, address + offset), 20 * MIB * (1 + joined)]
    assert rows[0][:2] == first
    assert len(rows) == (1 if joined else 2)


def test_blocks_must_lie_in_segments(refusal):
    card = Card()
    card.allocate(1000, 0)
    card.request_free(0, wait=False)
    content = card.snapshot(2)
    content["segments"].clear()
    assert "lies in no segment" in refusal(content)


def test_blocks_must_not_overlap(refusal):
    card = _small_card()
    content = card.snapshot()
    content["device_traces"][0][:] = content["device_traces"][0][-4:]
    for entry in content["device_traces"][0]:
        entry["size"] *= 1000
    assert "reaches into the next" in refusal(content)


# Judgement


def test_judges_at_the_edge(read):
    device = read(_small_card().snapshot())
    assert judge_snapshot(device, 22 * MIB).fits is True
    assert judge_snapshot(device, 22 * MIB - 1).fits is False
    assert judge_snapshot(device, None).replay.peak_allocated == 6 * MIB + 1024
    assert judge_snapshot(device, None).replay.peak_reserved == 22 * MIB


def test_judges_with_expandable_segments_as_told(read):
    card = Card()
    card.allocate(12 * MIB, 0)  # a segment of 12 MiB, or a granule of 20
    device = read(card.snapshot())
    assert judge_snapshot(device, 12 * MIB).fits is True
    assert judge_snapshot(device, 20 * MIB - 1, expandable_segments=True).fits is False
    assert judge_snapshot(device, 20 * MIB, expandable_segments=True).fits is True


@pytest.mark.parametrize("keep", [0, 4])
def test_what_lacks_its_begin_may_only_be_refused(read, keep):
    device = read(_small_card().snapshot(keep))
    assert judge_snapshot(device, 22 * MIB).fits is None
    assert judge_snapshot(device, 2 * MIB).fits is False


# Safety


class Reduces:
    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


class Builds:
    def __init__(self, marker):
        self.marker = str(marker)

    def __getstate__(self):
        return self.marker

    def __setstate__(self, marker):
        os.mkdir(marker)


class Makes:
    def __new__(cls, marker):
        os.mkdir(marker)
        return object.__new__(cls)


@pytest.fixture
def extensions():
    """os.mkdir under a code of each width, met before so that find_class would not be asked."""
    codes = (0x4D, 0x4D4D, 0x4D4D4D)
    names = [("os", "mkdir"), ("posix", "mkdir"), ("nt" if os.name == "nt" else "os", "makedirs")]
    for code, name in zip(codes, names, strict=True):
        copyreg.add_extension(*name, code)
        pickle.loads(b"\x80\2\x84" + code.to_bytes(4, "little") + b".")
    yield
    for code, name in zip(codes, names, strict=True):
        copyreg.remove_extension(*name, code)


def _text(marker):
    raw = str(marker).encode()
    return b"X" + len(raw).to_bytes(4, "little") + raw


CALLS = {
    "REDUCE": lambda text, name: b"cos\nmkdir\n" + text + b"\x85R",
    "STACK_GLOBAL": lambda text, name: b"\x8c\2os\x8c\5mkdir\x93" + text + b"\x85R",
    "INST": lambda text, name: b"(" + text + b"ios\nmkdir\n",
    "OBJ": lambda text, name: b"(cos\nmkdir\n" + text + b"o",
    "NEWOBJ": lambda text, name: b"c" + name + b"\nMakes\n" + text + b"\x85\x81",
    "NEWOBJ_EX": lambda text, name: b"c" + name + b"\nMakes\n" + text + b"\x85}\x92",
    "EXT1": lambda text, name: b"\x82\x4d" + text + b"\x85R",
    "EXT2": lambda text, name: b"\x83\x4d\x4d" + text + b"\x85R",
    "EXT4": lambda text, name: b"\x84\x4d\x4d\x4d\0" + text + b"\x85R",
}


@pytest.mark.parametrize("start", [b"\x80\2", b"\x80\4", b"\x80\5", b""])
@pytest.mark.parametrize("call", CALLS)
def test_no_opcode_runs(refusal, extensions, tmp_path, call, start):
    content = start + CALLS[call](_text(tmp_path / "ran"), __name__.encode()) + b"."
    pickle.loads(content)
    (tmp_path / "ran").rmdir()  # so the attack is one
    assert "is a pickle, and this" in (message := refusal(content)) or "run code" in message
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", [Reduces, Builds])
@pytest.mark.parametrize("protocol", range(6))
def test_no_object_is_made(refusal, tmp_path, kind, protocol):
    attack = _small_card().snapshot() | {"more": kind(tmp_path / "ran")}
    content = pickle.dumps(attack, protocol)
    pickle.loads(content)
    (tmp_path / "ran").rmdir()
    refusal(content)
    assert not (tmp_path / "ran").exists()


DATA = {
    *("PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BINFLOAT"),
    *("BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINUNICODE"),
    *("EMPTY_DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_TUPLE"),
    *("MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"),
}
FURTHER = [opcode for opcode in pickletools.opcodes if opcode.name not in DATA]


@pytest.mark.parametrize("opcode", FURTHER, ids=lambda opcode: opcode.name)
def test_only_data_passes(refusal, opcode):
    content = b"\x80\4}}" + opcode.code.encode("latin-1") + bytes(16) + b"."
    assert f"this pickle asks for {opcode.name} at byte 4" in refusal(content)


@pytest.mark.parametrize("content", [b"cos\nmkdir\n.", b"\x80\4Pid\n.", b"\x80\4K\1Q."])
def test_the_second_wall_holds_alone(content):
    with pytest.raises(pickle.UnpicklingError, match="not data"):
        _DataOnly(io.BytesIO(content)).load()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(b"})" + b"\x85" * 10**6 + b"Ns", "TUPLE1", id="nested tuple as a key"),
        pytest.param(b"})" + b"K\0\x86" * 10**6 + b"Ns", "TUPLE2", id="nested pair as a key"),
        pytest.param(b"})" + b"q\0h\0K\0\x86" * 9 + b"Ns", "TUPLE2", id="nested by the memo"),
        pytest.param(b"})q\0" + b"K\0h\0\x86q\0" * 9 + b"s", "TUPLE2", id="nested behind a number"),
        pytest.param(b"}r\xff\xff\xff\x7f", "LONG_BINPUT", id="16 GiB of memo"),
        pytest.param(b"}p2147483647\n", "PUT", id="16 GiB of memo, by a text"),
        pytest.param(b"\x8d" + b"\xff" * 7 + b"\x7fa", "BINUNICODE8", id="a text without end"),
        pytest.param(b"\x8e" + b"\xff" * 7 + b"\x7fa", "BINBYTES8", id="bytes without end"),
        pytest.param(b"X\xff\xff\xff\xffa", "cut off", id="4 GiB of text"),
        pytest.param(b"\x95" + b"\xff" * 7 + b"\x7f}", "damaged", id="a frame without end"),
        pytest.param(b"\x8b\xff\xff\xff\x7fa", "LONG4", id="a number without end"),
        pytest.param(b"]" * 10**5 + b"a" * (10**5 - 1), "a dict, got a list", id="nested lists"),
        pytest.param(b"}]Ns", "damaged", id="a list as a key"),
        pytest.param(b"}K\1K\1\x86u", "damaged", id="no mark"),
        pytest.param(b"\x8c\1\xff", "damaged", id="no UTF-8"),
        pytest.param(b"h\7", "damaged", id="an empty memo"),
    ],
)
def test_no_bomb_goes_off(refusal, body, words):
    assert words in refusal(b"\x80\4" + body + b".")


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_snapshot_cut_off_anywhere_is_refused(file, read, protocol):
    card = Card()
    card.allocate(1000, 0)
    content = pickle.dumps(card.snapshot(), protocol)
    assert read(content).reserved_at_end == 2 * MIB
    for length in reversed(range(len(content))):
        os.truncate(file, length)
        _refusal(file)
    assert "1 bytes follow" in _refusal(file, content + b"x")


@given(st.sampled_from([b"", b"\x80\2", b"\x80\4", b"\x80\5"]), st.binary())
def test_other_bytes_are_refused(file, start, content):
    _refusal(file, start + content)


@given(st.data(), st.sampled_from([2, 4]))
def test_a_changed_byte_is_refused_or_harmless(file, data, protocol):
    content = bytearray(pickle.dumps(_small_card().snapshot(5), protocol))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(content)
    with contextlib.suppress(SnapshotError):
        replay_trace(read_snapshot(file).devices[0].trace)


# Other files


def _zip():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data.pkl", b"")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (gzip.compress(b"\x80\4}.", mtime=0), "gzip; unpack it first"),
        (_zip(), "a zip archive, such as torch.save writes"),
        (pickle.dumps(0x1950A86A20F9469CFC6C, 2) + b"more", "by an old torch.save"),
        (b'\n{"segments": []}', "like JSON"),
        (b"[1, 2]", "like JSON"),
        (b"<!DOCTYPE html>", "like HTML"),
        (b"epoch 1, loss 2.5\n", "no pickle of protocol 2 to 5 (it begins with b'epoch 1, los')"),
        (pickle.dumps({"segments": []}, 0), "no pickle of protocol 2 to 5"),
        (b"\x80\6}.", "no pickle of protocol 2 to 5"),
        (b"\x80", "no pickle of protocol 2 to 5"),
    ],
)
def test_other_files_are_told_apart(refusal, content, words):
    message = refusal(content)
    assert words in message
    assert "_record_memory_history(max_entries=" in message
    assert "_dump_snapshot('snapshot.pickle')" in message


def test_a_file_that_cannot_be_opened_stays_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_snapshot(tmp_path / "none.pickle")
    with pytest.raises(OSError, match="directory"):
        read_snapshot(tmp_path)


# Structure

BLOCK = ("segments", 0, "blocks", 0)
EVENT = ("device_traces", 0, 4)


@pytest.mark.parametrize(
    ("keys", "value", "words"),
    [
        ((), [], "the whole of a memory snapshot must be a dict, got a list"),
        (("segments",), None, "segments of a memory snapshot must be a list, got None"),
        (("segments", 0), 5, "segments[0] of a memory snapshot must be a dict, got 5"),
        (("segments", 0, "device"), True, "segments[0].device"),
        (("segments", 0, "segment_type"), "huge", "must be small or large, got 'huge'"),
        (("segments", 0, "total_size"), 5, "the sum of its blocks, 20971520, got 5"),
        (("segments", 0, "total_size"), 0, "segments[0].total_size"),
        (("segments", 0, "address"), -1, "segments[0].address"),
        (("segments", 0, "stream"), "x" * 10**6, "got 'xxxx"),
        (("segments", 0, "blocks"), {}, "segments[0].blocks of a memory snapshot must be a list"),
        (BLOCK, None, "segments[0].blocks[0] of"),
        ((*BLOCK, "size"), float("nan"), "segments[0].blocks[0].size"),
        ((*BLOCK, "size"), 512, "segments[0].blocks[1].address"),
        ((*BLOCK, "requested_size"), 2**64, "blocks[0].requested_size"),
        ((*BLOCK, "state"), "lost", "must be one of active_allocated, "),
        ((*BLOCK, "state"), [[]], "got a list"),
        (("device_traces",), {}, "device_traces of"),
        (("device_traces", 0), {1: 2}, "device_traces[0] of a memory snapshot must be a list"),
        (EVENT, 7, "device_traces[0][4] of a memory snapshot must be a dict, got 7"),
        ((*EVENT, "action"), "explode", "device_traces[0][4].action"),
        ((*EVENT, "action"), [], "must be one of alloc, free_requested, "),
        ((*EVENT, "addr"), 0.5, "device_traces[0][4].addr"),
        ((*EVENT, "size"), 0, "must be a whole number from 1 on, got 0"),
        ((*EVENT, "stream"), None, "device_traces[0][4].stream"),
        (("allocator_settings",), 1, "allocator_settings of"),
    ],
)
def test_what_is_wrong_is_named(refusal, keys, value, words):
    content = {"": _small_card().snapshot()}
    *path, last = ("", *keys)
    owner = content
    for key in path:
        owner = owner[key]
    owner[last] = value
    assert words in refusal(content[""])


@pytest.mark.parametrize("key", ["segments", "device_traces"])
def test_what_is_missing_is_named(refusal, key):
    content = _small_card().snapshot()
    del content[key]
    assert f"{key} of a memory snapshot must be a list, got None" in refusal(content)


def test_segments_must_lie_apart(refusal):
    content = _small_card().snapshot()
    content["segments"].append(copy.deepcopy(content["segments"][0]))
    assert "apart from other segments" in refusal(content)


def test_one_list_is_not_read_a_thousand_times(refusal):
    content = _small_card().snapshot()
    content["device_traces"] *= 1000
    assert "share a list" in refusal(content)

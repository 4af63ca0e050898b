"""Streams of allocations through the allocator's model, up to the end of memory and around it."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kronos.capacity.allocator import AllocatorSettings
from kronos.capacity.replay import (
    EMPTY_CACHE,
    FREE,
    NOTHING,
    OutOfMemoryAt,
    Replay,
    replay_events,
    smallest_capacity,
)
from kronos.capacity.start import Segment
from kronos.hardware import MIB


def _stream(*events):
    """Events from (key, MiB), (key, FREE) and EMPTY_CACHE."""
    return [
        (None, EMPTY_CACHE, 0)
        if event is EMPTY_CACHE
        else (event[0], event[1] if event[1] is FREE else int(event[1] * MIB), 0)
        for event in events
    ]


# c takes 10 of the 12 that a left, so that the segment stays; b's goes.
STREAM = _stream(("a", 12), ("b", 24), ("a", FREE), ("c", 10), ("b", FREE), ("d", 36))
EMPTIED = [*STREAM[:5], *_stream(EMPTY_CACHE), STREAM[5], *_stream(("unknown", FREE))]


def _limited(capacity, **more):
    return AllocatorSettings(capacity=int(capacity * MIB), **more)


def test_a_replay_tells_the_peaks_and_where_they_were():
    replay = replay_events(EMPTIED)
    assert replay.fits
    assert replay == Replay(
        peak_allocated=46 * MIB,
        peak_reserved=48 * MIB,
        peak_requested=46 * MIB,
        allocated_peak_at=6,
        reserved_peak_at=6,
        flushes=(),
        oom=None,
    )
    assert replay_events(STREAM).peak_reserved == 72 * MIB
    assert replay_events(STREAM, _limited(48)) == replace(
        replay, allocated_peak_at=5, reserved_peak_at=5, flushes=(5,)
    )


def test_a_replay_ends_where_memory_runs_out():
    replay = replay_events(EMPTIED, _limited(47))
    assert not replay.fits
    assert replay == Replay(
        peak_allocated=36 * MIB,
        peak_reserved=36 * MIB,
        peak_requested=36 * MIB,
        allocated_peak_at=1,
        reserved_peak_at=1,
        flushes=(6,),
        oom=OutOfMemoryAt(event=6, requested=36 * MIB, missing=MIB),
    )


def test_a_peak_is_where_it_was_first_reached():
    events = _stream(("a", 12), ("b", 1), ("b", FREE), ("b", 1), ("a", FREE), ("a", 12))
    replay = replay_events([(None, NOTHING, 0), *events])
    assert (replay.peak_allocated, replay.allocated_peak_at) == (13 * MIB, 2)
    assert (replay.peak_reserved, replay.reserved_peak_at) == (14 * MIB, 2)


def test_a_key_allocated_again_was_freed_before():
    replay = replay_events(_stream(("a", 12), ("a", 24), ("z", 0), ("z", FREE)))
    assert (replay.peak_allocated, replay.peak_reserved) == (24 * MIB, 36 * MIB)


def test_streams_have_memory_of_their_own():
    events = [("a", 12 * MIB, 7), ("a", FREE, 0), ("b", 12 * MIB, 8), ("c", 12 * MIB, 7)]
    assert replay_events(events).peak_reserved == 24 * MIB


START = Segment(
    address=64 * MIB,
    size=12 * MIB,
    stream=0,
    small=False,
    live=((66 * MIB, 6 * MIB, 5 * MIB),),
)


def test_a_replay_starts_from_what_is_on_the_card():
    replay = replay_events(_stream(("a", 4), (66 * MIB, FREE), ("b", 8)), start=[START])
    assert (replay.peak_allocated, replay.allocated_peak_at) == (12 * MIB, 2)
    assert (replay.peak_reserved, replay.reserved_peak_at) == (12 * MIB, None)
    idle = replay_events([], start=[START])
    assert (idle.peak_allocated, idle.allocated_peak_at) == (6 * MIB, None)
    assert idle.peak_requested == 5 * MIB


def test_what_is_on_the_card_may_be_too_much():
    replay = replay_events(STREAM, _limited(11), start=[START])
    assert replay.oom == OutOfMemoryAt(event=None, requested=0, missing=MIB)
    assert (replay.peak_reserved, replay.flushes) == (12 * MIB, (None,))


def test_the_smallest_capacity_is_found():
    assert smallest_capacity(STREAM) == smallest_capacity(EMPTIED) == 48 * MIB
    assert smallest_capacity(STREAM, _limited(1)) == 48 * MIB
    assert smallest_capacity([]) == 0
    assert smallest_capacity(_stream(("a", 1))) == 2 * MIB
    assert smallest_capacity([], start=[START]) == 12 * MIB
    odd = replace(START, size=12 * MIB + 512)
    assert smallest_capacity([], start=[odd]) == 14 * MIB


def test_garbage_collection_may_take_a_larger_card():
    # Collected before b, the 30 of a are not there for the rest, which shares them in 70 MiB.
    events = _stream(("a", 30), ("a", FREE), ("b", 40), ("c", 10.5), ("d", 10.5), ("e", 9))
    collecting = AllocatorSettings(garbage_collection_threshold=0.4)
    assert smallest_capacity(events) == 70 * MIB
    assert smallest_capacity(events, collecting) == 76 * MIB  # 30 are not above 0.4 of it


KEYS = st.integers(0, 7)
SIZES = st.integers(0, 3 * MIB) | st.integers(0, 40 * MIB)
EVENTS = st.lists(
    st.tuples(KEYS, SIZES, st.just(0))
    | st.tuples(KEYS, SIZES, st.integers(0, 1))
    | st.tuples(KEYS, st.just(FREE), st.just(0))
    | st.just((None, EMPTY_CACHE, 0)),
    max_size=40,
)
SETTINGS = st.builds(
    AllocatorSettings,
    expandable_segments=st.booleans(),
    max_split_size=st.sampled_from([None, 24 * MIB]),
)


def _least(events):
    """The largest sum of live requests, each rounded to 512: less can never do."""
    live, most = {}, 0
    for key, size, _ in events:
        live[key] = max(size, 0)
        most = max(most, sum(-(-size // 512) * 512 for size in live.values()))
    return most


@given(events=EVENTS, config=SETTINGS)
def test_a_card_as_large_as_the_peak_changes_nothing(events, config):
    unlimited = replay_events(events, config)
    assert unlimited == replay_events(iter(events), config)
    assert unlimited == replay_events(events, replace(config, capacity=unlimited.peak_reserved))
    assert unlimited.peak_requested <= _least(events) <= unlimited.peak_allocated
    if config.expandable_segments:
        assert unlimited.peak_allocated == _least(events)


@given(events=EVENTS, config=SETTINGS, part=st.floats(0, 1, exclude_max=True))
def test_a_card_smaller_than_the_requests_runs_out(events, config, part):
    capacity = int(part * _least(events))
    replay = replay_events(events, replace(config, capacity=capacity))
    if _least(events) == 0:
        assert replay.fits
        return
    event = replay.oom.event
    assert replay.flushes[-1] == event
    assert replay.oom.requested == events[event][1] > 0
    assert replay.oom.missing > 0
    before = replay_events(events[:event], replace(config, capacity=capacity))
    assert before.fits
    assert before.flushes == replay.flushes[:-1]
    assert before.peak_allocated == replay.peak_allocated


@settings(max_examples=40)
@given(
    events=EVENTS,
    config=SETTINGS,
    threshold=st.sampled_from([0.0, 0.4]),
    start=st.sampled_from([(), (START,)]),
)
def test_a_granule_less_than_the_smallest_capacity_does_not_fit(events, config, threshold, start):
    config = replace(config, garbage_collection_threshold=threshold)
    smallest = smallest_capacity(events, config, start=start)
    assert smallest % (2 * MIB) == 0

    def fits(capacity):
        limited = replace(config, capacity=capacity)
        return replay_events(events, limited, start=start).fits

    assert fits(smallest)
    assert smallest == 0 or not fits(smallest - 2 * MIB)

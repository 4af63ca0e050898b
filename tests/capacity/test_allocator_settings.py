"""The settings of the caching allocator's model. None of them was checked against a real trace."""

import math

import pytest

from kronos.capacity.allocator import AllocatorSettings, CachingAllocator
from kronos.errors import ConfigError
from kronos.hardware import MIB


def _allocator(**settings):
    return CachingAllocator(AllocatorSettings(**settings))


def _cache(allocator, *sizes):
    """Leave a free segment for each of the sizes."""
    for block in [allocator.malloc(size) for size in sizes]:
        allocator.free(block)


# max_split_size


@pytest.mark.parametrize(
    ("cached", "size", "taken"),
    [
        (32, 30, False),  # oversize blocks are kept for oversize requests
        (30, 22, True),
        (32, 32, True),
        (50, 32, True),
        (52, 32, False),  # would waste 20 MiB
        (50, 31, False),
    ],
)
def test_who_may_take_an_oversize_block(cached, size, taken):
    allocator = _allocator(max_split_size=32 * MIB)
    _cache(allocator, cached * MIB)
    allocator.malloc(size * MIB)
    assert (allocator.reserved == cached * MIB) is taken


def test_an_oversize_request_is_given_its_block_whole():
    allocator = _allocator(max_split_size=32 * MIB)
    _cache(allocator, 40 * MIB)
    assert allocator.malloc(32 * MIB).size == 40 * MIB
    assert allocator.malloc(30 * MIB + 512).size == 30 * MIB + 512  # of a segment of 32


@pytest.mark.parametrize(
    ("cached", "size", "reserved", "flushes"),
    [
        ((40, 50), 20, 70, 0),  # the smaller is enough
        ((34, 62), 40, 74, 0),  # the larger alone
        ((34, 56), 58, 58, 0),  # none is enough alone
        ((34, 34), 68, 68, 0),  # just so
        ((34, 34, 30), 40, 70, 0),  # the 30 is not oversize and stays
        ((34, 30), 38, 38, 1),  # the oversize ones do not suffice
    ],
)
def test_oversize_blocks_go_before_the_rest_of_the_cache(cached, size, reserved, flushes):
    allocator = _allocator(max_split_size=32 * MIB, capacity=100 * MIB)
    _cache(allocator, *(each * MIB for each in cached))
    allocator.malloc(size * MIB)
    assert (allocator.reserved, allocator.flushes) == (reserved * MIB, flushes)


def test_no_more_oversize_blocks_go_than_needed():
    allocator = _allocator(max_split_size=32 * MIB, capacity=130 * MIB)
    _cache(allocator, 34 * MIB, 36 * MIB, 38 * MIB)
    allocator.malloc(70 * MIB)  # 38 and 36 make room for it
    assert (allocator.reserved, allocator.flushes) == (104 * MIB, 0)
    assert allocator.malloc(34 * MIB).size == 34 * MIB
    assert allocator.reserved == 104 * MIB


# garbage_collection_threshold


def _collecting():
    """Collects garbage above 100 MiB."""
    return _allocator(capacity=200 * MIB, garbage_collection_threshold=0.5)


@pytest.mark.parametrize("stream", [0, 1])
@pytest.mark.parametrize(
    ("between", "collected"), [(28, 20), (30, 20 + 22)], ids=["20 is enough", "20 is not"]
)
def test_the_oldest_unused_segments_are_collected_first(between, collected, stream):
    allocator = _collecting()
    older = allocator.malloc(20 * MIB, stream)
    younger, _ = (allocator.malloc(size * MIB) for size in (22, 24))
    allocator.free(older)
    allocator.malloc(26 * MIB)  # any stream's search makes it older
    allocator.free(younger)
    allocator.malloc(between * MIB)
    before = allocator.reserved
    assert before == (20 + 22 + 24 + 26 + between) * MIB
    allocator.malloc(32 * MIB)  # ages 3 and 2, average 2.5
    assert (allocator.reserved, allocator.flushes) == (before + (32 - collected) * MIB, 0)


@pytest.mark.parametrize(("size", "reserved"), [(80, 130), (82, 112)])
def test_nothing_is_collected_at_the_threshold_itself(size, reserved):
    allocator = _collecting()
    _cache(allocator, 20 * MIB)
    allocator.malloc(size * MIB)
    allocator.malloc(30 * MIB)
    assert allocator.reserved == reserved * MIB


def test_searches_for_small_blocks_age_no_large_one():
    allocator = _collecting()
    allocator.malloc(512)
    first, second, *_ = (allocator.malloc(size * MIB) for size in (20, 22, 24, 40))
    allocator.free(first)
    for _ in range(3):
        allocator.malloc(512)
    allocator.free(second)
    allocator.malloc(30 * MIB)  # both of age 1: both go
    assert allocator.reserved == (2 + 24 + 40 + 30) * MIB


def test_what_is_small_or_split_is_not_collected():
    allocator = _allocator(capacity=200 * MIB, garbage_collection_threshold=0.1)
    _cache(allocator, 512)
    allocator.malloc(5 * MIB)
    allocator.malloc(30 * MIB)
    assert allocator.reserved == 52 * MIB


# roundup_power2_divisions


@pytest.mark.parametrize(
    ("divisions", "size", "rounded"),
    [
        (2, 700, 1024),
        (2, 1025, 1536),
        (2, 4097, 6144),
        (4, 2048, 2048),
        (4, 2049, 2560),
        (4, 4097, 5120),
        (4, 8192, 8192),
        (4, 8193, 10240),
        (4, 4 * 1024 - 1, 4096),
        (4, 9 * MIB + 1, 10 * MIB),
        (8, 2049, 2560),  # up to 512 * 8 as ever
        (8, 5 * MIB + 1, 5 * MIB + MIB // 2),
    ],
)
def test_requests_are_rounded_to_steps_between_powers_of_two(divisions, size, rounded):
    assert _allocator(roundup_power2_divisions=divisions).malloc(size).size == rounded


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("capacity", -1, "capacity is a number of bytes from 0 on, got -1; leave it out"),
        ("max_split_size", 20 * MIB, r"above 20971520 bytes \(20 MiB\), got 20971520; leave"),
        ("max_split_size", 0, "got 0; leave it out"),
        ("garbage_collection_threshold", 1.0, "from 0 to below 1, got 1.0; 0 collects nothing"),
        ("garbage_collection_threshold", -0.1, "got -0.1;"),
        ("garbage_collection_threshold", math.nan, "got nan;"),
        ("roundup_power2_divisions", 1, "a power of two from 2 on, got 1; 0 rounds to 512"),
        ("roundup_power2_divisions", 6, "got 6;"),
        ("roundup_power2_divisions", -4, "got -4;"),
    ],
)
def test_a_setting_out_of_its_range_is_refused(setting, value, message):
    with pytest.raises(ConfigError, match=message):
        AllocatorSettings(**{setting: value})


def test_settings_at_the_ends_of_their_ranges():
    _allocator(capacity=0, max_split_size=20 * MIB + 1, garbage_collection_threshold=0.999)

"""The caching allocator's model: each rule at its edges, worked out by hand."""

import itertools

import pytest

from kronos.capacity.allocator import AllocatorSettings, CachingAllocator, OutOfMemory
from kronos.hardware import MIB


def _allocator(**settings):
    return CachingAllocator(AllocatorSettings(**settings))


def _cache(allocator, *sizes, stream=0):
    """Leave a free segment for each of the sizes; returns their addresses."""
    blocks = [allocator.malloc(size, stream) for size in sizes]
    addresses = [block.address for block in blocks]
    for block in blocks:
        allocator.free(block)
    return addresses


@pytest.mark.parametrize(
    ("size", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB - 511, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (12 * MIB, 12 * MIB, 12 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),  # a rest of 1 MiB is kept
        (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),
    ],
)
def test_a_first_request_is_rounded_and_has_a_segment(size, allocated, reserved):
    allocator = _allocator()
    block = allocator.malloc(size)
    assert (block.size, block.requested) == (allocated, size)
    assert (allocator.allocated, allocator.reserved) == (allocated, reserved)
    assert allocator.requested == size
    allocator.free(block)
    assert (allocator.allocated, allocator.reserved, allocator.requested) == (0, reserved, 0)
    peaks = allocator.peak_allocated, allocator.peak_reserved, allocator.peak_requested
    assert peaks == (allocated, reserved, size)


def test_a_small_segment_is_split_down_to_512():
    allocator = _allocator()
    blocks = [allocator.malloc(size) for size in (MIB, MIB - 512, 512)]
    assert [block.size for block in blocks] == [MIB, MIB - 512, 512]
    assert allocator.reserved == allocator.allocated == 2 * MIB


def test_nothing_asked_for_is_a_null_pointer():
    allocator = _allocator(capacity=0)
    assert allocator.malloc(0) is None
    allocator.free(None)
    assert (allocator.peak_allocated, allocator.peak_reserved) == (0, 0)


def test_what_no_caller_may_do():
    allocator = _allocator()
    block = allocator.malloc(1)
    allocator.free(block)
    with pytest.raises(AssertionError, match="freed once"):
        allocator.free(block)
    with pytest.raises(AssertionError, match="not negative"):
        allocator.malloc(-1)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_free_neighbours_become_one_block(order):
    allocator = _allocator()
    blocks = [allocator.malloc(5 * MIB) for _ in range(4)]
    for index in order:
        allocator.free(blocks[index])
    assert allocator.malloc(15 * MIB).size == 15 * MIB
    assert allocator.reserved == allocator.allocated == 20 * MIB


def test_the_smallest_block_that_fits_is_taken():
    allocator = _allocator()
    _, _, fitting = _cache(allocator, 14 * MIB, 10 * MIB, 12 * MIB)
    block = allocator.malloc(10 * MIB + 1)
    assert (block.address, block.size) == (fitting, 10 * MIB + 512)


def test_of_blocks_of_one_size_the_lowest_is_taken():
    allocator = _allocator()
    low, _, high, _ = (allocator.malloc(1024) for _ in range(4))
    address = low.address
    allocator.free(high)
    allocator.free(low)
    assert allocator.malloc(1024).address == address


def test_a_new_segment_lies_below_the_older():
    allocator = _allocator()
    old, new = _cache(allocator, 12 * MIB, 12 * MIB)
    assert new == old - 12 * MIB
    assert allocator.malloc(12 * MIB).address == new


def test_streams_and_pools_share_nothing():
    allocator = _allocator()
    _cache(allocator, 12 * MIB, 512, stream=1)
    allocator.malloc(12 * MIB, 2)
    allocator.malloc(MIB, 2)
    assert allocator.reserved == 28 * MIB
    allocator.malloc(12 * MIB, 1)
    allocator.malloc(MIB, 1)
    assert allocator.reserved == 28 * MIB
    _cache(allocator, 12 * MIB, stream=3)
    allocator.malloc(512, 3)  # the large block would do, were it of the same pool
    assert allocator.reserved == 42 * MIB


def test_empty_cache_gives_back_whole_segments_only():
    allocator = _allocator()
    _cache(allocator, 12 * MIB, 1)
    first, second = allocator.malloc(5 * MIB), allocator.malloc(5 * MIB)
    allocator.free(second)
    allocator.empty_cache()
    assert allocator.reserved == 12 * MIB  # both lie in what was a free segment of 12
    allocator.free(first)
    allocator.empty_cache()
    assert (allocator.reserved, allocator.flushes) == (0, 0)
    allocator.malloc(1)
    assert (allocator.reserved, allocator.peak_reserved) == (2 * MIB, 14 * MIB)


def test_a_full_card_is_flushed_over_all_streams_and_pools():
    allocator = _allocator(capacity=36 * MIB)
    _cache(allocator, 12 * MIB, stream=1)
    _cache(allocator, 512, stream=2)
    allocator.malloc(22 * MIB)
    assert (allocator.flushes, allocator.reserved) == (0, 36 * MIB)
    allocator.malloc(14 * MIB)
    assert (allocator.flushes, allocator.reserved) == (1, 36 * MIB)


def test_out_of_memory_says_how_much_is_missing():
    allocator = _allocator(capacity=50 * MIB + 5)
    allocator.malloc(30 * MIB + 1)  # 32 reserved
    _cache(allocator, 12 * MIB)
    with pytest.raises(OutOfMemory) as caught:
        allocator.malloc(19 * MIB - 3)
    error = caught.value
    assert (error.requested, error.missing) == (19 * MIB - 3, 2 * MIB - 5)
    assert (error.allocated, error.reserved, error.capacity) == (
        30 * MIB + 512,
        32 * MIB,
        50 * MIB + 5,
    )
    assert str(error) == (
        "19922941 bytes asked for, 2097147 missing: 33554432 of 52428805 reserved, "
        "31457792 of them allocated"
    )
    assert allocator.flushes == 1
    assert allocator.malloc(18 * MIB).size == 18 * MIB  # and life goes on

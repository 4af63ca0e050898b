"""Expandable segments: ranges that grow and shrink by granules, worked out by hand.

Addresses and sizes in the examples count MiB from the start of a range.
"""

import pytest

from kronos.capacity.allocator import AllocatorSettings, CachingAllocator, OutOfMemory
from kronos.capacity.expandable import RANGE
from kronos.capacity.start import Segment
from kronos.hardware import MIB


class Mebi:
    """An allocator with expandable segments that is spoken to in MiB."""

    def __init__(self, capacity=None, **settings):
        self.allocator = CachingAllocator(
            AllocatorSettings(
                expandable_segments=True,
                capacity=None if capacity is None else int(capacity * MIB),
                **settings,
            )
        )
        self.start = None

    def malloc(self, size, stream=0):
        block = self.allocator.malloc(int(size * MIB), stream)
        if self.start is None:
            self.start = block.address
        return block

    def at(self, block):
        return (block.address - self.start) / MIB

    def free(self, *blocks):
        for block in blocks:
            self.allocator.free(block)

    def empty_cache(self):
        self.allocator.empty_cache()

    @property
    def reserved(self):
        return self.allocator.reserved / MIB

    @property
    def allocated(self):
        return self.allocator.allocated / MIB


@pytest.mark.parametrize(
    ("sizes", "reserved"),
    [
        ([0.5], 2),
        ([1, 1], 2),
        ([1, 1, 0.0001], 4),
        ([1.5], 20),
        ([20], 20),
        ([20.001], 40),
        ([16, 16], 40),  # the second begins in what the first left over
        ([16, 16, 8], 40),
        ([16, 16, 8.001], 60),
        ([19.5, 20.25], 40),  # 20.25 MiB are not first rounded up to a segment
        ([16, 0.5], 22),  # small and large do not mix
    ],
)
def test_a_range_grows_by_the_granules_that_are_missing(sizes, reserved):
    mebi = Mebi()
    for size in sizes:
        mebi.malloc(size)
    assert mebi.reserved == reserved


def test_blocks_lie_side_by_side_without_a_tail():
    mebi = Mebi()
    blocks = [mebi.malloc(size) for size in (12.5, 7, 0.5 + 1, 100)]
    assert [mebi.at(block) for block in blocks] == [0, 12.5, 19.5, 21]
    assert (mebi.allocated, mebi.reserved) == (121, 140)


def test_each_stream_has_a_range_of_its_own():
    mebi = Mebi()
    blocks = [mebi.malloc(5, stream) for stream in (0, 1, 0)]
    assert mebi.reserved == 40
    assert mebi.at(blocks[2]) == 5
    assert blocks[1].address + RANGE <= blocks[0].address


def test_the_end_of_the_range_is_kept_for_what_fits_nowhere_else():
    mebi = Mebi()
    blocks = [mebi.malloc(size) for size in (8, 2, 7, 2, 6, 2, 5, 2)]  # 6 are left over
    mebi.free(*blocks[::2])
    again = [mebi.malloc(5) for _ in range(5)]
    # 5 fits exactly; of the two 6 the lower; then past the 6 at the end to the 7 and the 8.
    assert [mebi.at(block) for block in again] == [27, 19, 10, 0, 34]
    assert mebi.reserved == 40


@pytest.mark.parametrize(("other", "at"), [(29.5, 50), (30, 10)])
def test_a_block_before_a_hole_counts_with_the_hole(other, at):
    mebi = Mebi()
    _, hole, _, behind, _ = (mebi.malloc(size) for size in (10, 30, 10, other, 20))
    mebi.free(hole)
    mebi.empty_cache()  # 10 to 20 is free, 20 to 40 unmapped
    mebi.free(behind)
    assert mebi.at(mebi.malloc(8)) == at


def test_granules_that_are_free_as_a_whole_are_unmapped():
    mebi = Mebi()
    first, second = mebi.malloc(5), mebi.malloc(50)
    mebi.free(second)
    mebi.empty_cache()  # 5 to 60 is free
    assert mebi.reserved == 20
    assert mebi.at(mebi.malloc(10)) == 5
    assert mebi.at(mebi.malloc(30)) == 15  # 5 left over, and 25 of new granules behind
    assert mebi.reserved == 60
    mebi.free(first)
    mebi.empty_cache()
    assert mebi.reserved == 60


def test_small_granules_are_of_2_MiB():
    mebi = Mebi()
    blocks = [mebi.malloc(0.75) for _ in range(7)]  # 0.75 are left of 6
    mebi.free(*blocks[:5])
    mebi.empty_cache()  # 0 to 3.75 is free
    assert mebi.reserved == 4
    assert [mebi.at(mebi.malloc(size)) for size in (0.75, 1, 0.75)] == [2, 2.75, 5.25]


def test_the_lowest_hole_with_room_is_mapped_first():
    mebi = Mebi()
    blocks = [mebi.malloc(20) for _ in range(6)]
    mebi.free(blocks[1], blocks[2], blocks[4])
    mebi.empty_cache()
    assert mebi.reserved == 60  # unmapped are 20 to 60, 80 to 100, and what is behind 120
    sizes = (20, 21, 1.5, 20, 20)
    assert [mebi.at(mebi.malloc(size)) for size in sizes] == [20, 120, 141, 40, 80]
    assert mebi.reserved == 160


def test_a_hole_is_filled_together_with_what_is_free_around_it():
    mebi = Mebi()
    _, middle, _ = (mebi.malloc(size) for size in (10, 40, 10))
    mebi.free(middle)
    mebi.empty_cache()
    assert mebi.reserved == 40  # 20 to 40 is unmapped, 10 to 20 and 40 to 50 are free
    assert mebi.at(mebi.malloc(35)) == 10
    assert mebi.reserved == 60
    assert mebi.at(mebi.malloc(5)) == 45


def test_a_range_without_memory_is_given_up():
    mebi = Mebi()
    mebi.free(mebi.malloc(30), mebi.malloc(30))
    mebi.empty_cache()
    assert mebi.reserved == 0
    assert mebi.at(mebi.malloc(5)) == -RANGE / MIB


def test_a_request_larger_than_a_range_has_a_larger_one():
    mebi = Mebi()
    size = RANGE // MIB + 3
    assert mebi.malloc(size).size == size * MIB
    assert mebi.reserved == size + 17


def test_a_full_card_has_all_free_granules_unmapped():
    mebi = Mebi(capacity=60)
    mebi.free(mebi.malloc(20, stream=1), mebi.malloc(1, stream=2))
    mebi.malloc(30)
    assert (mebi.reserved, mebi.allocator.flushes) == (40, 1)
    mebi.malloc(28)  # 10 are left over, so that one granule more does
    assert (mebi.reserved, mebi.allocator.flushes) == (60, 1)


def test_out_of_memory_says_what_is_missing_for_the_granules():
    mebi = Mebi(capacity=50)
    mebi.malloc(30)
    with pytest.raises(OutOfMemory) as caught:
        mebi.malloc(15)
    error = caught.value
    assert (error.requested, error.missing) == (15 * MIB, 10 * MIB)
    assert (error.allocated, error.reserved) == (30 * MIB, 40 * MIB)


@pytest.mark.parametrize("capacity", [70, 80])
def test_memory_is_mapped_up_to_where_the_card_refuses(capacity):
    mebi = Mebi(capacity=capacity)
    _, second, third = (mebi.malloc(20) for _ in range(3))
    mebi.free(second)
    mebi.empty_cache()
    mebi.free(third)
    if capacity == 80:
        mebi.malloc(50)  # 20 in the hole, 20 that are free behind it, 20 more at the end
        assert (mebi.reserved, mebi.allocator.flushes) == (80, 0)
    else:
        with pytest.raises(OutOfMemory) as caught:
            mebi.malloc(50)
        assert (mebi.reserved, caught.value.missing) == (20, 10 * MIB)
        assert mebi.allocator.peak_reserved == 60 * MIB


def test_garbage_collection_leaves_ranges_alone():
    mebi = Mebi(capacity=100, garbage_collection_threshold=0.1)
    mebi.free(mebi.malloc(20))
    mebi.malloc(1, stream=1)
    assert mebi.reserved == 22


# Segments that were there before, in MiB from an odd address on.

BEGIN = 2**40 + 512


def _mapped(address, size, *live):
    return Segment(
        address=BEGIN + address * MIB,
        size=size * MIB,
        stream=0,
        small=False,
        live=tuple((BEGIN + at * MIB, length * MIB, length * MIB - 1) for at, length in live),
        expandable=True,
    )


def _loaded(*segments):
    mebi = Mebi()
    mebi.start = BEGIN
    return mebi, mebi.allocator.load(segments)


def test_a_range_found_on_the_card_grows_on():
    mebi, live = _loaded(_mapped(1060, 20, (1060, 20)), _mapped(1000, 40, (1000, 30)))
    assert (mebi.reserved, mebi.allocated) == (60, 50)
    assert mebi.allocator.requested == 50 * MIB - 2
    assert mebi.at(mebi.malloc(10)) == 1030
    assert [mebi.at(mebi.malloc(size)) for size in (5, 30, 15)] == [1040, 1080, 1045]
    assert mebi.reserved == 120
    mebi.free(*live)
    mebi.empty_cache()
    assert mebi.reserved == 80  # 1000 to 1020 and 1060 to 1080 are unmapped


def test_mapped_memory_told_in_two_parts_is_one():
    mebi, _ = _loaded(_mapped(1000, 20, (1000, 10)), _mapped(1020, 20))
    assert mebi.at(mebi.malloc(30)) == 1010
    assert mebi.reserved == 40


@pytest.mark.parametrize(("away", "joined"), [(RANGE // MIB - 20, True), (RANGE // MIB, False)])
def test_segments_far_apart_are_of_two_ranges(away, joined):
    _, live = _loaded(_mapped(0, 20, (0, 20)), _mapped(away, 20, (away, 20)))
    assert (live[1].prev is not None) is joined
    assert live[1].base == BEGIN + (0 if joined else RANGE)


def test_a_segment_of_fixed_size_is_split_and_released_as_ever():
    mebi, live = _loaded(
        Segment(
            address=BEGIN + 100 * MIB,
            size=12 * MIB,
            stream=0,
            small=False,
            live=((BEGIN + 100 * MIB, MIB, MIB),),
        )
    )
    block = mebi.malloc(10.75)
    assert (mebi.at(block), block.size) == (101, 10.75 * MIB)  # 0.25 are cut off
    mebi.free(*live, block)
    mebi.empty_cache()
    assert mebi.reserved == 0

"""The allocator's model under any stream: its books balance, and a slow twin does the same."""

import contextlib
import itertools
import math
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kronos.capacity.allocator import AllocatorSettings, CachingAllocator, OutOfMemory
from kronos.capacity.start import Segment
from kronos.hardware import MIB


def _allocator(**settings):
    return CachingAllocator(AllocatorSettings(**settings))


SIZES = st.one_of(
    st.integers(1, 3 * MIB),
    st.integers(1, 40 * MIB),
    st.sampled_from([512, MIB, 2 * MIB, 10 * MIB, 20 * MIB, 32 * MIB]).flatmap(
        lambda edge: st.integers(edge - 511, edge + 513)
    ),
)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("malloc"), SIZES, st.integers(0, 1)),
        st.tuples(st.just("malloc"), SIZES, st.just(0)),
        st.tuples(st.just("free"), st.integers(0, 99), st.just(0)),
        st.tuples(st.just("empty"), st.just(0), st.just(0)),
    ),
    max_size=50,
)


def _chain(block):
    while block.prev is not None:
        block = block.prev
    while block is not None:
        yield block
        block = block.next


def _check_books(allocator, live):
    """Everything that holds of any state, from the blocks alone."""
    pools = allocator.pools.values()
    free = {id(block) for pool in pools for block in (*pool.blocks, *pool.unmapped)}
    heads = {}
    for block in (*live, *(block for pool in pools for block in (*pool.blocks, *pool.unmapped))):
        heads[id(next(_chain(block)))] = next(_chain(block))
    seen, mapped = [], 0
    for head in heads.values():
        chain = list(_chain(head))
        seen += chain
        mapped += sum(block.size for block in chain if block.mapped)
        for block, following in itertools.pairwise(chain):
            assert following.prev is block
            assert following.address == block.address + block.size
            assert not (block.free and following.free and block.mapped == following.mapped)
        if head.base is None:
            assert all(block.mapped for block in chain)
            assert sum(block.size for block in chain) % (2 * MIB) == 0
        else:
            granule = 2 * MIB if head.pool.small else 20 * MIB
            for is_mapped, run in itertools.groupby(chain, key=lambda block: block.mapped):
                assert sum(block.size for block in run) % granule == 0, is_mapped
    assert {id(block) for block in seen if block.free} == free
    assert {id(block) for block in seen if not block.free} == {id(block) for block in live}
    assert all(block.size % 512 == 0 for block in seen)
    assert all(block.size >= block.requested >= (not block.free) for block in seen)
    for pool in pools:
        assert pool.keys == sorted((block.size, block.address) for block in pool.blocks)
        assert pool.keys == [(block.size, block.address) for block in pool.blocks]
    spans = sorted((block.address, block.size) for block in seen)
    assert all(at + size <= behind for (at, size), (behind, _) in itertools.pairwise(spans))
    assert allocator.allocated == sum(block.size for block in live)
    assert allocator.requested == sum(block.requested for block in live)
    assert allocator.allocated <= allocator.reserved == mapped


@given(
    operations=OPERATIONS,
    capacity=st.none() | st.integers(0, 120 * MIB),
    expandable=st.booleans(),
    max_split=st.sampled_from([None, 21 * MIB, 30 * MIB]),
    threshold=st.sampled_from([0.0, 0.3]),
    divisions=st.sampled_from([0, 4]),
)
def test_the_books_balance_after_every_operation(
    operations, capacity, expandable, max_split, threshold, divisions
):
    allocator = _allocator(
        capacity=capacity,
        expandable_segments=expandable,
        max_split_size=max_split,
        garbage_collection_threshold=threshold,
        roundup_power2_divisions=divisions,
    )
    live, highest = [], [0, 0, 0]
    for kind, number, stream in operations:
        if kind == "malloc":
            with contextlib.suppress(OutOfMemory):
                live.append(allocator.malloc(number, stream))
        elif kind == "empty":
            allocator.empty_cache()
        elif live:
            allocator.free(live.pop(number % len(live)))
        _check_books(allocator, live)
        assert capacity is None or allocator.reserved <= capacity
        now = allocator.allocated, allocator.reserved, allocator.requested
        highest = list(map(max, highest, now))
        peaks = [allocator.peak_allocated, allocator.peak_reserved, allocator.peak_requested]
        assert peaks[::2] == highest[::2]
        assert peaks[1] >= highest[1]  # mapped in part before the card was full
    for block in live:
        allocator.free(block)
    allocator.empty_cache()
    assert (allocator.allocated, allocator.reserved, allocator.requested) == (0, 0, 0)
    assert not any(pool.blocks or pool.unmapped for pool in allocator.pools.values()) or expandable


class SlowTwin:
    """The allocator without its settings, by lists that are read through every time."""

    def __init__(self, capacity):
        self.capacity = math.inf if capacity is None else capacity
        self.segments = defaultdict(list)  # (stream, small, address): [[size, key or None], ...]
        self.lowest = self.flushes = 0

    @property
    def reserved(self):
        return sum(size for blocks in self.segments.values() for size, _ in blocks)

    @property
    def allocated(self):
        blocks = itertools.chain.from_iterable(self.segments.values())
        return sum(size for size, key in blocks if key is not None)

    def malloc(self, key, size, stream):
        size = math.ceil(size / 512) * 512
        small = size <= MIB
        if not self._fitting(size, stream, small) and not self._grow(size, stream, small):
            self.flushes += 1
            self.empty_cache()
            if not self._grow(size, stream, small):
                return False
        _, _, segment, index = min(self._fitting(size, stream, small))
        blocks = self.segments[segment]
        rest = blocks[index][0] - size
        if rest > (0 if small else MIB):
            blocks[index : index + 1] = [[size, key], [rest, None]]
        else:
            blocks[index][1] = key
        return True

    def _fitting(self, size, stream, small):
        return [
            (block, segment[2] + sum(before for before, _ in blocks[:index]), segment, index)
            for segment, blocks in self.segments.items()
            for index, (block, key) in enumerate(blocks)
            if segment[:2] == (stream, small) and key is None and block >= size
        ]

    def _grow(self, size, stream, small):
        new = 2 if small else 20 if size < 10 * MIB else math.ceil(size / (2 * MIB)) * 2
        if self.reserved + new * MIB > self.capacity:
            return False
        self.lowest -= new * MIB
        self.segments[stream, small, self.lowest] = [[new * MIB, None]]
        return True

    def free(self, key):
        for segment, blocks in self.segments.items():
            merged = []
            for size, owner in blocks:
                owner = None if owner == key else owner
                if merged and merged[-1][1] is None and owner is None:
                    merged[-1][0] += size
                else:
                    merged.append([size, owner])
            self.segments[segment] = merged

    def empty_cache(self):
        for segment, blocks in list(self.segments.items()):
            if len(blocks) == 1 and blocks[0][1] is None:
                del self.segments[segment]


@given(operations=OPERATIONS, capacity=st.none() | st.integers(20 * MIB, 120 * MIB))
def test_any_stream_goes_as_with_the_slow_twin(operations, capacity):
    allocator, twin = _allocator(capacity=capacity), SlowTwin(capacity)
    live = {}
    for key, (kind, number, stream) in enumerate(operations):
        if kind == "malloc":
            with contextlib.suppress(OutOfMemory):
                live[key] = allocator.malloc(number, stream)
            assert twin.malloc(key, number, stream) is (key in live)
        elif kind == "empty":
            allocator.empty_cache()
            twin.empty_cache()
        elif live:
            freed = list(live)[number % len(live)]
            allocator.free(live.pop(freed))
            twin.free(freed)
        assert allocator.allocated == twin.allocated
        assert allocator.reserved == twin.reserved
        assert allocator.flushes == twin.flushes


# Segments that were there before.


def _segment(address, size, *live, stream=0, small=False, expandable=False):
    return Segment(
        address=address, size=size, stream=stream, small=small, live=live, expandable=expandable
    )


def test_segments_found_on_the_card_are_gone_on_with():
    allocator = _allocator()
    low, high = allocator.load(
        [
            _segment(100 * MIB, 20 * MIB, (104 * MIB, 4 * MIB, 4 * MIB - 7), stream=3),
            _segment(40 * MIB, 2 * MIB, (40 * MIB, 512, 1), stream=3, small=True),
            _segment(60 * MIB, 12 * MIB),
        ]
    )
    assert sorted([low.address, high.address]) == [40 * MIB, 104 * MIB]
    assert (allocator.allocated, allocator.peak_allocated) == (4 * MIB + 512, 4 * MIB + 512)
    assert (allocator.reserved, allocator.peak_reserved) == (34 * MIB, 34 * MIB)
    assert allocator.requested == allocator.peak_requested == 4 * MIB - 6
    _check_books(allocator, [low, high])
    assert allocator.malloc(4 * MIB, 3).address == 100 * MIB  # in front of the live block
    assert allocator.malloc(12 * MIB, 3).address == 108 * MIB  # behind it
    assert allocator.malloc(1024, 3).address == 40 * MIB + 512
    assert allocator.malloc(12 * MIB).address == 60 * MIB
    assert allocator.malloc(12 * MIB).address == 28 * MIB  # new, below all


@pytest.mark.parametrize(("capacity", "flushes"), [(34, 0), (33, 1), (22, 1)])
def test_what_is_cached_beyond_the_capacity_is_given_back(capacity, flushes):
    allocator = _allocator(capacity=capacity * MIB)
    allocator.load([_segment(0, 22 * MIB, (0, 512, 1)), _segment(60 * MIB, 12 * MIB)])
    assert allocator.flushes == flushes
    assert allocator.reserved == allocator.peak_reserved == (22 if flushes else 34) * MIB


def test_a_start_that_does_not_fit_is_out_of_memory():
    with pytest.raises(OutOfMemory) as caught:
        _allocator(capacity=21 * MIB).load([_segment(0, 22 * MIB, (0, 512, 1))])
    assert (caught.value.requested, caught.value.missing) == (0, MIB)

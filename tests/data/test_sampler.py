"""The order of an epoch: each window once, whatever the ranks, batches and resumptions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kronos.data import EpochSampler
from kronos.errors import ConfigError


@st.composite
def _samplers(draw):
    """Arguments of a sampler whose global batch fits its epoch."""
    n = draw(st.integers(1, 60))
    samples = draw(st.none() | st.integers(1, n))
    most = samples or n
    ranks = draw(st.integers(1, min(4, most)))
    return {
        "n": n,
        "batch_size": draw(st.integers(1, most // ranks)),
        "seed": draw(st.integers(0, 2**64)),
        "samples": samples,
        "ranks": ranks,
        "drop_last": draw(st.booleans()),
    }


@settings(max_examples=200)
@given(_samplers(), st.integers(0, 50))
def test_an_epoch_shows_each_number_once_over_all_ranks(arguments, epoch):
    sampler = EpochSampler(**arguments)
    shown = [list(sampler.batches(epoch, rank=rank)) for rank in range(sampler.ranks)]
    assert {len(batches) for batches in shown} == {sampler.batches_per_epoch}
    drawn = np.concatenate([batch for batches in shown for batch in batches])
    assert drawn.dtype == np.int64
    assert len(set(drawn.tolist())) == len(drawn)
    assert set(drawn.tolist()) <= set(range(sampler.n))
    together = sampler.batch_size * sampler.ranks
    if sampler.drop_last:
        assert len(drawn) == sampler.samples - sampler.samples % together
        assert {len(batch) for batches in shown for batch in batches} == {sampler.batch_size}
    else:
        assert len(drawn) == sampler.samples
        if arguments["samples"] is None:
            assert sorted(drawn.tolist()) == list(range(sampler.n))
        last = [len(batches[-1]) for batches in shown]
        assert max(last) - min(last) <= 1, "the rest of an epoch is shared out evenly"
        assert {len(batch) for batches in shown for batch in batches[:-1]} <= {sampler.batch_size}


@settings(max_examples=100)
@given(_samplers(), st.integers(0, 50))
def test_ranks_and_a_resume_change_nothing_but_who_sees_what(arguments, epoch):
    sampler = EpochSampler(**arguments)
    batch = sampler.batch_size * sampler.ranks
    alone = EpochSampler(**(arguments | {"ranks": 1, "batch_size": batch}))
    shares = [list(sampler.batches(epoch, rank=rank)) for rank in range(sampler.ranks)]
    for whole, parts in zip(alone.batches(epoch), zip(*shares, strict=True), strict=True):
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    for first in range(sampler.batches_per_epoch + 1):
        rest = list(sampler.batches(epoch, first=first))
        assert len(rest) == sampler.batches_per_epoch - first
        for one, other in zip(rest, shares[0][first:], strict=True):
            np.testing.assert_array_equal(one, other)


def test_epochs_and_seeds_differ():
    orders = {
        (seed, epoch): tuple(EpochSampler(50, 7, seed).permutation(epoch).tolist())
        for seed in (0, 1, 5, 5 + 2**32)
        for epoch in (0, 1, 2)
    }
    assert len(set(orders.values())) == len(orders)
    assert tuple(range(50)) not in orders.values()


def test_short_epochs_show_other_windows_and_in_time_all():
    sampler = EpochSampler(50, 5, 0, samples=10)
    epochs = [frozenset(sampler.permutation(epoch).tolist()) for epoch in range(60)]
    assert {len(epoch) for epoch in epochs} == {10}
    assert len(set(epochs)) == 60
    assert frozenset.union(*epochs) == frozenset(range(50))


def test_every_place_of_an_epoch_may_hold_any_window():
    """A true shuffle: over 4,000 epochs each of 6 windows is first and last about equally often."""
    sampler = EpochSampler(6, 1, 0)
    orders = np.stack([sampler.permutation(epoch) for epoch in range(4000)])
    for place in (0, 5):
        counts = np.bincount(orders[:, place], minlength=6)
        assert ((counts - 4000 / 6) ** 2 / (4000 / 6)).sum() < 20.5  # chi-squared, 5 degrees, 0.1 %


def test_batch_size_changes_the_cut_not_the_order():
    small = np.concatenate(list(EpochSampler(50, 3, 9).batches(4)))
    large = np.concatenate(list(EpochSampler(50, 50, 9).batches(4)))
    np.testing.assert_array_equal(small, large)


def test_T16_batch_larger_than_the_windows_names_both_numbers():
    EpochSampler(31, 31, 0)
    with pytest.raises(ConfigError) as caught:
        EpochSampler(31, 32, 0)
    assert str(caught.value) == (
        "batch_size 32 is larger than the number of windows, 31; lower batch_size or give more bars"
    )


@pytest.mark.parametrize(
    ("n", "batch_size", "seed", "options", "words"),
    [
        (10, 0, 0, {}, "batch_size must be at least 1, got 0"),
        (0, 1, 0, {}, "batch_size 1 is larger than the number of windows, 0"),
        (10, 2, -1, {}, "seed must be at least 0, got -1"),
        (10, 2, 0, {"ranks": 0}, "ranks must be at least 1, got 0"),
        (10, 2, 0, {"samples": 11}, "samples_per_epoch must be from 1 to the number of windows, 10; got 11"),  # noqa: E501
        (10, 2, 0, {"samples": 0}, "samples_per_epoch must be from 1 to the number of windows, 10; got 0"),  # noqa: E501
        (10, 3, 0, {"samples": 5, "ranks": 2}, "batch_size 3 on 2 ranks is larger than the number of windows, 10, of which an epoch shows 5"),  # noqa: E501
        (10, 6, 0, {"ranks": 2}, "batch_size 6 on 2 ranks is larger than the number of windows, 10;"),  # noqa: E501
    ],
)  # fmt: skip
def test_T16_sampler_settings_out_of_range(n, batch_size, seed, options, words):
    with pytest.raises(ConfigError) as caught:
        EpochSampler(n, batch_size, seed, **options)
    assert words in str(caught.value)

"""The split in time and the order of an epoch, as properties over all their windows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kronos.data import EpochSampler, split_by_time
from kronos.errors import ConfigError


def bars_of(start, window, horizon):
    return set(range(start, start + window + horizon + 1))


def targets_of(start, window, horizon):
    return set(range(start + window, start + window + horizon + 1))


@st.composite
def _splits_with_both_sides(draw):
    """window, horizon, n_bars and a boundary that leaves each side at least one window."""
    window, horizon = draw(st.integers(1, 8)), draw(st.integers(1, 6))
    n_train = draw(st.integers(window + horizon + 1, 40))
    n_validation = draw(st.integers(horizon + 1, 40))
    return window, horizon, n_train + n_validation, n_train


@settings(max_examples=200)
@given(_splits_with_both_sides())
def test_no_validation_target_is_in_a_training_sample(drawn):
    window, horizon, n_bars, boundary = drawn
    split = split_by_time(n_bars, window=window, horizon=horizon, boundary=boundary)
    assert split.boundary == boundary
    trained = set().union(*(bars_of(start, window, horizon) for start in split.train))
    asked = set().union(*(targets_of(start, window, horizon) for start in split.validation))
    assert not trained & asked
    assert max(trained) < boundary <= min(asked)
    assert max(asked) == n_bars - 1, "no bar at the end is wasted"
    # each window is in the one part whose rule it meets, and in neither if it meets none
    for start in range(n_bars - window - horizon):
        assert (start in split.train) == (max(bars_of(start, window, horizon)) < boundary)
        assert (start in split.validation) == (min(targets_of(start, window, horizon)) >= boundary)


@settings(max_examples=200)
@given(st.integers(1, 8), st.integers(1, 6), st.integers(0, 60), st.integers(0, 70))
def test_T4_a_side_without_a_window_is_an_error(window, horizon, n_bars, boundary):
    """Never an empty range: an error exactly where one side has no window."""
    starts = range(max(0, n_bars - window - horizon))
    trains = any(max(bars_of(start, window, horizon)) < boundary for start in starts)
    validates = any(min(targets_of(start, window, horizon)) >= boundary for start in starts)
    if trains and validates:
        split = split_by_time(n_bars, window=window, horizon=horizon, boundary=boundary)
        assert len(split.train) > 0
        assert len(split.validation) > 0
    else:
        with pytest.raises(ConfigError, match=r"no window to (train|validate) on"):
            split_by_time(n_bars, window=window, horizon=horizon, boundary=boundary)


def test_split_by_share():
    split = split_by_time(100, window=10, horizon=3, validation_share=0.29)
    assert split.boundary == 71
    assert split.train == range(58)
    assert split.validation == range(61, 87)


def test_T4_too_few_rows_name_the_numbers():
    with pytest.raises(ConfigError) as caught:
        split_by_time(100, window=10, horizon=3, boundary=98)
    assert str(caught.value).startswith(
        "no window to validate on: one takes 14 bars (window 10 + horizon 3 + 1), and of 100 bars "
        "split at 98 it may use 12; move the boundary"
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "give either validation_share or boundary"),
        ({"validation_share": 0.2, "boundary": 50}, "give either validation_share or boundary"),
        ({"validation_share": 0.0}, "validation_share must be between 0 and 1, got 0.0"),
        ({"validation_share": 1.0}, "validation_share must be between 0 and 1, got 1.0"),
        ({"boundary": -5}, "no window to train on"),
        ({"boundary": 50, "window": 0}, "window must be at least 1, got 0"),
    ],
)
def test_split_settings_out_of_range(options, words):
    with pytest.raises(ConfigError) as caught:
        split_by_time(100, **{"window": 10, "horizon": 3, **options})
    assert words in str(caught.value)


@settings(max_examples=100)
@given(st.integers(1, 60), st.data(), st.integers(0, 2**64), st.integers(0, 50), st.booleans())
def test_an_epoch_is_a_permutation(n, data, seed, epoch, drop_last):
    batch_size = data.draw(st.integers(1, n))
    sampler = EpochSampler(n, batch_size, seed, drop_last=drop_last)
    batches = list(sampler.batches(epoch))
    assert len(batches) == sampler.batches_per_epoch
    assert min(map(len, batches)) > 0
    drawn = np.concatenate(batches)
    assert drawn.dtype == np.int64
    if drop_last:
        assert {len(batch) for batch in batches} == {batch_size}
        assert len(drawn) == n - n % batch_size
        assert len(set(drawn.tolist())) == len(drawn)
        assert set(drawn.tolist()) <= set(range(n))
    else:
        assert {len(batch) for batch in batches[:-1]} <= {batch_size}
        assert sorted(drawn.tolist()) == list(range(n))
    again = EpochSampler(n, batch_size, seed, drop_last=drop_last).batches(epoch)
    for batch, same in zip(batches, again, strict=True):
        np.testing.assert_array_equal(batch, same)


def test_epochs_and_seeds_differ():
    orders = {
        (seed, epoch): tuple(EpochSampler(50, 7, seed).permutation(epoch).tolist())
        for seed in (0, 1, 5, 5 + 2**32)
        for epoch in (0, 1, 2)
    }
    assert len(set(orders.values())) == len(orders)
    assert tuple(range(50)) not in orders.values()


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
    ("n", "batch_size", "seed", "words"),
    [
        (10, 0, 0, "batch_size must be at least 1, got 0"),
        (0, 1, 0, "batch_size 1 is larger than the number of windows, 0"),
        (10, 2, -1, "seed must be at least 0, got -1"),
    ],
)
def test_sampler_settings_out_of_range(n, batch_size, seed, words):
    with pytest.raises(ConfigError) as caught:
        EpochSampler(n, batch_size, seed)
    assert words in str(caught.value)

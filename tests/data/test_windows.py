"""Windows: the gather against a slow restatement, and what normalisation may look at."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kronos.data import BarArrays, Windows
from kronos.data.timestamps import stamp_columns
from kronos.errors import ConfigError, DataError


def arrays_of(n, seed=0, scale=3.0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, 6)) * scale + 100.0
    stamps = rng.integers(0, 7, size=(n, 5))
    return BarArrays(features, stamps)


def frame_of(n):
    close = 50.0 + np.arange(n)
    return pd.DataFrame(
        {"open": close, "high": close + 1, "low": close - 1, "close": close, "volume": 7.0},
        index=pd.date_range("2024-02-28 23:55", periods=n, freq="5min"),
    )


def slow_item(bars, window, horizon, start, clip):
    """One sample restated bar by bar in Python floats."""
    length = window + horizon + 1
    out = np.empty((length, 6), dtype=np.float32)
    for column in range(6):
        values = [float(bars.features[start + bar, column]) for bar in range(length)]
        mean = sum(values[:window]) / window
        variance = sum((value - mean) ** 2 for value in values[:window]) / window
        for bar, value in enumerate(values):
            score = (value - mean) / (variance**0.5 + 1e-5)
            out[bar, column] = min(max(score, -clip), clip)
    return out


@settings(max_examples=60)
@given(
    window=st.integers(1, 9),
    horizon=st.integers(1, 5),
    extra=st.integers(0, 12),
    seed=st.integers(0, 5),
    clip=st.sampled_from([5.0, 0.7]),
    data=st.data(),
)
def test_gather_equals_one_item_at_a_time(window, horizon, extra, seed, clip, data):
    n = window + horizon + 1 + extra
    bars = arrays_of(n, seed)
    windows = Windows(bars, window, horizon, clip=clip)
    assert len(windows) == extra + 1
    indices = data.draw(st.lists(st.integers(0, extra), min_size=1, max_size=6))
    batch = windows.batch(indices)
    assert batch.features.shape == (len(indices), window + horizon + 1, 6)
    assert batch.features.dtype == np.float32
    assert batch.stamps.dtype == np.int64
    for place, start in enumerate(indices):
        expected = slow_item(bars, window, horizon, start, clip)
        np.testing.assert_allclose(batch.features[place], expected, rtol=1e-4, atol=1e-5)
        stamps = bars.stamps[start : start + window + horizon + 1]
        np.testing.assert_array_equal(batch.stamps[place], stamps)


def test_T1_statistics_come_from_the_lookback_alone():
    bars = arrays_of(40)
    changed = bars.features.copy()
    changed[20:] *= 1.37
    before = Windows(bars, 20, 5).batch([0]).features[0]
    after = Windows(BarArrays(changed, bars.stamps), 20, 5).batch([0]).features[0]
    np.testing.assert_array_equal(before[:20], after[:20])
    assert not np.array_equal(before[20:], after[20:])
    assert before[:20].mean(axis=0) == pytest.approx(np.zeros(6), abs=1e-6)
    assert before[:20].std(axis=0) == pytest.approx(np.ones(6), abs=1e-4)


def test_T15_exactly_one_window_is_one_sample():
    windows = Windows(arrays_of(26), window=20, horizon=5)
    assert len(windows) == 1
    assert windows.batch([0]).features.shape == (1, 26, 6)


def test_T15_one_bar_less_names_both_numbers():
    with pytest.raises(DataError) as caught:
        Windows(arrays_of(25), window=20, horizon=5)
    assert str(caught.value) == (
        "one sample takes 26 bars (window 20 + horizon 5 + 1), got 25; "
        "give more bars, or a smaller window or horizon"
    )


def test_P6_flat_bars_are_exactly_zero():
    flat = BarArrays(np.full((406, 6), 50000.1), np.zeros((406, 5), dtype=np.int64))
    assert (Windows(flat, window=400, horizon=5).batch([0]).features == 0.0).all()


def test_a_move_after_a_flat_lookback_is_clipped_not_infinite():
    features = np.full((26, 6), 50000.1)
    features[20:, 3] += 1.0
    features[20:, 4] -= 1.0
    scaled = Windows(BarArrays(features, np.zeros((26, 5), dtype=np.int64)), 20, 5).batch([0])
    assert (scaled.features[0, 20:, 3] == 5.0).all()
    assert (scaled.features[0, 20:, 4] == -5.0).all()


@pytest.mark.parametrize("index", [-1, 15, 99])
def test_index_outside_the_windows(index):
    windows = Windows(arrays_of(40), 20, 5)
    assert len(windows) == 15
    with pytest.raises(IndexError, match=rf"window {index} is outside 0\.\.14 of 15 windows"):
        windows.batch([0, index])


@pytest.mark.parametrize(
    ("window", "horizon", "clip", "words"),
    [
        (0, 5, 5.0, "window must be at least 1, got 0"),
        (5, 0, 5.0, "horizon must be at least 1, got 0"),
        (5, 5, 0.0, "clip must be greater than 0, got 0.0"),
        (5, 5, float("nan"), "clip must be greater than 0, got nan"),
    ],
)
def test_settings_out_of_range(window, horizon, clip, words):
    with pytest.raises(ConfigError) as caught:
        Windows(arrays_of(40), window, horizon, clip=clip)
    assert str(caught.value) == words


def test_arrays_of_a_frame():
    frame = frame_of(6)
    bars = BarArrays.from_frame(frame)
    assert len(bars) == 6
    assert bars.features[2].tolist() == [52.0, 53.0, 51.0, 52.0, 7.0, 7.0 * 52.0]
    assert bars.stamps[0].tolist() == [55, 23, 2, 28, 2]
    assert bars.stamps[1].tolist() == [0, 0, 3, 29, 2]
    np.testing.assert_array_equal(bars.stamps, stamp_columns(frame.index))


def test_arrays_cannot_be_written_to_and_keep_no_hold_of_the_frame():
    frame = frame_of(6)
    bars = BarArrays.from_frame(frame)
    frame.iloc[0, 0] = 99.0
    assert bars.features[0, 0] == 50.0
    for array in (bars.features, bars.stamps):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1


def test_arrays_of_bad_bars_name_the_source():
    frame = frame_of(6)
    frame.iloc[4, 3] = np.nan
    with pytest.raises(DataError, match="IBM: column close, row 5: 'nan'"):
        BarArrays.from_frame(frame, source="IBM")

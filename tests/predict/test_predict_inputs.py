"""Normalisation."""

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from kronos.predict.inputs import FEATURES, Series, read_series


def series_of(values: np.ndarray) -> Series:
    times = pd.date_range("2024-01-01", periods=len(values) + 2, freq="h")
    frame = pd.DataFrame(values, columns=list(FEATURES))
    return read_series(frame, times[:-2], times[-2:], 2)


def test_P6_flat_bars_have_a_score_of_exactly_zero() -> None:
    one = series_of(np.full((400, 6), 50000.1))
    assert (one.normalised(5) == 0).all()
    assert (one.mean == 50000.1).all()
    assert (one.std == 0).all()


def test_statistics_are_biased_and_float64() -> None:
    values = 1e6 + np.random.Generator(np.random.PCG64(0)).standard_normal((50, 6))
    one = series_of(values)
    wanted = (values - values.mean(0)) / (values.std(0, ddof=0) + 1e-5)
    assert np.allclose(one.normalised(5), wanted, rtol=1e-9)
    assert np.abs(one.normalised(0.5)).max() == 0.5


@given(
    prices=st.lists(st.floats(1e-6, 1e9), min_size=2, max_size=20),
    scale=st.floats(0, 1),
)
@settings(max_examples=50)
def test_restored_undoes_normalised(prices: list[float], scale: float) -> None:
    values = np.outer(prices, [1, 1.5, 0.5, 1, 10 * scale, 1000])
    one = series_of(values)
    restored = one.restored(one.normalised(np.inf))
    assert np.allclose(restored, values, rtol=1e-9, atol=1e-9 * np.abs(values).max())


def test_stamps_cover_past_and_future() -> None:
    one = series_of(np.ones((3, 6)))
    assert one.past_stamps.tolist() == [[0, hour, 0, 1, 1] for hour in range(3)]
    assert one.future_stamps.tolist() == [[0, hour, 0, 1, 1] for hour in (3, 4)]
    assert list(one.future) == list(pd.date_range("2024-01-01 03:00", periods=2, freq="h"))


def test_numbers_of_any_kind_are_read() -> None:
    times = pd.date_range("2024-01-01", periods=2, freq="h")
    frame = pd.DataFrame(
        {
            "open": pd.array([1, 2], dtype="Int64"),
            "high": ["1.5", "2.5"],
            "low": np.array([1, 2], dtype=np.int8),
            "close": pd.array([1.25, 2.25], dtype="Float32"),
        }
    )
    wanted = [[1, 1.5, 1, 1.25, 0, 0], [2, 2.5, 2, 2.25, 0, 0]]
    assert read_series(frame, times, [], 0).values.tolist() == wanted

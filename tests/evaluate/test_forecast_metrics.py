"""mae, rmse, direction and stability: by hand, against restatements, and never NaN."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stnp

from kronos.errors import DataError
from kronos.evaluate import direction_accuracy, mae, rmse, stability_score

VALUES = st.floats(-1e6, 1e6)


def test_by_hand():
    actual, forecast = [[1.0, 2.0], [3.0, 4.0]], [[1.0, 0.0], [6.0, 4.0]]
    assert mae(actual, forecast) == (2 + 3) / 4
    assert rmse(actual, forecast) == pytest.approx(math.sqrt((4 + 9) / 4))
    assert mae(actual, actual) == rmse(actual, actual) == 0.0


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_rmse_neither_under_nor_overflows(size):
    assert rmse([0.0, 0.0], [3 * size, 4 * size]) == pytest.approx(math.sqrt(12.5) * size)


@settings(max_examples=100)
@given(stnp.arrays(np.float64, (3, 4), elements=VALUES), st.randoms())
def test_errors_against_a_restatement(actual, random):
    forecast = np.array([[value + random.uniform(-5, 5) for value in row] for row in actual])
    errors = [
        a - f for a, f in zip(actual.ravel().tolist(), forecast.ravel().tolist(), strict=True)
    ]
    assert mae(actual, forecast) == pytest.approx(sum(map(abs, errors)) / 12)
    assert rmse(actual, forecast) == pytest.approx(math.sqrt(sum(e * e for e in errors) / 12))
    assert mae(actual, forecast) == mae(forecast, actual)
    assert mae(actual, forecast) <= rmse(actual, forecast) * (1 + 1e-12)


def test_direction_by_hand():
    last = [10.0, 20.0]
    actual = [[11.0, 9.0, 10.0], [21.0, 19.0, 20.0]]
    assert direction_accuracy(last, actual, actual) == 1.0
    #                               right wrong right   wrong right wrong
    forecast = [[15.0, 12.0, 10.0], [20.0, 1.0, 20.5]]
    assert direction_accuracy(last, actual, forecast) == 3 / 6
    assert direction_accuracy([10.0, 10.0], [11.0, 9.0], [12.0, 12.0]) == 0.5


def test_direction_of_a_forecast_that_never_moves():
    last = np.array([10.0, 20.0, 30.0])
    still = np.repeat(last[:, None], 2, axis=1)
    actual = still + np.array([[1.0, -1.0], [0.0, 1.0], [1.0, 0.0]])
    assert direction_accuracy(last, actual, still) == 2 / 6, "right only where nothing moved"


@settings(max_examples=50)
@given(stnp.arrays(np.float64, (3,), elements=st.floats(1, 100)),
       stnp.arrays(np.float64, (3, 2), elements=st.floats(1, 100)),
       stnp.arrays(np.float64, (3, 2), elements=st.floats(1, 100)))  # fmt: skip
def test_direction_against_a_restatement(last, actual, forecast):
    last, actual, forecast = last.tolist(), actual.tolist(), forecast.tolist()
    right = 0
    for window in range(3):
        for bar in range(2):
            came = (actual[window][bar] > last[window]) - (actual[window][bar] < last[window])
            said = (forecast[window][bar] > last[window]) - (forecast[window][bar] < last[window])
            right += came == said
    assert direction_accuracy(last, actual, forecast) == pytest.approx(right / 6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_counted_not_swallowed(value):
    bad = np.ones((3, 2))
    bad[1, 1] = bad[2, 0] = value
    good = np.ones((3, 2))
    words = r"2 of 6 values are not finite, first at index \(1, 1\)"
    for metric in (mae, rmse):
        with pytest.raises(DataError, match=f"forecast: {words}"):
            metric(good, bad)
        with pytest.raises(DataError, match=f"actual: {words}"):
            metric(bad, good)
    with pytest.raises(DataError, match=f"forecast_close: {words}"):
        direction_accuracy([1.0, 1.0, 1.0], good, bad)
    with pytest.raises(DataError, match=f"actual_close: {words}"):
        direction_accuracy([1.0, 1.0, 1.0], bad, good)
    with pytest.raises(DataError, match="last_close: 1 of 3 values"):
        direction_accuracy([1.0, value, 1.0], good, good)
    with pytest.raises(DataError, match="window_mae: 1 of 2 values"):
        stability_score([1.0, value])


def test_shapes_that_differ_and_nothing_at_all():
    with pytest.raises(DataError, match=r"actual has shape \(2,\), forecast \(3,\)"):
        mae([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(DataError, match=r"actual has shape \(2, 1\), forecast \(2,\)"):
        rmse([[1.0], [2.0]], [1.0, 2.0])
    with pytest.raises(DataError, match=r"actual is empty \(shape \(0,\)\)"):
        mae([], [])
    with pytest.raises(DataError, match=r"last_close has shape \(1,\), actual_close \(2, 1\)"):
        direction_accuracy([1.0], [[1.0], [2.0]], [[1.0], [2.0]])
    with pytest.raises(DataError, match="last_close has shape"):
        direction_accuracy([[1.0]], [1.0], [1.0])
    with pytest.raises(DataError, match="window_mae is empty"):
        stability_score([])


def test_stability_by_hand():
    assert stability_score([0.02]) == 1.0
    assert stability_score([0.02, 0.02, 0.02]) == pytest.approx(1.0)
    assert stability_score([0.0, 0.0]) == 1.0
    assert stability_score([0.0, 2.0]) == 0.5, "they scatter as much as they are large"
    assert stability_score([1.0, 3.0]) == pytest.approx(1 / (1 + 1 / 2))
    with pytest.raises(DataError, match="must not be negative, got -1"):
        stability_score([1.0, -1.0])


@settings(max_examples=100)
@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=20), st.floats(1e-3, 1e3))
def test_stability_is_in_0_1_and_has_no_unit(errors, scale):
    score = stability_score(errors)
    assert 0 < score <= 1
    if min(errors) > 1e-200:
        assert stability_score([error * scale for error in errors]) == pytest.approx(score)

"""All scores at once: each is what the single functions say, and price level has no weight."""

import numpy as np
import pytest

from kronos.errors import DataError
from kronos.evaluate import (
    backtest,
    direction_accuracy,
    score_forecasts,
    separate_periods,
    stability_score,
)

NAMES = ["mae", "rmse", "direction_accuracy", "cumulative_return", "max_drawdown", "sharpe",
         "stability"]  # fmt: skip


def forecasts_of(windows=12, horizon=3, seed=0):
    rng = np.random.default_rng(seed)
    last = rng.uniform(50, 150, windows)
    actual, forecast = last[:, None, None] * np.exp(rng.normal(0, 0.02, (2, windows, horizon, 6)))
    return last, actual, forecast


def score(last, actual, forecast, **options):
    options = {"starts": np.arange(len(last)), "bars_per_year": 252, **options}
    return score_forecasts(last, actual, forecast, **options)


def test_by_hand():
    last = [100.0, 10.0]
    actual = np.empty((2, 1, 6))
    actual[0], actual[1] = [101, 102, 99, 100.5, 7, 7], [10.0, 10.5, 9.5, 10.1, 7, 7]
    forecast = actual.copy()
    forecast[0, 0, :4] += [1.0, 1.0, -1.0, 1.0]  # one percent of the last close
    forecast[1, 0, :4] += [0.3, -0.3, 0.3, -0.3]  # three percent, and the wrong side
    forecast[:, :, 4:] = 1e9  # volume and amount have no weight
    scores = score(last, actual, forecast, starts=[0, 1], cost_bps=0.0)
    assert list(scores) == NAMES
    assert scores["mae"] == pytest.approx(0.02)
    assert scores["rmse"] == pytest.approx(np.sqrt((0.01**2 + 0.03**2) / 2))
    assert scores["direction_accuracy"] == 0.5
    assert scores["cumulative_return"] == pytest.approx(0.005)
    assert scores["max_drawdown"] == 0.0
    assert scores["sharpe"] == pytest.approx(1 / np.sqrt(2) * np.sqrt(252))
    assert scores["stability"] == pytest.approx(1 / (1 + 0.01 / 0.02))
    assert all(type(value) is float for value in scores.values())


def test_each_score_is_that_of_its_function():
    last, actual, forecast = forecasts_of()
    starts = np.arange(12) * 2
    scores = score(last, actual, forecast, starts=starts, cost_bps=7.0, allow_short=True)
    window_mae = [np.abs(forecast[w, :, :4] - actual[w, :, :4]).mean() / last[w] for w in range(12)]
    assert scores["mae"] == pytest.approx(np.mean(window_mae))
    assert scores["stability"] == pytest.approx(stability_score(window_mae))
    assert scores["direction_accuracy"] == direction_accuracy(
        last, actual[:, :, 3], forecast[:, :, 3]
    )
    used = separate_periods(starts, 3)
    assert used.tolist() == [0, 2, 4, 6, 8, 10], "two bars apart, three of horizon"
    result = backtest(
        starts[used], last[used], actual[used, 2, 3], forecast[used, 2, 3],
        horizon=3, periods_per_year=84, cost_bps=7.0, allow_short=True,
    )  # fmt: skip
    assert scores["cumulative_return"] == result.cumulative_return
    assert scores["max_drawdown"] == result.max_drawdown
    assert scores["sharpe"] == result.sharpe
    assert result.cumulative_return != 0.0


def test_cost_is_10_bps_unless_told():
    last, actual, forecast = forecasts_of()
    assert score(last, actual, forecast) == score(last, actual, forecast, cost_bps=10.0)
    assert score(last, actual, forecast) != score(last, actual, forecast, cost_bps=11.0)
    assert score(last, actual, forecast) != score(last, actual, forecast, allow_short=True)


def test_price_levels_weigh_the_same():
    last, actual, forecast = forecasts_of()
    level = np.logspace(-2, 4, len(last))
    rescaled = score(last * level, actual * level[:, None, None], forecast * level[:, None, None])
    assert rescaled == pytest.approx(score(last, actual, forecast))


def test_a_perfect_forecast():
    last, actual, _ = forecasts_of()
    scores = score(last, actual, actual, cost_bps=0.0)
    assert (scores["mae"], scores["rmse"]) == (0.0, 0.0)
    assert (scores["direction_accuracy"], scores["stability"]) == (1.0, 1.0)
    assert scores["cumulative_return"] > 0
    assert scores["max_drawdown"] == 0.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda last, a, f: (last, a, f[:, :2]),
            r"actual has shape \(12, 3, 6\), forecast \(12, 2",
        ),
        (lambda last, a, f: (last[:5], a, f), r"last_close has shape \(5,\), actual \(12, 3, 6\)"),
        (lambda last, a, f: (last, a[:, :, 3], f[:, :, 3]), r"give \(W,\) and \(W, H, 6\)"),
        (lambda last, a, f: (last * 0, a, f), "last_close must be positive, got 0"),
        (lambda last, a, f: (last, a, f * np.nan), "forecast: 216 of 216 values are not finite"),
    ],
)
def test_arrays_that_cannot_be_scored(change, words):
    with pytest.raises(DataError, match=words):
        score(*change(*forecasts_of()))


def test_starts_of_another_number_of_windows():
    with pytest.raises(DataError, match="11 starts for 12 windows"):
        score(*forecasts_of(), starts=np.arange(11))
    with pytest.raises(DataError, match="starts must ascend"):
        score(*forecasts_of(), starts=np.arange(12)[::-1])

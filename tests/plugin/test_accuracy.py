"""Judging metrics and forecasts against goldens."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_kronos.accuracy import (
    Metric,
    describe_drop,
    judge_forecast,
    judge_metric,
    judge_metrics,
)
from pytest_kronos.verdicts import Verdict

MAE = Metric("mae", lower_is_better=True)
DIRECTION = Metric("direction_accuracy", lower_is_better=False)


@pytest.mark.parametrize(
    ("metric", "golden", "current", "verdict"),
    [
        (MAE, 1.0, 1.04, Verdict.PASS),
        (MAE, 1.0, 1.0499, Verdict.PASS),
        (MAE, 1.0, 1.0501, Verdict.REGRESSION),
        (MAE, 1.0, 1.06, Verdict.REGRESSION),
        (MAE, 1.0, 0.96, Verdict.PASS),
        (MAE, 1.0, 0.94, Verdict.IMPROVEMENT),
        (DIRECTION, 0.6, 0.58, Verdict.PASS),
        (DIRECTION, 0.6, 0.56, Verdict.REGRESSION),
        (DIRECTION, 0.6, 0.64, Verdict.IMPROVEMENT),
    ],
)
def test_a_drop_over_the_limit_is_a_regression(metric, golden, current, verdict):
    assert judge_metric(metric, golden, current, 0.05).verdict is verdict


def test_a_negative_golden_is_compared_by_its_size():
    assert MAE.drop(-2.0, -1.0) == 0.5
    assert judge_metric(MAE, -2.0, -3.0, 0.05).verdict is Verdict.IMPROVEMENT
    assert judge_forecast(_frame(-100.0), _frame(-101.0), 0.05).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("drop", "text"), [(0.062, "6.20% worse"), (-0.013, "1.30% better"), (0.0, "unchanged")]
)
def test_a_drop_is_described(drop, text):
    assert describe_drop(drop) == text


@pytest.mark.parametrize("name", ["mae", "rmse", "mse", "loss", "direction_accuracy", "accuracy"])
def test_which_way_is_better(name):
    (finding,) = judge_metrics({name: 1.0}, {name: 1.2}, 0.05)
    higher = name.endswith("accuracy")
    assert finding.verdict is (Verdict.IMPROVEMENT if higher else Verdict.REGRESSION)


def test_which_way_is_better_may_be_told():
    told = frozenset({"perplexity"})
    (finding,) = judge_metrics({"perplexity": 1.0}, {"perplexity": 1.2}, 0.05, told)
    assert finding.verdict is Verdict.REGRESSION


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("golden", "current"), [(NAN, NAN), (NAN, 1.0), (1.0, NAN), (1.0, INF), (INF, INF)]
)
def test_H7_what_is_no_number_always_fails(golden, current):
    finding = judge_metric(MAE, golden, current, 0.05)
    assert finding.verdict is Verdict.REGRESSION
    assert "no number" in finding.text


@pytest.mark.parametrize(
    ("current", "verdict"), [(0.0, Verdict.PASS), (1e-12, Verdict.PASS), (0.1, Verdict.REGRESSION)]
)
def test_H8_a_golden_of_zero_is_compared_by_an_absolute_floor(current, verdict):
    assert judge_metric(MAE, 0.0, current, 0.05).verdict is verdict


def test_H6_a_column_on_one_side_only_fails_and_is_named():
    (finding,) = judge_metrics({"mae": 1.0}, {}, 0.05)
    assert finding.verdict is Verdict.REGRESSION
    assert "mae is missing in this run" in finding.text
    (finding,) = judge_metrics({"mae": None}, {"mae": 1.0}, 0.05)
    assert "mae is missing in the golden file" in finding.text


@pytest.mark.parametrize("name", ["cumulative_return", "max_drawdown", "sharpe", "stability"])
def test_backtest_figures_are_recorded_not_judged_but_must_be_numbers(name):
    assert judge_metrics({name: 1.0}, {name: -3.0}, 0.05) == []
    for golden, current in ((1.0, NAN), (NAN, 1.0)):
        (finding,) = judge_metrics({name: golden}, {name: current}, 0.05)
        assert finding.verdict is Verdict.REGRESSION


@given(
    golden=st.floats(1e-3, 1e3),
    drop=st.floats(-0.9, 0.9),
    lower=st.booleans(),
    limit=st.floats(0.01, 0.5),
)
def test_the_verdict_follows_the_relative_drop(golden, drop, lower, limit):
    metric = Metric("loss", lower)
    current = golden * (1 + drop if lower else 1 - drop)
    assert metric.drop(golden, current) == pytest.approx(drop, abs=1e-9)
    expected = abs(drop - limit) < 1e-9 or drop > limit
    fails = judge_metric(metric, golden, current, limit).verdict is Verdict.REGRESSION
    assert fails == expected or abs(drop - limit) < 1e-9


def _frame(values=100.0):
    index = pd.date_range("2024-01-01", periods=3, name="timestamps")
    return pd.DataFrame(values, index=index, columns=["open", "high", "low", "close", "volume"])


def test_an_equal_forecast_passes_and_volume_is_not_judged():
    other = _frame()
    other["volume"] = 7.0
    assert judge_forecast(_frame(), other, 0.05).verdict is Verdict.PASS


def test_a_moved_forecast_names_the_column_and_the_bar():
    other = _frame()
    other.iloc[1, 3] = 200.0
    finding = judge_forecast(_frame(), other, 0.05)
    assert finding.verdict is Verdict.REGRESSION
    assert "close at 2024-01-02" in finding.text


def test_a_forecast_is_judged_by_its_mean_move():
    other = _frame()
    other.iloc[1, 3] = 150.0
    finding = judge_forecast(_frame(), other, 0.05)
    assert finding.verdict is Verdict.PASS
    assert "prices moved 4.17% on average" in finding.text
    assert judge_forecast(_frame(), other, 0.04).verdict is Verdict.REGRESSION


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.iloc[:2],
        lambda frame: frame.drop(columns="low"),
        lambda frame: frame.set_axis(frame.index + pd.Timedelta(days=1)),
        lambda frame: frame.replace(100.0, np.nan),
    ],
)
def test_other_bars_or_no_numbers_fail(change):
    for golden, current in ((_frame(), change(_frame())), (change(_frame()), _frame())):
        assert judge_forecast(golden, current, 0.05).verdict is Verdict.REGRESSION

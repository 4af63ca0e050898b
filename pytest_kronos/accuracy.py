"""Comparing metrics with their goldens. No pytest, no torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from pytest_kronos.verdicts import Finding, Verdict

LOWER_IS_BETTER: Final = frozenset({"mae", "rmse", "mse", "loss"})
HIGHER_IS_BETTER: Final = frozenset({"direction_accuracy", "accuracy"})
RECORDED_ONLY: Final = frozenset({"cumulative_return", "max_drawdown", "sharpe", "stability"})
"""Figures of a backtest swing with single trades; they are kept and shown, not judged."""

FLOOR: Final = 1e-9
"""A change is taken relative to no less than this, so that a golden of 0 can be compared."""


@dataclass(frozen=True, slots=True)
class Metric:
    """How one metric is to be judged."""

    name: str
    lower_is_better: bool

    def drop(self, golden: float, current: float) -> float:
        """Relative worsening: 0.06 is 6 % worse, negative is better."""
        worse_by = current - golden if self.lower_is_better else golden - current
        return worse_by / max(abs(golden), FLOOR)


def judge_metric(metric: Metric, golden: float, current: float, limit: float) -> Finding:
    """Judge one metric: a drop over `limit` is a regression, as is anything that is no number."""
    for whose, value in (("the golden", golden), ("this run", current)):
        if not math.isfinite(value):
            return Finding(
                "accuracy", Verdict.REGRESSION, f"{metric.name} of {whose} is {value}: no number"
            )
    drop = metric.drop(golden, current)
    text = f"{metric.name} {current:.6g} against {golden:.6g}, {describe_drop(drop)}"
    if drop > limit:
        return Finding("accuracy", Verdict.REGRESSION, f"{text}; the limit is {limit:.4g}")
    if drop < -limit:
        return Finding("accuracy", Verdict.IMPROVEMENT, text)
    return Finding("accuracy", Verdict.PASS, text)


def describe_drop(drop: float) -> str:
    """ "6.20 % worse" or "1.30 % better"."""
    return f"{abs(drop):.2%} {'worse' if drop > 0 else 'better'}" if drop else "unchanged"


def judge_metrics(
    goldens: Mapping[str, float | None],
    metrics: Mapping[str, float],
    limit: float,
    lower_is_better: frozenset[str] = LOWER_IS_BETTER,
) -> list[Finding]:
    """Judge each metric against its golden; a metric on one side only is a regression."""
    findings = []
    for name in sorted(set(goldens) | set(metrics)):
        golden, current = goldens.get(name), metrics.get(name)
        if golden is None or current is None:
            where = "the golden file" if golden is None else "this run"
            findings.append(
                Finding("accuracy", Verdict.REGRESSION, f"column {name} is missing in {where}")
            )
        elif name in RECORDED_ONLY:
            findings += _must_be_numbers(name, golden, current)
        else:
            findings.append(
                judge_metric(Metric(name, name in lower_is_better), golden, current, limit)
            )
    return findings


def _must_be_numbers(name: str, golden: float, current: float) -> list[Finding]:
    if math.isfinite(golden) and math.isfinite(current):
        return []
    text = f"{name} is {current} against {golden}: no number"
    return [Finding("accuracy", Verdict.REGRESSION, text)]


def judge_forecast(golden: pd.DataFrame, current: pd.DataFrame, limit: float) -> Finding:
    """Judge a forecast: the mean relative move of the prices may not exceed `limit`.

    Both frames hold one row per bar, indexed by time, and the same columns. The text names
    the column and the bar that moved most.
    """
    if list(golden.columns) != list(current.columns) or not golden.index.equals(current.index):
        return Finding(
            "forecast",
            Verdict.REGRESSION,
            f"{len(current)} bars of {', '.join(current.columns)} against {len(golden)} of "
            f"{', '.join(golden.columns)} in the golden: not the same bars",
        )
    prices = [name for name in ("open", "high", "low", "close") if name in golden.columns]
    old, new = golden[prices].to_numpy(float), current[prices].to_numpy(float)
    if not np.isfinite(new).all() or not np.isfinite(old).all():
        return Finding(
            "forecast", Verdict.REGRESSION, "the forecast holds values that are no number"
        )
    moves = np.abs(new - old) / np.maximum(np.abs(old), FLOOR)
    mean = float(moves.mean())
    row, column = np.unravel_index(int(moves.argmax()), moves.shape)
    text = (
        f"prices moved {mean:.2%} on average, most {prices[column]} at "
        f"{golden.index[int(row)]} ({new[row, column]:.6g} against {old[row, column]:.6g})"
    )
    return Finding("forecast", Verdict.REGRESSION if mean > limit else Verdict.PASS, text)

"""How good forecasts are: errors, direction, a backtest and stability. Arrays in, numbers out."""

from kronos.evaluate.backtest import (
    Backtest,
    backtest,
    cumulative_return,
    max_drawdown,
    separate_periods,
    sharpe,
)
from kronos.evaluate.metrics import direction_accuracy, mae, rmse
from kronos.evaluate.scores import score_forecasts
from kronos.evaluate.stability import stability_score

__all__ = [
    "Backtest",
    "backtest",
    "cumulative_return",
    "direction_accuracy",
    "mae",
    "max_drawdown",
    "rmse",
    "score_forecasts",
    "separate_periods",
    "sharpe",
    "stability_score",
]

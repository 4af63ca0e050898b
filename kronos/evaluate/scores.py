"""All scores of a set of forecasts at once, as golden files record them.

Axes: W windows in order of time, H bars of horizon, 6 features (open, high, low, close, volume,
amount).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kronos.errors import DataError
from kronos.evaluate.backtest import backtest, separate_periods
from kronos.evaluate.metrics import direction_accuracy, finite, mae, rmse, same_shape
from kronos.evaluate.stability import stability_score

PRICE_COLUMNS = 4
CLOSE = 3


def score_forecasts(
    last_close: ArrayLike,
    actual: ArrayLike,
    forecast: ArrayLike,
    *,
    starts: ArrayLike,
    bars_per_year: float,
    cost_bps: float = 10.0,
    allow_short: bool = False,
) -> dict[str, float]:
    """mae, rmse, direction_accuracy, cumulative_return, max_drawdown, sharpe and stability.

    last_close (W,): the last known close of each window; actual and forecast (W, H, 6);
    starts (W,): the bar at which each window starts, ascending (any bar counted alike in all
    windows will do). mae and rmse are over the four prices, in fractions of the window's last
    close, so that windows at different price levels weigh the same: 0.01 is one percent of the
    price. stability is that of the windows' mae. The backtest trades the windows that start at
    least H bars after the last one traded, on the close H bars ahead; `bars_per_year` is 252
    for daily bars. Where gaps lie between the windows traded, sharpe is still scaled to trading
    every H bars without a gap, while cumulative_return is of the periods traded alone.

    Raises DataError for shapes that differ, values that are not finite and closes not positive.
    """
    last = finite("last_close", last_close)
    came = finite("actual", actual)
    said = finite("forecast", forecast)
    _check_shapes(last, came, said)
    horizon = came.shape[1]
    traded = separate_periods(starts, horizon)
    bars = np.asarray(starts, dtype=np.int64)
    if len(bars) != len(last):
        raise DataError(f"{len(bars)} starts for {len(last)} windows; give one per window")

    came_scaled = came[:, :, :PRICE_COLUMNS] / last[:, None, None]  # W H 4
    said_scaled = said[:, :, :PRICE_COLUMNS] / last[:, None, None]
    window_mae = np.abs(said_scaled - came_scaled).mean(axis=(1, 2))  # W
    result = backtest(
        bars[traded],
        last[traded],
        came[traded, -1, CLOSE],
        said[traded, -1, CLOSE],
        horizon=horizon,
        periods_per_year=bars_per_year / horizon,
        cost_bps=cost_bps,
        allow_short=allow_short,
    )
    return {
        "mae": mae(came_scaled, said_scaled),
        "rmse": rmse(came_scaled, said_scaled),
        "direction_accuracy": direction_accuracy(last, came[:, :, CLOSE], said[:, :, CLOSE]),
        "cumulative_return": result.cumulative_return,
        "max_drawdown": result.max_drawdown,
        "sharpe": result.sharpe,
        "stability": stability_score(window_mae),
    }


def _check_shapes(
    last: NDArray[np.float64], actual: NDArray[np.float64], forecast: NDArray[np.float64]
) -> None:
    same_shape(actual, forecast)
    if actual.ndim != 3 or actual.shape[2] < PRICE_COLUMNS or last.shape != actual.shape[:1]:
        raise DataError(
            f"last_close has shape {last.shape}, actual {actual.shape}; give (W,) and (W, H, 6)"
        )
    if last.min() <= 0:
        raise DataError(f"last_close must be positive, got {last.min():.9g}")

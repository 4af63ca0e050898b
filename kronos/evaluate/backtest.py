"""One plain strategy on held-out windows, to ask whether forecasts would have paid.

At the last known bar of a window the forecast return over the horizon decides: long if it is
positive, else flat (or short, if allowed). The position is entered at that bar's close and held
for the horizon, to the close of its last bar. Costs are paid for every change of position, also
into the first and out of the last. Periods do not overlap, so returns are those of one account.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kronos.errors import ConfigError, DataError
from kronos.evaluate.metrics import finite

ROUNDING = 1e-12
"""A standard deviation of returns below this is rounding, not risk."""


@dataclass(frozen=True, slots=True, eq=False)
class Backtest:
    """What P consecutive periods brought; fractions, so 0.01 is one percent."""

    positions: NDArray[np.float64]
    """(P,): 1 long, 0 flat, -1 short."""
    returns: NDArray[np.float64]
    """(P,), after costs, never below -1."""
    equity: NDArray[np.float64]
    """(P + 1,), from 1 before the first period."""
    trades: int
    """Positions entered plus positions left; turning from long to short is two."""
    cumulative_return: float
    max_drawdown: float
    sharpe: float


def backtest(
    starts: ArrayLike,
    last_close: ArrayLike,
    actual_close: ArrayLike,
    forecast_close: ArrayLike,
    *,
    horizon: int,
    periods_per_year: float,
    cost_bps: float = 10.0,
    allow_short: bool = False,
) -> Backtest:
    """Trade P periods of `horizon` bars by their forecasts.

    starts (P,): number of the last known bar of each period, at least `horizon` apart.
    last_close (P,): its close, when the decision is made. actual_close and forecast_close
    (P,): the close `horizon` bars later, as it came and as it was forecast.
    Where the next period begins the very bar that this one ends, an equal position is kept at
    no cost; where a gap lies between, the position is closed and the account flat.
    `cost_bps` is paid for each trade, in 1/100 percent of what is traded (10 = 0.1 %).

    Raises DataError for values that are not finite or positive, lengths that differ and
    periods that overlap; ConfigError for costs, a horizon or periods_per_year out of range.
    """
    _check_settings(horizon, periods_per_year, cost_bps)
    last, actual, forecast = (
        _closes(name, values, np.shape(starts))
        for name, values in (
            ("last_close", last_close),
            ("actual_close", actual_close),
            ("forecast_close", forecast_close),
        )
    )
    joined = _joined(np.asarray(starts, dtype=np.int64), horizon)
    positions = np.sign(forecast - last)
    if not allow_short:
        positions = np.maximum(positions, 0.0)
    trades = _trades(positions, joined)
    returns = positions * (actual / last - 1.0) - trades * cost_bps / 10_000
    returns = np.maximum(returns, -1.0)  # a short can lose more than there is; the account ends
    return Backtest(
        positions=positions,
        returns=returns,
        equity=_equity(returns),
        trades=int(trades.sum()),
        cumulative_return=cumulative_return(returns),
        max_drawdown=max_drawdown(returns),
        sharpe=sharpe(returns, periods_per_year),
    )


def cumulative_return(returns: ArrayLike) -> float:
    """What an account gained over all periods (P,), each return on what was there by then."""
    return float(_equity(finite("returns", returns))[-1] - 1.0)


def max_drawdown(returns: ArrayLike) -> float:
    """The deepest fall of the account below an earlier height, the start included: -1 to 0."""
    equity = _equity(finite("returns", returns))
    return float((equity / np.maximum.accumulate(equity)).min() - 1.0)


def sharpe(returns: ArrayLike, periods_per_year: float) -> float:
    """Mean over standard deviation (unbiased) of the returns (P,), times sqrt(periods_per_year).

    No risk-free rate is taken off. 0 where there is no risk to divide by: fewer than two
    periods, or returns that differ by rounding only (a strategy that never traded).
    """
    values = finite("returns", returns)
    if len(values) < 2:
        return 0.0
    deviation = float(values.std(ddof=1))
    if deviation < ROUNDING:
        return 0.0
    return float(values.mean() / deviation * np.sqrt(periods_per_year))


def separate_periods(starts: ArrayLike, horizon: int) -> NDArray[np.int64]:
    """Which of the windows to trade, so that no two overlap: positions in `starts` (W,).

    The first window, then each one that starts at least `horizon` bars after the last taken.
    Raises DataError unless the starts ascend.
    """
    bars = np.asarray(starts, dtype=np.int64)
    _check_ascending(bars)
    taken: list[int] = []
    free_from = None
    for position, bar in enumerate(bars.tolist()):
        if free_from is None or bar >= free_from:
            taken.append(position)
            free_from = bar + horizon
    return np.array(taken, dtype=np.int64)


def _equity(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([[1.0], np.cumprod(1.0 + returns)])  # P+1


def _trades(positions: NDArray[np.float64], joined: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Trades of each period (P,): entering from what was held before, leaving if nothing follows.

    joined (P-1,): whether the next period begins where this one ends.
    """
    held = np.zeros_like(positions)
    held[1:] = np.where(joined, positions[:-1], 0.0)
    leaving = np.abs(positions)
    leaving[:-1][joined] = 0.0
    return np.abs(positions - held) + leaving


def _joined(starts: NDArray[np.int64], horizon: int) -> NDArray[np.bool_]:
    _check_ascending(starts)
    distances = np.diff(starts)
    if (distances < horizon).any():
        period = int(np.argmax(distances < horizon))
        raise DataError(
            f"periods overlap: {starts[period]} and {starts[period + 1]} are closer than the "
            f"horizon of {horizon} bars; choose them with separate_periods"
        )
    return np.asarray(distances == horizon)


def _check_ascending(starts: NDArray[np.int64]) -> None:
    if starts.ndim != 1 or len(starts) == 0:
        raise DataError(f"starts must be a row of at least one bar, got shape {starts.shape}")
    if (np.diff(starts) <= 0).any():
        raise DataError("starts must ascend; sort the windows by time and give each once")


def _closes(name: str, values: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float64]:
    closes = finite(name, values)
    if closes.shape != shape:
        raise DataError(f"{name} has shape {closes.shape}, starts {shape}; give one per period")
    if name != "forecast_close" and closes.min() <= 0:
        raise DataError(f"{name} must be positive, got {closes.min():.9g}")
    return closes


def _check_settings(horizon: int, periods_per_year: float, cost_bps: float) -> None:
    if horizon < 1:
        raise ConfigError(f"horizon must be at least 1, got {horizon}")
    if not 0 < periods_per_year < np.inf:
        raise ConfigError(f"periods_per_year must be positive, got {periods_per_year}")
    if not 0 <= cost_bps <= 10_000:
        raise ConfigError(f"cost_bps must be from 0 to 10000 (100 %), got {cost_bps}")

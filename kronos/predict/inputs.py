"""What a prediction is made from: bars and timestamps, checked and normalised.

Axes: N bars known, S bars to come, F = 6 features. Rows are counted from 1 in the errors.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kronos.data.columns import FEATURES, PRICES, TIMESTAMP_NAMES, TIMESTAMPS
from kronos.data.sessions import future_timestamps
from kronos.data.timestamps import as_timestamps, stamp_columns
from kronos.errors import ConfigError, DataError

_LARGEST = float(np.finfo(np.float32).max)
_EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class Series:
    """One history and the timestamps to predict."""

    values: NDArray[np.float64]
    """(N, F), finite."""
    mean: NDArray[np.float64]
    """(F,), over all N bars."""
    std: NDArray[np.float64]
    """(F,), biased, over all N bars; exactly 0 for a column that does not move."""
    past_stamps: NDArray[np.int64]
    """(N, 5), see `timestamps.stamp_columns`."""
    future_stamps: NDArray[np.int64]
    """(S, 5)"""
    future: pd.DatetimeIndex
    """(S,)"""

    def normalised(self, clip: float) -> NDArray[np.float64]:
        """z-scores (N, F), clipped to ±clip; exactly 0 where a column does not move."""
        scores = (self.values - self.mean) / (self.std + _EPSILON)
        return np.clip(scores, -clip, clip)

    def restored(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """The inverse of `normalised`, (S, F).

        A column that does not move is predicted not to: the small epsilon would turn any score
        into noise around it, such as a volume of 3e-6 where none was traded.
        """
        moves = self.std > 0
        return np.where(moves, scores * (self.std + _EPSILON), 0.0) + self.mean


def read_series(
    bars: pd.DataFrame,
    x_timestamp: Iterable[Any] | None,
    y_timestamp: Iterable[Any] | None,
    pred_len: int,
    calendar: Any = None,
    where: str = "",
) -> Series:
    """Check and gather one series; DataError names the column and row at fault.

    Without `x_timestamp` the times are those of the bars; without `y_timestamp` they are made,
    by the `calendar` if there is one. `where` stands before each message, to name the series of
    a batch.
    """
    try:
        if not isinstance(bars, pd.DataFrame):
            raise DataError(f"bars must be a pandas DataFrame, got {type(bars).__name__}")
        past = _past(bars, x_timestamp)
        future = _future(past, y_timestamp, pred_len, calendar)
        _check_order(past, future)
        values = _features(bars, past)
    except (DataError, ConfigError) as error:
        raise type(error)(f"{where}{error}") from error.__cause__
    # About the first bar, so that equal bars have exactly their own value as the mean.
    mean = values[0] + (values - values[0]).mean(axis=0)
    std = np.sqrt(np.square(values - mean).mean(axis=0))
    return Series(values, mean, std, stamp_columns(past), stamp_columns(future), future)


def _past(bars: pd.DataFrame, x_timestamp: Iterable[Any] | None) -> pd.DatetimeIndex:
    if x_timestamp is not None:
        past = as_timestamps(x_timestamp, "x_timestamp")
    elif isinstance(bars.index, pd.DatetimeIndex):
        past = as_timestamps(bars.index, "the bars' index")
    else:
        named = next((name for name in TIMESTAMP_NAMES if name in bars.columns), None)
        if named is None:
            raise DataError(
                f"the bars have no times: give x_timestamp, a DatetimeIndex or a column "
                f"{TIMESTAMPS}"
            )
        past = as_timestamps(bars[named], f"column {named}")
    if len(past) != len(bars):
        raise DataError(
            f"x_timestamp must have one timestamp for each bar, got {len(past)} timestamps "
            f"for {len(bars)} bars"
        )
    return past


def _future(
    past: pd.DatetimeIndex, y_timestamp: Iterable[Any] | None, pred_len: int, calendar: Any
) -> pd.DatetimeIndex:
    if y_timestamp is None:
        return future_timestamps(past, pred_len, calendar=calendar).rename(TIMESTAMPS)
    if calendar is not None:
        raise ConfigError("a calendar is for making y_timestamp: give one of the two")
    future = as_timestamps(y_timestamp, "y_timestamp")
    if len(future) != pred_len:
        raise DataError(
            f"y_timestamp must have one timestamp for each bar to predict, got {len(future)} "
            f"timestamps for pred_len {pred_len}"
        )
    return future


def _check_order(past: pd.DatetimeIndex, future: pd.DatetimeIndex) -> None:
    """One clock, the oldest first: a table that begins with the newest is an easy mistake."""
    if str(past.tz) != str(future.tz):  # by name: one zone has several classes
        raise DataError(
            f"x_timestamp and y_timestamp must be on one clock, got {_clock(past)} and "
            f"{_clock(future)}; convert one with tz_convert or tz_localize"
        )
    for name, times in (("x_timestamp", past), ("y_timestamp", future)):
        late = np.flatnonzero(times[1:] <= times[:-1])
        if late.size:
            row = int(late[0]) + 1
            raise DataError(
                f"{name}, row {row + 1}: {times[row]} is not after {times[row - 1]}; sort the "
                "rows, the oldest first, and keep one of each time"
            )
    if len(past) and len(future) and future[0] <= past[-1]:
        raise DataError(
            f"y_timestamp must follow the bars: it begins at {future[0]}, the bars end at "
            f"{past[-1]}"
        )


def _features(bars: pd.DataFrame, past: pd.DatetimeIndex) -> NDArray[np.float64]:
    """(N, F): missing volume is 0, missing amount is volume times the mean of the prices."""
    if bars.empty:
        raise DataError("there are no bars to predict from; give at least one")
    repeated = [name for name in FEATURES if (bars.columns == name).sum() > 1]
    if repeated:
        raise DataError(f"the bars have more than one column {repeated[0]}; keep one")
    missing = [name for name in PRICES if name not in bars.columns]
    if missing:
        raise DataError(
            f"the bars lack {', '.join(missing)}; they have {', '.join(map(str, bars.columns))}"
        )
    columns = {name: _column(bars[name], past) for name in FEATURES if name in bars.columns}
    volume = columns.setdefault("volume", np.zeros(len(bars)))
    if "amount" not in columns:
        amount = volume * np.mean([columns[name] for name in PRICES], axis=0)
        _refuse_unusable(pd.Series(amount), amount, "amount (volume x mean price)", past)
        columns["amount"] = amount
    return np.stack([columns[name] for name in FEATURES], axis=1)


def _column(column: "pd.Series[Any]", past: pd.DatetimeIndex) -> NDArray[np.float64]:
    kind = column.dtype
    textual = pd.api.types.is_object_dtype(kind) or pd.api.types.is_string_dtype(kind)
    if not textual and not pd.api.types.is_any_real_numeric_dtype(kind):
        raise DataError(f"column {column.name} must hold numbers, not {kind}")
    numbers = pd.to_numeric(column, errors="coerce")
    values = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    _refuse_unusable(column, values, str(column.name), past)
    return values


def _refuse_unusable(
    cells: "pd.Series[Any]", values: NDArray[np.float64], name: str, past: pd.DatetimeIndex
) -> None:
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(~(np.abs(values) <= _LARGEST))
    if bad.size:
        row = int(bad[0])
        raise DataError(
            f"column {name}, row {row + 1} ({past[row]}): {cells.iloc[row]!s:.40} is not a finite "
            f"float32 number ({bad.size} of {len(values)} rows); correct or drop it"
        )


def _clock(index: pd.DatetimeIndex) -> str:
    return f"zone {index.tz}" if index.tz is not None else "no zone"

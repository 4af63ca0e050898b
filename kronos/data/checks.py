"""The rules that bars obey, each an error that names the column, the count and the first row.

The order is fixed: repeated timestamps, their order, finite numbers, positive prices, volume
and amount not negative, high and low around open and close.
"""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kronos.data.layout import FEATURES, PRICES, TIMESTAMPS, Source, quote
from kronos.errors import DataError


def check_bars(index: pd.DatetimeIndex, features: NDArray[np.float64], source: Source) -> None:
    """Raise DataError for the first rule that the bars break.

    index (N,) without NaT, features (N, 6) in the order of FEATURES.
    """
    _check_timestamps(index, source)
    for column, name in enumerate(FEATURES):
        values = features[:, column]
        _refuse(~np.isfinite(values), name, "not finite", values, source)
    for column, name in enumerate(FEATURES):
        values = features[:, column]
        if name in PRICES:
            _refuse(values <= 0, name, "zero or negative", values, source)
        else:
            _refuse(values < 0, name, "negative", values, source)
    _check_ranges(features, source)


def outside_range(features: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of N bars (N, >=4) have a high below, or a low above, one of their other prices."""
    opens, highs, lows, closes = features[:, :4].T
    # high < low needs no test of its own: open would lie above the one or below the other
    below, above = highs < np.maximum(opens, closes), lows > np.minimum(opens, closes)
    return np.asarray(below | above)


def _check_timestamps(index: pd.DatetimeIndex, source: Source) -> None:
    repeated = np.asarray(index.duplicated())
    if repeated.any():
        row = int(np.argmax(repeated))
        earlier = int(np.argmax(index == index[row]))
        raise DataError(
            f"{source.name}: column {TIMESTAMPS}, {source.row(row)}: {quote(str(index[row]))} "
            f"repeats {source.row(earlier)} ({repeated.sum()} repeated in {len(index)} bars); "
            "keep one bar for each timestamp"
        )
    backwards = np.asarray(index[1:] < index[:-1])
    if backwards.any():
        row = int(np.argmax(backwards)) + 1
        raise DataError(
            f"{source.name}: column {TIMESTAMPS}, {source.row(row)}: {quote(str(index[row]))} "
            f"is earlier than {quote(str(index[row - 1]))} before it; sort the rows by time"
        )


def _refuse(
    bad: NDArray[np.bool_], name: str, fault: str, values: NDArray[np.float64], source: Source
) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(
            f"{source.name}: column {name} is {fault} in {bad.sum()} of {len(bad)} bars, first in "
            f"{source.row(row)}: {values[row]:.9g}; correct or remove them"
        )


def _check_ranges(features: NDArray[np.float64], source: Source) -> None:
    bad = outside_range(features)
    if bad.any():
        row = int(np.argmax(bad))
        shown = ", ".join(
            f"{name} {price:.9g}" for name, price in zip(PRICES, features[row, :4], strict=True)
        )
        raise DataError(
            f"{source.name}: high and low do not contain open and close in {bad.sum()} of "
            f"{len(bad)} bars, first in {source.row(row)}: {shown}; correct them, or widen high "
            "and low with repair_bars(frame) or read_bars(path, repair=True)"
        )

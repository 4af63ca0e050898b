"""Timestamps that a caller holds in memory, and the calendar columns the model reads from them.

One clock: the columns are the wall-clock fields of the timestamps as given; a zone is kept and
never converted. Rows are counted from 1 in the errors, as in a file's.
"""

from collections.abc import Iterable
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kronos.errors import DataError

STAMPS = ("minute", "hour", "weekday", "day", "month")
"""The columns of `stamp_columns`, in order."""

WAY_OUT = "give datetimes, or text like 2024-06-18 11:15:00; see pandas.to_datetime"


def stamp_columns(timestamps: Iterable[Any]) -> NDArray[np.int64]:
    """(N, 5) int64: minute, hour, weekday (Monday 0), day, month of N timestamps.

    Takes what `as_timestamps` takes and raises the same DataErrors.
    """
    index = as_timestamps(timestamps)
    fields = (index.minute, index.hour, index.day_of_week, index.day, index.month)
    return np.stack([np.asarray(field, dtype=np.int64) for field in fields], axis=1)


def as_timestamps(timestamps: Iterable[Any], name: str = "timestamps") -> pd.DatetimeIndex:
    """N timestamps as a DatetimeIndex without NaT, in the order given.

    Takes a Series, an Index, an array or any list of datetimes or of texts, year first (ISO
    8601). A Series gives its values and its name; its own index does not count. Numbers are
    refused, since they do not say what they count. DataError names `name` and the first row
    that is missing, cannot be read or is of another time zone than row 1.
    """
    if isinstance(timestamps, pd.Series | pd.Index | np.ndarray) and (
        pd.api.types.is_datetime64_any_dtype(timestamps.dtype)
    ):
        index = pd.DatetimeIndex(timestamps)
    else:
        index = _from_cells(timestamps, name)
    missing = np.flatnonzero(index.isna())
    if missing.size:
        raise DataError(f"{name}, row {missing[0] + 1}: no timestamp (NaT); {WAY_OUT}")
    return index


def _from_cells(timestamps: Iterable[Any], name: str) -> pd.DatetimeIndex:
    if isinstance(timestamps, str) or not isinstance(timestamps, Iterable):
        raise DataError(f"{name} must be a list of timestamps, got {timestamps!r:.60}; {WAY_OUT}")
    cells = list(timestamps)
    for row, cell in enumerate(cells):
        if not _is_timestamp(cell):
            raise DataError(f"{name}, row {row + 1}: {cell!r:.60} is no timestamp; {WAY_OUT}")
    try:
        index = pd.to_datetime(cells, format="ISO8601", errors="coerce")
    except (ValueError, TypeError) as error:  # one index has one time zone
        raise _mixed_zones(cells, name) from error
    if not isinstance(index, pd.DatetimeIndex):  # older pandas: an index of objects
        raise _mixed_zones(cells, name)
    for row in np.flatnonzero(index.isna()).tolist():
        if isinstance(cells[row], str):
            raise DataError(f"{name}, row {row + 1}: {cells[row]!r:.60} is no timestamp; {WAY_OUT}")
        if not pd.isna(cells[row]):  # a datetime that only its zone can have kept out
            raise _mixed_zones(cells, name)
    return index.rename(getattr(timestamps, "name", None))


def _is_timestamp(cell: Any) -> bool:
    """A date or datetime, a text that starts with a digit, or nothing at all (NaT, None)."""
    if isinstance(cell, str):  # pandas would read "now" and "today" too
        return cell.strip()[:1].isdecimal()
    if isinstance(cell, date | np.datetime64):
        return True
    return bool(pd.api.types.is_scalar(cell)) and bool(pd.isna(cell))


def _mixed_zones(cells: list[Any], name: str) -> DataError:
    zones = [pd.to_datetime([cell], format="ISO8601", errors="coerce").tz for cell in cells]
    row = next((row for row, zone in enumerate(zones) if str(zone) != str(zones[0])), 0)
    return DataError(
        f"{name}, row {row + 1}: {cells[row]!s:.60} has another time zone than row 1, "
        f"{cells[0]!s:.60}; convert all to one zone, or drop the zones"
    )

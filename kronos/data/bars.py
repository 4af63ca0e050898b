"""Bars as a pandas frame: read from a file, validated, repaired where that is asked for."""

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kronos.data.checks import check_bars, outside_range
from kronos.data.clock import checked_index, parse_timestamps
from kronos.data.layout import (
    FEATURES,
    PRICES,
    TIMESTAMPS,
    Source,
    find_columns,
    number_fault,
)
from kronos.data.table import read_table
from kronos.errors import DataError


def read_bars(path: Path | str, *, repair: bool = False) -> pd.DataFrame:
    """Read and validate the bars of a CSV file (.csv, or .csv.gz).

    The frame has a DatetimeIndex named "timestamps" and the float64 columns open, high, low,
    close, volume, amount. Header names count without case; timestamps may also be called
    timestamp, date, datetime or time (spellings: `kronos.data.clock`), and epoch numbers
    become UTC. Volume missing is 0; amount missing is volume times the mean of the four
    prices; amount given is kept even where volume is missing. Other columns are left out.

    `repair` widens high and low as `repair_bars` does; without it such a bar is an error.

    Raises DataError naming file, column and row for whatever cannot be used, in this order:
    the file, its header, the first row with a bad cell, timestamps, then the rules of
    `kronos.data.checks`. Nothing is dropped, filled or sorted.
    """
    table = read_table(path)
    index = parse_timestamps(table.timestamps, table.source)
    return _build(index, table.columns, table.source, repair=repair)


def validate_bars(frame: pd.DataFrame, *, source: str = "bars") -> pd.DataFrame:
    """A new frame of the very form that `read_bars` gives, from any frame that has the bars.

    The timestamps are the DatetimeIndex, or else a column under one of the names a file may
    use. Raises DataError as `read_bars` does, with `source` in the place of the file.
    """
    place = Source(source)
    if frame.empty:
        raise DataError(f"{source}: the frame has no bars; give at least one")
    by_index = isinstance(frame.index, pd.DatetimeIndex)
    positions = find_columns(
        [str(name) for name in frame.columns], source, timestamps_needed=not by_index
    )
    columns = {
        name: _frame_numbers(frame.iloc[:, position], name, place)
        for name, position in positions.items()
        if name != TIMESTAMPS
    }
    if isinstance(frame.index, pd.DatetimeIndex):
        index = checked_index(frame.index, list(frame.index), place)
    else:
        index = _frame_timestamps(frame.iloc[:, positions[TIMESTAMPS]], place)
    return _build(index, columns, place, repair=False)


def repair_bars(frame: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """A copy of `frame` with high and low widened to contain open and close, and how many bars
    (rows) changed.

    Only high and low change, and only outwards. Raises DataError where a price column is
    absent or holds a cell that is not a finite number.
    """
    positions = find_columns([str(name) for name in frame.columns], "bars", timestamps_needed=False)
    prices = {
        name: _frame_numbers(frame.iloc[:, positions[name]], name, Source("bars"))
        for name in PRICES
    }
    repaired = frame.copy()
    widened, changed = _widened(prices)
    for name in ("high", "low"):
        repaired.isetitem(positions[name], widened[name])
    return repaired, changed


def _build(
    index: pd.DatetimeIndex,
    columns: dict[str, NDArray[np.float64]],
    source: Source,
    *,
    repair: bool,
) -> pd.DataFrame:
    """The validated frame of N bars from the columns (N,) that are there."""
    if repair:
        columns, _ = _widened(columns)
    prices = np.stack([columns[name] for name in PRICES], axis=1)  # N 4
    volume = columns.get("volume", np.zeros(len(index)))
    with np.errstate(over="ignore", invalid="ignore"):  # not finite is for the check to say
        amount = columns.get("amount", volume * prices.mean(axis=1))
    features = np.column_stack([prices, volume, amount])  # N 6
    check_bars(index, features, source)
    return pd.DataFrame(features, index=index, columns=list(FEATURES))


def _widened(
    columns: dict[str, NDArray[np.float64]],
) -> tuple[dict[str, NDArray[np.float64]], int]:
    """The columns with high and low widened, and the number of bars that changed."""
    opens, highs, lows, closes = (columns[name] for name in PRICES)
    changed = outside_range(np.stack([opens, highs, lows, closes], axis=1))
    high = np.maximum(highs, np.maximum(opens, closes))
    low = np.minimum(lows, np.minimum(opens, closes))
    return {**columns, "high": high, "low": low}, int(changed.sum())


def _frame_numbers(column: "pd.Series[float]", name: str, source: Source) -> NDArray[np.float64]:
    """A frame's column as numbers (N,); DataError at the first cell that is not finite."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        numbers = np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)
        if np.isfinite(numbers).all():
            return numbers
    for row, cell in enumerate(column):
        fault = number_fault(cell)
        if fault is not None:
            raise DataError(
                f"{source.name}: column {name}, {source.row(row)}: {fault}; "
                "correct the cell or remove the row"
            )
    return np.array([float(str(cell)) for cell in column], dtype=np.float64)


def _frame_timestamps(column: "pd.Series[str]", source: Source) -> pd.DatetimeIndex:
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return checked_index(pd.DatetimeIndex(column), list(column), source)
    return parse_timestamps([str(cell) for cell in column], source)

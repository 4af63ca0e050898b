"""Bars as a pandas frame: read from files, validated, repaired where that is asked for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kronos.data.columns import FEATURES, PRICES, TIMESTAMPS, Source, find_columns
from kronos.data.options import ReadOptions
from kronos.data.reading.checks import check_values, outside_range
from kronos.data.reading.clock import checked_index, parse_timestamps
from kronos.data.reading.faults import Findings
from kronos.data.reading.gather import Bars
from kronos.data.reading.loading import load
from kronos.data.reading.numbers import number_fault, read_number
from kronos.data.reading.repairs import derive_amounts, put_in_order
from kronos.data.reading.zones import index_of
from kronos.errors import DataError


def read_bars(
    path: Path | str, *, options: ReadOptions | None = None, **settings: Any
) -> pd.DataFrame:
    """Read and validate the bars of one symbol, as `kronos.data.reading.files.read_market` does.

    The frame has a DatetimeIndex named "timestamps" and the float64 columns open, high, low,
    close, volume, amount. Volume missing is 0; amount missing is volume times the mean of the
    four prices; amount given is kept even where volume is missing. Other columns are left out.

    `settings` are fields of `ReadOptions` (symbol, timezone, sort, dedupe, fill, repair,
    columns), and come before those of `options`. Nothing is dropped, filled or sorted unasked.

    Raises DataError naming file, column, row and line for whatever cannot be used, and where
    there are several symbols and none is given; ConfigError for an option that is none.
    """
    chosen = replace(options or ReadOptions(), **settings)
    bars = load(path, chosen, Findings()).bars
    if bars is None:
        raise DataError(f"{path}: no bars are left")
    symbols, _ = bars.offsets()
    if len(symbols) > 1:
        shown = ", ".join(symbols[:10]) + (", ..." if len(symbols) > 10 else "")
        raise DataError(
            f"{path}: {len(symbols)} symbols ({shown}); give one with "
            f"symbol={symbols[0]!r} (--symbol)"
        )
    return _frame(bars)


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
    return _build(index, columns, place)


def repair_bars(frame: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """A copy of `frame` with high and low widened to contain open and close, and how many bars
    (rows) changed.

    Only high and low change, and only outwards. Raises DataError where a price column is
    absent or holds a cell that is not a finite number.
    """
    positions = find_columns([str(name) for name in frame.columns], "bars", timestamps_needed=False)
    opens, highs, lows, closes = (
        _frame_numbers(frame.iloc[:, positions[name]], name, Source("bars")) for name in PRICES
    )
    changed = outside_range(np.stack([opens, highs, lows, closes], axis=1))
    repaired = frame.copy()
    repaired.isetitem(positions["high"], np.maximum(highs, np.maximum(opens, closes)))
    repaired.isetitem(positions["low"], np.minimum(lows, np.minimum(opens, closes)))
    return repaired, int(changed.sum())


def _build(
    index: pd.DatetimeIndex, columns: dict[str, NDArray[np.float64]], source: Source
) -> pd.DataFrame:
    """The validated frame of N bars from the columns (N,) that are there."""
    zeros = np.zeros(len(index))
    features = np.column_stack([columns.get(name, zeros) for name in FEATURES])  # N 6
    bars = Bars.from_frame(index, features, source)
    bars.derived[:] = "amount" not in columns
    findings = Findings()
    put_in_order(bars, ReadOptions(), findings)
    derive_amounts(bars)
    check_values(bars, findings)
    return pd.DataFrame(bars.features, index=index, columns=list(FEATURES))


def _frame(bars: Bars) -> pd.DataFrame:
    index = index_of(bars.times, bars.zone).rename(TIMESTAMPS)
    return pd.DataFrame(bars.features, index=index, columns=list(FEATURES))


def _frame_numbers(column: "pd.Series[float]", name: str, source: Source) -> NDArray[np.float64]:
    """A frame's column as numbers (N,); DataError at the first cell that is not finite."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        numbers = np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)
        if np.isfinite(numbers).all():
            return numbers
    quantity = name not in PRICES
    for row, cell in enumerate(column):
        fault = number_fault(cell, quantity=quantity)
        if fault is not None:
            raise DataError(
                f"{source.name}: column {name}, {source.row(row)}: {fault}; "
                "correct the cell or remove the row"
            )
    found = [read_number(str(cell), quantity=quantity) for cell in column]
    return np.array(found, dtype=np.float64)


def _frame_timestamps(column: "pd.Series[str]", source: Source) -> pd.DatetimeIndex:
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return checked_index(pd.DatetimeIndex(column), list(column), source)
    return parse_timestamps([str(cell) for cell in column], source)

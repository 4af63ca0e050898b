"""Files of bars into a market: one file or many, of one symbol or many, with a report on them."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kronos.data.market import Market
from kronos.data.options import ReadOptions
from kronos.data.reading.faults import Findings
from kronos.data.reading.folders import source_files
from kronos.data.reading.gather import Bars
from kronos.data.reading.loading import load
from kronos.data.reading.report import BarsReport, report_of
from kronos.data.reading.zones import index_of
from kronos.data.timestamps import stamp_columns
from kronos.errors import DataError

__all__ = ["BarsReport", "inspect_bars", "read_market", "source_files"]

_STAMPS_AT_ONCE = 1 << 20
_AS_THEY_ARE = ReadOptions()


def read_market(
    source: Path | str, options: ReadOptions = _AS_THEY_ARE
) -> tuple[Market, BarsReport]:
    """Read the bars of a source, repair what `options` ask for, check them, and say what was found.

    `source` is a file (.csv, .tsv, .txt, each also .gz, .parquet), a folder of them, or a pattern
    such as "bars/*.csv". Symbols come from a column, else each file is one, named after it.
    Files with such a column are put together by symbol. Volume missing is 0, amount missing is
    volume times the mean of the four prices.

    Raises:
        DataError: what cannot be used, naming file, column, row, line and cell. In this order:
            each file in turn (the file, its header, rows of another length, cells without a
            symbol, the first row with a cell that is no number, timestamps), zones that differ,
            then the rules of `kronos.data.reading.checks`.
        ConfigError: an option that is none.
    """
    findings = Findings()
    loaded = load(source, options, findings)
    if loaded.bars is None:
        raise DataError(f"{source}: no bars are left")
    report = report_of(loaded, findings)
    return _market(loaded.bars), report


def inspect_bars(source: Path | str, options: ReadOptions = _AS_THEY_ARE) -> BarsReport:
    """The report of `read_market`, with every fault in it, counted, instead of the first raised.

    Rows with a fault in a cell are left out of what follows. Raises DataError only for what
    cannot be read at all (no such file, no text, no header or rows, a column that is absent),
    ConfigError for an option that is none.
    """
    findings = Findings(is_strict=False)
    return report_of(load(source, options, findings), findings)


def _market(bars: Bars) -> Market:
    symbols, offsets = bars.offsets()
    arrays = (offsets, bars.times, bars.features, _stamps(bars))
    for array in arrays:
        array.setflags(write=False)
    offsets, times, features, stamps = arrays
    return Market(tuple(symbols), offsets, times, features, stamps, bars.zone)


def _stamps(bars: Bars) -> NDArray[np.uint8]:
    """(N, 5), a part at a time: pandas takes eight bytes for each."""
    stamps = np.empty((len(bars), 5), dtype=np.uint8)
    for start in range(0, len(bars), _STAMPS_AT_ONCE):
        rows = slice(start, start + _STAMPS_AT_ONCE)
        stamps[rows] = stamp_columns(index_of(bars.times[rows], bars.zone))
    return stamps

"""The timestamps of a table's rows: one column or two, texts or times, put into one zone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kronos.data.columns import DATE, TIME, TIMESTAMPS, quote
from kronos.data.options import ReadOptions
from kronos.data.reading.clock import read_clock, read_times, times_of
from kronos.data.reading.faults import Findings, Suspect
from kronos.data.reading.layouts import Section
from kronos.data.reading.numbers import is_missing
from kronos.data.reading.zones import NO_TIME, Problem, Times, in_zone

if TYPE_CHECKING:
    from kronos.data.reading.pieces import Rows

_SHORT = 6  # bytes; a cell that says there is nothing is no longer
_NO_CLOCK = "is not a date and a time of day; write them like 2024-06-18 and 11:15:00"


@dataclass(frozen=True, slots=True)
class Instants:
    """The times of the rows that have one."""

    values: NDArray[np.int64]
    """(M,), see `Times.values`."""
    zone: str | None
    kept: NDArray[np.bool_]
    """(N,), which M of the N rows these are."""


def read_instants(
    rows: "Rows", section: Section, options: ReadOptions, findings: Findings
) -> Instants:
    """The times of `rows` (at least one), faults going to `findings`."""
    keys = (TIMESTAMPS,) if TIMESTAMPS in section.columns else (DATE, TIME)
    places = [section.columns[key] for key in keys if key in section.columns]
    cells = [_Cells(rows.column(place)) for place in places]
    missing = np.logical_or.reduce([each.missing for each in cells])
    kept = ~missing
    if missing.any():
        findings.missing[TIMESTAMPS] = findings.missing.get(TIMESTAMPS, 0) + int(missing.sum())
        if options.fill == "drop":
            findings.count("dropped", int(missing.sum()))
        else:
            text = rows.texts(*places)
            findings.add(
                Suspect("missing", TIMESTAMPS, missing, text, _absence).fault(rows.source())
            )
    if missing.all():
        return Instants(np.zeros(0, dtype=np.int64), None, kept)
    first = int(np.argmin(missing))
    times = cells[0].times(first, converted=options.timezone is not None)
    if len(cells) == 2:
        times = _with_clock(times, cells[1])
    times = in_zone(times, options.timezone)
    for problem in times.problems:
        bad = problem.bad & ~missing
        if bad.any():
            words = _words(problem.words)
            suspect = Suspect("timestamp", TIMESTAMPS, bad, rows.texts(*places), words)
            findings.add(suspect.fault(rows.source()))
    kept &= times.values != NO_TIME
    return Instants(times.values if kept.all() else times.values[kept], times.zone, kept)


def _absence(text: str) -> str:
    return (
        f"{quote(text.strip())} is not a timestamp; write it, or leave the bar out with "
        "fill='drop' (--fill drop)"
    )


def _words(words: str) -> "Any":
    return lambda text: f"{quote(text.strip())} {words}"


class _Cells:
    """A column (N,) of texts, each kept once where it repeats, or of times."""

    def __init__(self, column: Any) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        self.codes: NDArray[np.int32] | None = None
        self.is_typed = pa.types.is_temporal(column.type)
        if self.is_typed:
            self.cells = column
            self.missing = np.asarray(column.is_null().to_numpy(zero_copy_only=False), dtype=bool)
            return
        if pa.types.is_floating(column.type):
            whole = pc.all(pc.equal(pc.round(column), column)).as_py()
            column = column.cast(pa.int64()) if whole else column
        if pa.types.is_dictionary(column.type):
            encoded = column.unify_dictionaries().combine_chunks()
            self.cells = encoded.dictionary.cast(pa.string())
            self.codes = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int32)
        else:
            self.cells = column.cast(pa.string())
        absent = _missing(self.cells)
        self.missing = absent if self.codes is None else absent[self.codes]

    def times(self, first: int, *, converted: bool) -> Times:
        """The times (N,); row `first` is the first that is not missing."""
        if self.is_typed:
            zone = getattr(self.cells.type, "tz", None)
            index = pd.DatetimeIndex(self.cells.to_numpy(zero_copy_only=False))
            if zone is not None:
                zone = f"UTC{zone}" if zone[0] in "+-" else zone
                index = index.tz_localize("UTC").tz_convert(zone)
            return times_of(index)
        if self.codes is None:
            return read_times(self.cells, first, converted=converted)
        times = read_times(self.cells, int(self.codes[first]), converted=converted)
        return times.of(self.codes)

    def clock(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The times of day (N,) in ns, and which are none."""
        import pyarrow as pa

        if self.is_typed:
            ticks = self.cells.cast(pa.time64("ns")).cast(pa.int64()).fill_null(0)
            return np.asarray(ticks.to_numpy(zero_copy_only=False)), self.missing
        if self.codes is None:
            encoded = self.cells.dictionary_encode().unify_dictionaries().combine_chunks()
            self.cells, codes = encoded.dictionary, encoded.indices.to_numpy(zero_copy_only=False)
            self.codes = np.asarray(codes, dtype=np.int32)
        found, bad = read_clock(self.cells.to_pylist())
        return found[self.codes], bad[self.codes]


def _missing(texts: Any) -> NDArray[np.bool_]:
    """Which of the texts (U,) say that there is nothing."""
    import pyarrow.compute as pc

    texts = pc.fill_null(texts, "")
    short = pc.less_equal(pc.binary_length(texts), _SHORT).to_numpy(zero_copy_only=False)
    absent = np.zeros(len(texts), dtype=bool)
    places = np.flatnonzero(short)
    if places.size:
        absent[places] = [is_missing(text) for text in texts.take(places).to_pylist()]
    return absent


def _with_clock(times: Times, cells: _Cells) -> Times:
    """Days with the times of day added."""
    clock, bad = cells.clock()
    values = times.values + clock
    problems = list(times.problems)
    if bad.any():
        problems.append(Problem(bad, _NO_CLOCK))
    unknown = bad | (times.values == NO_TIME)
    values[unknown] = NO_TIME
    return Times(values, times.zone, tuple(problems))

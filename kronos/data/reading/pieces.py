"""The bars of one table as arrays: cells made numbers and times, each fault with its place."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kronos.data.columns import SYMBOL, TICK_VOLUME, Source, quote
from kronos.data.options import ReadOptions
from kronos.data.reading.faults import Findings, Suspect
from kronos.data.reading.instants import read_instants
from kronos.data.reading.layouts import Section
from kronos.data.reading.numbers import number_fault, to_numbers
from kronos.data.reading.table import NUMBERS, Table

FILL = "fill it or leave the bar out with fill='ffill' or 'drop' (--fill)"
CORRECT = "correct the cell or remove the row"
_QUANTITIES = ("volume", "amount", TICK_VOLUME)

Mask = NDArray[np.bool_]


@dataclass(slots=True)
class Piece:
    """N bars of one section of a file, in its order."""

    source: Source
    """With the rows in the file of these bars."""
    symbols: list[str]
    codes: NDArray[np.int32] | None
    """(N,), places in `symbols`; None where there is one."""
    times: NDArray[np.int64]
    """(N,), see `Times.values`."""
    zone: str | None
    columns: dict[str, NDArray[np.float64]]
    """By FEATURES, (N,) each, NaN where a cell is to be filled."""


class Rows:
    """The rows of a table that are still in, and what they hold."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._kept: NDArray[np.int64] | None = None  # positions in the table; None means all

    def __len__(self) -> int:
        return self.table.count if self._kept is None else len(self._kept)

    def column(self, place: int) -> Any:
        """The cells (N,) of a column, as pyarrow has them."""
        import pyarrow as pa

        column = self.table.columns[place]
        return column if self._kept is None else column.take(pa.array(self._kept))

    def keep(self, mask: Mask) -> None:
        """Go on with the rows of `mask` (N,)."""
        if not mask.all():
            self._kept = np.flatnonzero(mask) if self._kept is None else self._kept[mask]

    def source(self) -> Source:
        """The places of the rows."""
        whole = self.table.source
        if self._kept is None:
            return whole
        rows = self._kept if whole.rows is None else whole.rows[self._kept]
        return Source(whole.name, whole.line, rows)

    def texts(self, *places: int) -> Callable[[int], str]:
        """What gives the text in the columns `places` at a position."""
        source, cell = self.source(), self.table.cell

        def text(position: int) -> str:
            cells = [cell(source.number(position), place) for place in places]
            return cells[0] if len(cells) == 1 else " ".join(part.strip() for part in cells)

        return text


def read_piece(
    table: Table, section: Section, symbol: str, options: ReadOptions, findings: Findings
) -> Piece | None:
    """The bars of a section; `symbol` is theirs where neither column nor header names it.

    None where there are none. Faults go to `findings`, in this order: cells without a symbol,
    the first row with a cell that is no number, timestamps. Their rows are left out.
    """
    rows = Rows(table)
    symbols, codes = [section.symbol or symbol], None
    if SYMBOL in section.columns:
        symbols, codes = _symbols(rows, section.columns[SYMBOL], options, findings)
    findings.symbols.update(dict.fromkeys(symbol for symbol in symbols if symbol))
    if SYMBOL not in section.columns and options.symbol not in (None, symbols[0]):
        return None
    if not len(rows):
        return None
    columns, kept = _numbers(rows, section, options, findings)
    rows.keep(kept)
    columns, codes = _masked(columns, codes, kept)
    if not len(rows):
        return None
    instants = read_instants(rows, section, options, findings)
    rows.keep(instants.kept)
    columns, codes = _masked(columns, codes, instants.kept)
    if not len(rows):
        return None
    return Piece(rows.source(), symbols, codes, instants.values, instants.zone, columns)


def _masked(
    columns: dict[str, NDArray[np.float64]], codes: NDArray[np.int32] | None, mask: Mask
) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.int32] | None]:
    if mask.all():
        return columns, codes
    return {key: column[mask] for key, column in columns.items()}, (
        None if codes is None else codes[mask]
    )


def _symbols(
    rows: Rows, place: int, options: ReadOptions, findings: Findings
) -> tuple[list[str], NDArray[np.int32]]:
    """The symbols in order of first appearance, and the place in them of each row."""
    import pyarrow as pa

    column = rows.column(place)
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    whole = column.unify_dictionaries().combine_chunks()
    spelled = [(text or "").strip() for text in whole.dictionary.to_pylist()]
    symbols = list(dict.fromkeys([*spelled, ""]))
    place_of = {symbol: at for at, symbol in enumerate(symbols)}
    places = np.array([place_of[symbol] for symbol in [*spelled, ""]], dtype=np.int32)
    codes = places[whole.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    absent = codes == place_of[""]
    if absent.any():
        findings.missing[SYMBOL] = findings.missing.get(SYMBOL, 0) + int(absent.sum())
        if options.fill != "drop":
            text = rows.texts(place)
            suspect = Suspect("missing", SYMBOL, absent, text, lambda _: _missing_symbol())
            findings.add(suspect.fault(rows.source()))
        else:
            findings.count("dropped", int(absent.sum()))
    kept = ~absent
    if options.symbol is not None:
        kept &= codes == place_of.get(options.symbol, -1)
    rows.keep(kept)
    return symbols, codes if kept.all() else codes[kept]


def _missing_symbol() -> str:
    return "the cell is empty; name the symbol, or leave the bar out with fill='drop' (--fill drop)"


def _numbers(
    rows: Rows, section: Section, options: ReadOptions, findings: Findings
) -> tuple[dict[str, NDArray[np.float64]], Mask]:
    """The number columns (N,), NaN where a cell is missing, and which rows to keep."""
    columns: dict[str, NDArray[np.float64]] = {}
    suspects: list[Suspect] = []
    missing: dict[str, Mask] = {}
    for key in (key for key in NUMBERS if key in section.columns):
        place = section.columns[key]
        quantity = key in _QUANTITIES
        numbers = to_numbers(rows.column(place), quantity=quantity, by_comma=rows.table.by_comma)
        columns[key] = numbers.values
        absent = np.isnan(numbers.values)
        if numbers.refused is not None:
            absent &= ~numbers.refused
            words = _refusal(quantity)
            bad = numbers.refused
            suspects.append(Suspect("not a number", key, bad, rows.texts(place), words))
        infinite = np.isinf(numbers.values)
        if infinite.any():
            suspects.append(
                Suspect("infinite", key, infinite, rows.texts(place), _refusal(quantity))
            )
        if absent.any():
            missing[key] = absent
    kept = np.ones(len(rows), dtype=bool)
    if section.symbol is not None and len(missing) == len(columns):
        empty = np.logical_and.reduce(list(missing.values()))
        if empty.any():
            told = f"{section.symbol} has no bar in {empty.sum()} rows: all of its cells are empty"
            findings.notes[told] = None
        kept &= ~empty
        missing = {key: absent & ~empty for key, absent in missing.items()}
    kept &= _without_missing(rows, section, missing, suspects, options, findings)
    for suspect in sorted(suspects, key=lambda suspect: suspect.first):
        findings.add(suspect.fault(rows.source()))
        kept &= ~suspect.bad
    return _chosen_volume(columns, findings), kept


def _without_missing(
    rows: Rows,
    section: Section,
    missing: dict[str, Mask],
    suspects: list[Suspect],
    options: ReadOptions,
    findings: Findings,
) -> Mask:
    """Count missing cells and add them to the suspects, unless they are to be filled or dropped;
    which rows stay."""
    kept = np.ones(len(rows), dtype=bool)
    for key, absent in missing.items():
        if not absent.any():
            continue
        findings.missing[key] = findings.missing.get(key, 0) + int(absent.sum())
        text = rows.texts(section.columns[key])
        if options.fill is None:
            suspects.append(Suspect("missing", key, absent, text, _absence))
        elif options.fill == "drop":
            kept &= ~absent
    findings.count("dropped", int((~kept).sum()))
    # the leftmost column first where a row has several
    suspects.sort(key=lambda suspect: NUMBERS.index(suspect.column))
    return kept


def _absence(text: str) -> str:
    return f"{number_fault(text) or 'the cell is empty'}; {FILL}"


def _refusal(quantity: bool) -> Callable[[str], str]:
    def words(text: str) -> str:
        fault = number_fault(text, quantity=quantity)
        comma = f"{quote(text)} is not a number (a decimal comma, or thousands?)"
        return f"{fault or comma}; {CORRECT}"

    return words


def _chosen_volume(
    columns: dict[str, NDArray[np.float64]], findings: Findings
) -> dict[str, NDArray[np.float64]]:
    """The columns, the volume being that of ticks where no other was traded."""
    ticks = columns.pop(TICK_VOLUME, None)
    if ticks is not None and not columns["volume"].any():
        columns["volume"] = ticks
        told = "the volume is the number of ticks, since the traded one is 0 throughout"
        findings.notes[told] = None
    return columns

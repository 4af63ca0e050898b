"""Where the header of a text of bars ends, and which name and ticker each column has."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from kronos.data.columns import PRICES, TIMESTAMP_NAMES, known_columns, plain_name
from kronos.data.reading.numbers import is_missing, read_number
from kronos.data.reading.text import Row, delimiter_of, rows_of
from kronos.errors import DataError

_LINES_ABOVE = 4  # an address or a notice that some sources write above the header
_SAMPLES = 12
_WIDE_NAMES = {*PRICES, "adj close", "volume", "dividends", "stock splits", "capital gains"}


@dataclass(frozen=True, slots=True)
class Header:
    """What stands above the bars of a file with C columns."""

    names: tuple[str, ...]
    """(C,), as the file writes them; their numbers, from 1, where it has no header."""
    is_named: bool
    """Whether there is a header."""
    rows: int
    """How many rows stand above the first bar, lines of a notice among them."""
    tickers: tuple[str, ...] | None = None
    """(C,), where a second row of the header names the symbol of each column."""
    notices: int = 0
    """How many of the rows above are a notice."""


@dataclass(frozen=True, slots=True)
class Opening:
    """How a text of bars begins."""

    header: Header
    delimiter: str
    start: int
    """The byte at which the first bar starts."""
    samples: list[list[str]]
    """The cells of the first bars."""


def read_opening(data: bytes, source: str, mapped: Mapping[str, str]) -> Opening:
    """The header of the text `data`, with the first bars under it.

    `mapped` are the names, or numbers, of columns that the caller knows (ReadOptions.columns).
    Raises DataError where the text is empty or has a header but no bars.
    """
    head = data[: 1 << 16].decode("utf-8", "replace").split("\n")
    lines = [line for line in head if line.strip()]
    if not lines:
        raise DataError(f"{source}: the file is empty; give a header and rows of bars")
    delimiters = dict.fromkeys(delimiter_of(line) for line in lines[: _LINES_ABOVE + 1])
    found: list[tuple[str, list[Row], Header]] = []
    for delimiter in delimiters:
        rows = list(islice(rows_of(data, delimiter, source), _LINES_ABOVE + 3 + _SAMPLES))
        header = _header([row.cells for row in rows], mapped)
        found.append((delimiter, rows, header))
        if not header.is_named or _is_header(header.names, mapped):
            break
    else:
        del found[1:]  # none is known: the first line is what the error shows
    delimiter, rows, header = found[-1]
    bars = rows[header.rows :]
    if not bars:
        raise DataError(f"{source}: a header but no rows; give at least one bar")
    return Opening(header, delimiter, bars[0].start, [row.cells for row in bars[:_SAMPLES]])


def _header(rows: Sequence[list[str]], mapped: Mapping[str, str]) -> Header:
    wide = _wide_header(rows)
    if wide is not None:
        return wide
    if _is_bar(rows[0]):
        return Header(tuple(str(number) for number in range(1, len(rows[0]) + 1)), False, 0)
    for above, cells in enumerate(rows[: _LINES_ABOVE + 1]):
        if _is_header(cells, mapped):
            return Header(tuple(cells), True, above + 1, notices=above)
    return Header(tuple(rows[0]), True, 1)


def _is_header(names: Sequence[str], mapped: Mapping[str, str]) -> bool:
    known = known_columns(names)
    given = {name.strip() for name in names}
    return all(
        price in known or str(mapped.get(price, "")).strip() in given - {""} for price in PRICES
    )


def _is_bar(cells: Sequence[str]) -> bool:
    """Whether there are four numbers or more among the cells, and no column's name."""
    return sum(map(_is_number, cells)) >= 4 and not known_columns(cells)


def _is_number(cell: str) -> bool:
    number = read_number(cell, quantity=True)
    return number is not None and math.isfinite(number)


def _wide_header(rows: Sequence[list[str]]) -> Header | None:
    """The header of two or three rows that yfinance's frames have; None where it is no such one.

    In either order a row of names and a row of tickers, then maybe one with the index's name.
    """
    if len(rows) < 2 or len(rows[0]) != len(rows[1]) or len(rows[0]) < 5:
        return None
    first, second = rows[0], rows[1]
    if _are_wide_names(first) and _names_the_index(second):
        return Header((second[0], *first[1:]), True, 2)
    if _are_wide_names(second):
        names, tickers = second, first
    elif _are_wide_names(first):
        names, tickers = first, second
    else:
        return None
    if not _are_tickers(tickers[1:], names[1:]):
        return None
    if len(rows) > 2 and _names_the_index(rows[2]):
        return Header((rows[2][0], *names[1:]), True, 3, _trimmed(tickers))
    index = next((cell for cell in (first[0], second[0]) if _is_time(cell)), "Date")
    return Header((index, *names[1:]), True, 2, _trimmed(tickers))


def _trimmed(cells: Sequence[str]) -> tuple[str, ...]:
    return ("", *(cell.strip() for cell in cells[1:]))


def _are_wide_names(cells: Sequence[str]) -> bool:
    names = {plain_name(cell) for cell in cells[1:]}
    return set(PRICES) <= names <= _WIDE_NAMES


def _are_tickers(tickers: Sequence[str], names: Sequence[str]) -> bool:
    """Whether each of `tickers` is a text that has all prices among the `names` beside it."""
    fields: dict[str, set[str]] = {}
    for ticker, name in zip(tickers, names, strict=True):
        fields.setdefault(ticker.strip(), set()).add(plain_name(name))
    return all(
        set(PRICES) <= there and not is_missing(ticker) and not _is_number(ticker)
        for ticker, there in fields.items()
    )


def _names_the_index(cells: Sequence[str]) -> bool:
    blank = all(not cell.strip() or cell.startswith("Unnamed") for cell in cells[1:])
    return blank and _is_time(cells[0])


def _is_time(name: str) -> bool:
    return plain_name(name) in TIMESTAMP_NAMES

"""A file of bars as columns: text with pyarrow's CSV reader, or Parquet.

Number columns are converted while they are read. Only where that fails is a file read again as
text, and only where its rows differ in length, or its quotes are wrong, row by row.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from kronos.data.columns import DATE, FEATURES, SYMBOL, TICK_VOLUME, TIME, TIMESTAMPS, Source, quote
from kronos.data.reading.header import Header, Opening, read_opening
from kronos.data.reading.layouts import Layout, find_layout
from kronos.data.reading.numbers import MISSING_SPELLINGS
from kronos.data.reading.text import WAY_OUT, Rows, read_text, rows_of
from kronos.errors import DataError

PARQUET = (".parquet", ".pq")
NUMBERS = (*FEATURES, TICK_VOLUME)
TEXTS = (TIMESTAMPS, DATE, TIME, SYMBOL)
_BLOCK = 1 << 23
_SAMPLES = 12


@dataclass(frozen=True, slots=True)
class Table:
    """N rows of a file, all as long as its header."""

    source: Source
    layout: Layout
    names: tuple[str, ...]
    """Of all columns, as the file writes them."""
    columns: Mapping[int, Any]
    """The columns that the layout uses, by position: pyarrow arrays (N,)."""
    count: int
    cell: Callable[[int, int], str]
    """The text in a row of the file, from 0, and a column."""
    encoding: str
    by_comma: bool = True
    """Whether commas divide the columns."""
    ragged: tuple[tuple[int, int], ...] = ()
    """Rows of another length, left out: number in the file, from 0, and how many cells."""


def read_table(path: Path, mapped: Mapping[str, str]) -> Table:
    """The table of a file; `mapped` is ReadOptions.columns.

    Raises DataError for what cannot be read at all: no file, no text or Parquet, no rows, a
    header without what is needed, quotes that are not as CSV has them.
    """
    if path.suffix.lower() in PARQUET:
        return _read_parquet(path, mapped)
    text = read_text(path)
    opening = read_opening(text.data, str(path), mapped)
    layout = find_layout(opening, str(path), mapped)
    rows = Rows(path, opening.delimiter, opening.header.rows)
    source = Source(str(path), rows.line)
    names, by_comma = opening.header.names, opening.delimiter == ","

    def cell(row: int, position: int) -> str:
        return rows.cells(row)[position]

    columns = _columns(text.data, opening, layout)
    if columns is not None:
        count = len(next(iter(columns.values())))
        return Table(source, layout, names, columns, count, cell, text.encoding, by_comma)
    columns, kept, ragged = _row_by_row(text.data, opening, layout, str(path))
    source = Source(str(path), rows.line, kept)
    return Table(
        source, layout, names, columns, len(kept), cell, text.encoding, by_comma, tuple(ragged)
    )


def _used(layout: Layout, kinds: Iterable[str]) -> list[int]:
    """Positions of the columns of these kinds, each once."""
    places = (part.columns[key] for part in layout.sections for key in kinds if key in part.columns)
    return list(dict.fromkeys(places))


def _columns(data: bytes, opening: Opening, layout: Layout) -> dict[int, Any] | None:
    """The columns in use, numbers where all of them are; None where rows differ in length."""
    import pyarrow as pa

    # what repeats over symbols is kept once
    many = len(_used(layout, (SYMBOL,))) > 0 or len(_used(layout, (TIME,))) > 0
    text = pa.dictionary(pa.int32(), pa.string()) if many else pa.string()
    numbers = _used(layout, NUMBERS)
    texts = {place: text for place in _used(layout, TEXTS)}
    for number in (pa.float64(), pa.string()):
        types = texts | dict.fromkeys(numbers, number)
        try:
            table = _parse(data, opening, types)
        except pa.ArrowInvalid:
            continue
        return table
    return None


def _parse(data: bytes, opening: Opening, types: Mapping[int, Any]) -> dict[int, Any] | None:
    import pyarrow as pa
    from pyarrow import csv

    others: list[str] = []

    def note(row: Any) -> str:
        if row.text.strip():
            others.append(row.text)
        return "skip"

    table = csv.read_csv(
        pa.BufferReader(pa.py_buffer(data)[opening.start :]),
        read_options=csv.ReadOptions(
            column_names=[str(place) for place in range(len(opening.header.names))],
            block_size=_BLOCK,
        ),
        parse_options=csv.ParseOptions(
            delimiter=opening.delimiter,
            newlines_in_values=b'"' in data,
            invalid_row_handler=note,
        ),
        convert_options=csv.ConvertOptions(
            column_types={str(place): kind for place, kind in types.items()},
            include_columns=[str(place) for place in types],
            null_values=MISSING_SPELLINGS,
            strings_can_be_null=False,
            check_utf8=False,  # done for the whole text
        ),
    )
    return None if others else {place: table.column(str(place)) for place in types}


def _row_by_row(
    data: bytes, opening: Opening, layout: Layout, source: str
) -> tuple[dict[int, Any], Any, list[tuple[int, int]]]:
    """The columns as text, the numbers of the rows kept, and the rows of another length."""
    import pyarrow as pa

    places = _used(layout, (*TEXTS, *NUMBERS))
    width = len(opening.header.names)
    cells: dict[int, list[str]] = {place: [] for place in places}
    kept: list[int] = []
    ragged: list[tuple[int, int]] = []
    body = islice(rows_of(data, opening.delimiter, source), opening.header.rows, None)
    for number, row in enumerate(body):
        if len(row.cells) != width:
            ragged.append((number, len(row.cells)))
            continue
        kept.append(number)
        for place in places:
            cells[place].append(row.cells[place])
    columns = {place: pa.chunked_array([pa.array(cells[place], pa.string())]) for place in places}
    return columns, np.array(kept, dtype=np.int64), ragged


def _read_parquet(path: Path, mapped: Mapping[str, str]) -> Table:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
        names = tuple(file.schema_arrow.names)
        first = next(file.iter_batches(batch_size=_SAMPLES), None)
        count = file.metadata.num_rows
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise DataError(f"cannot read {path}: {reason}; {WAY_OUT}") from error
    if not count or first is None:
        raise DataError(f"{path}: columns but no rows; give at least one bar")
    cells = [[_text(cell) for cell in column.to_pylist()] for column in first.columns]
    samples = [list(row) for row in zip(*cells, strict=True)]
    opening = Opening(Header(names, True, 0), "", 0, samples)
    layout = find_layout(opening, str(path), mapped)
    used = _used(layout, (*TEXTS, *NUMBERS))
    table = file.read(columns=[names[place] for place in used])
    columns = {place: _plain(table.column(names[place])) for place in used}
    _check_types(columns, layout, names, str(path))

    def cell(row: int, position: int) -> str:
        return _text(columns[position][row].as_py())

    return Table(Source(str(path)), layout, names, columns, count, cell, "Parquet")


def _plain(column: Any) -> Any:
    """The column, unless it is a dictionary of anything but texts: then its values."""
    import pyarrow as pa

    kind = column.type
    if not pa.types.is_dictionary(kind) or pa.types.is_string(kind.value_type):
        return column
    return column.cast(kind.value_type)


def _check_types(
    columns: Mapping[int, Any], layout: Layout, names: tuple[str, ...], source: str
) -> None:
    """DataError for a column of Parquet whose type can be no number, no time or no name."""
    from pyarrow import types

    text = (types.is_string, types.is_large_string, types.is_dictionary, types.is_integer)
    number = (*text, types.is_floating, types.is_decimal, types.is_null)
    time = (*text, types.is_floating, types.is_timestamp, types.is_date, types.is_time)
    for part in layout.sections:
        for key, place in part.columns.items():
            allowed = number if key in NUMBERS else text if key == SYMBOL else time
            kind = columns[place].type
            if not any(is_kind(kind) for is_kind in allowed):
                raise DataError(
                    f"{source}: column {quote(names[place])} holds {kind}, which can be no {key}; "
                    "convert it"
                )


def _text(value: object) -> str:
    return "" if value is None else str(value)

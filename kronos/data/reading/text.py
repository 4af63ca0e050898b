"""Files as text: bytes in any of a few encodings made UTF-8, and their rows with exact places.

Big files are never walked through here row by row, except to tell where a fault stands.
"""

import codecs
import csv
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kronos.errors import DataError

DELIMITERS = (",", "\t", ";", "|")
WAY_OUT = "give a readable .csv, .csv.gz or .parquet file"
_CHUNK = 1 << 24
_MARKS = (
    (codecs.BOM_UTF8, "utf-8", "UTF-8 with a byte order mark"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "UTF-16"),
)
_NO_MARK = (b"", "utf-8", "UTF-8")


@dataclass(frozen=True, slots=True)
class Text:
    """A whole file as UTF-8, without a byte order mark."""

    data: bytes
    encoding: str
    """What the file is written in, in words."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a text that is not blank."""

    start: int
    """The byte where it starts."""
    line: int
    """The line it ends on, from 1."""
    cells: list[str]


def read_text(path: Path) -> Text:
    """The text of a file, plain or (.gz) compressed: UTF-8, UTF-16 with a mark, or GB18030.

    GB18030, which GBK and GB2312 are part of, is tried only on what is not UTF-8.

    Raises DataError where the file cannot be read, or naming the line of a byte that is neither.
    """
    data = read_bytes(path)
    if data.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise DataError(f"{path}: a spreadsheet, not text; save it as CSV UTF-8")
    text = _decoded(data, str(path))
    if b"\n" not in text.data and b"\r" in text.data:
        text = Text(text.data.replace(b"\r", b"\n"), text.encoding)
    return text


def read_bytes(path: Path) -> bytes:
    """The bytes of a file, decompressed; DataError where it cannot be read."""
    try:
        if path.suffix.lower() == ".gz":
            with gzip.open(path, "rb") as file:
                return file.read()
        return path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"cannot read {path}: {reason}; {WAY_OUT}") from error


def _decoded(data: bytes, source: str) -> Text:
    if data.isascii():
        return Text(data, "UTF-8")
    mark, encoding, words = next((row for row in _MARKS if data.startswith(row[0])), _NO_MARK)
    body = data[len(mark) :]
    if encoding != "utf-8":
        return Text(_recoded(body, encoding, source), words)
    bad = _first_bad_byte(body)
    if bad is None:
        return Text(body, words)
    if mark:
        raise _bad_byte(body, bad, source, "UTF-8")
    try:
        return Text(_recoded(body, "gb18030", source), "GB18030")
    except DataError as error:
        raise _bad_byte(body, bad, source, "UTF-8, nor is the file GB18030") from error


def _first_bad_byte(data: bytes) -> int | None:
    """The place of the first byte that is not UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(data), _CHUNK):
        before = len(decoder.getstate()[0])  # of a character that the last chunk cut
        try:
            decoder.decode(data[start : start + _CHUNK], final=start + _CHUNK >= len(data))
        except UnicodeDecodeError as error:
            return start - before + error.start
    return None


def _recoded(data: bytes, encoding: str, source: str) -> bytes:
    decoder = codecs.getincrementaldecoder(encoding)()
    parts: list[bytes] = []
    try:
        for start in range(0, len(data), _CHUNK):
            part = decoder.decode(data[start : start + _CHUNK], start + _CHUNK >= len(data))
            parts.append(part.encode("utf-8"))
    except UnicodeError as error:
        raise DataError(
            f"{source}: not {encoding.upper()} text ({error}); save it as UTF-8 text"
        ) from error
    return b"".join(parts)


def _bad_byte(data: bytes, place: int, source: str, what: str) -> DataError:
    line = data.count(b"\n", 0, place) + 1
    return DataError(
        f"{source}: byte 0x{data[place]:02x} at line {line} is not {what}; "
        "save the file as UTF-8 text (spreadsheets: 'CSV UTF-8')"
    )


def delimiter_of(line: str) -> str:
    """The delimiter that stands most often in a header's `line`, outside quotes; else a comma."""
    bare = "".join(line.split('"')[::2])
    return max(DELIMITERS, key=lambda mark: (bare.count(mark), mark == ","))


def rows_of(data: bytes, delimiter: str, source: str) -> Iterator[Row]:
    """The rows of a text that are not blank, with their places.

    Raises DataError naming the line where quotes are not as CSV has them.
    """
    stop = 0

    def lines() -> Iterator[str]:
        nonlocal stop
        while stop < len(data):
            start, stop = stop, data.find(b"\n", stop) + 1 or len(data)
            yield data[start:stop].decode("utf-8")

    reader = csv.reader(lines(), delimiter=delimiter, strict=True)
    start = 0
    try:
        for cells in reader:
            if len(cells) > 1 or (cells and cells[0].strip()):  # a blank line is no row
                yield Row(start, reader.line_num, cells)
            start = stop
    except csv.Error as error:
        raise DataError(
            f"{source}: not a CSV file at line {reader.line_num} ({error}); "
            "export it as comma-separated text"
        ) from error


class Rows:
    """The rows of a file's body by number, walked through once, when the first is asked for."""

    def __init__(self, path: Path, delimiter: str, before: int) -> None:
        """`before`: how many rows stand above the first row of the body."""
        self._path, self._delimiter, self._before = path, delimiter, before
        self._data = b""
        self._lines: NDArray[np.int64] | None = None
        self._starts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def line(self, row: int) -> int:
        """The line that row `row`, from 0, ends on, from 1."""
        lines = self._walked()
        return int(lines[row])

    def cells(self, row: int) -> list[str]:
        """The cells of row `row`, from 0."""
        self._walked()
        found = rows_of(self._data[self._starts[row] :], self._delimiter, str(self._path))
        return next(found).cells

    def _walked(self) -> NDArray[np.int64]:
        if self._lines is None:
            self._data = read_text(self._path).data
            rows = rows_of(self._data, self._delimiter, str(self._path))
            places = [(row.line, row.start) for row in islice(rows, self._before, None)]
            self._starts = np.array([start for _, start in places], dtype=np.int64)
            self._lines = np.array([line for line, _ in places], dtype=np.int64)
        return self._lines

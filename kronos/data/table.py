"""Reading a CSV file of bars into arrays, strictly: the first row that cannot be read is an error.

The rows come from Python's csv module in blocks, so that a fault names its exact line (quoted
line breaks and blank lines included) and memory stays bounded by the numbers, not their text.
"""

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from kronos.data.layout import TIMESTAMPS, Source, find_columns, number_fault
from kronos.errors import DataError

ROWS_PER_BLOCK = 65_536

Block = list[tuple[int, list[str]]]  # line in the file, cells of the row


@dataclass(frozen=True, slots=True)
class Table:
    """The known columns of a CSV file with N rows of data."""

    timestamps: list[str]
    """The N timestamps as they stand there."""
    columns: dict[str, NDArray[np.float64]]
    """The number columns that are there, each (N,), all finite."""
    source: Source


def read_table(path: Path | str) -> Table:
    """Read the CSV file `path` (plain or, ending in .gz, compressed), UTF-8 with or without BOM.

    Raises DataError naming file, column and row where it cannot be read: first what is wrong
    with the file, then with its header, then with the first faulty row, cells from left to
    right as FEATURES orders them.
    """
    path = Path(path)
    try:
        with _open(path) as file:
            return _parse(_numbered_rows(file, str(path)), str(path))
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(
            f"cannot read {path}: {reason}; give a readable .csv or .csv.gz file"
        ) from error


def _open(path: Path) -> BinaryIO:
    if path.suffix.lower() == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")


def _numbered_rows(file: BinaryIO, source: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(_decoded_lines(file, source), strict=True)
    try:
        for row in reader:
            if len(row) > 1 or (row and row[0].strip()):  # a blank line is no row
                yield reader.line_num, row
    except csv.Error as error:
        raise DataError(
            f"{source}: not a CSV file at line {reader.line_num} ({error}); "
            "export it as comma-separated text"
        ) from error


def _decoded_lines(file: BinaryIO, source: str) -> Iterator[str]:
    # decoding line by line, not by a text wrapper, is what makes the line of a fault exact
    encoding = "utf-8-sig"  # a byte order mark may open the first line only
    for number, line in enumerate(file, start=1):
        try:
            yield line.decode(encoding)
        except UnicodeDecodeError as error:
            byte = line[error.start]
            raise DataError(
                f"{source}: byte 0x{byte:02x} at line {number} is not UTF-8; "
                "save the file as UTF-8 text (spreadsheets: 'CSV UTF-8')"
            ) from error
        encoding = "utf-8"


def _parse(rows: Iterator[tuple[int, list[str]]], source: str) -> Table:
    _, header = next(rows, (0, None))
    if header is None:
        raise DataError(f"{source}: the file is empty; give a header and rows of bars")
    positions = find_columns(header, source)
    at_timestamp = positions.pop(TIMESTAMPS)

    timestamps: list[str] = []
    lines: list[int] = []
    blocks: list[NDArray[np.float64]] = []  # each (rows, columns)
    while block := list(islice(rows, ROWS_PER_BLOCK)):
        numbers = _numbers(block, list(positions.values()), len(header))
        if numbers is None:
            raise _first_fault(block, positions, len(header), source, rows_before=len(lines))
        blocks.append(numbers)
        timestamps.extend(cells[at_timestamp] for _, cells in block)
        lines.extend(line for line, _ in block)
    if not lines:
        raise DataError(f"{source}: a header but no rows; give at least one bar")

    table = np.concatenate(blocks)
    columns = {name: table[:, place].copy() for place, name in enumerate(positions)}
    return Table(timestamps, columns, Source(source, np.array(lines, dtype=np.int64)))


def _numbers(block: Block, positions: Sequence[int], row_length: int) -> NDArray[np.float64] | None:
    """The cells at `positions` as numbers (rows, columns); None if any row has a fault."""
    if any(len(cells) != row_length for _, cells in block):
        return None
    texts = [cells[position] for _, cells in block for position in positions]
    try:
        numbers = np.array(texts, dtype=np.float64)
    except ValueError:
        return None
    if not np.isfinite(numbers).all() or "_" in "".join(texts):
        return None
    return numbers.reshape(len(block), len(positions))


def _first_fault(
    block: Block, positions: Mapping[str, int], row_length: int, source: str, rows_before: int
) -> DataError:
    for row, (line, cells) in enumerate(block, start=rows_before + 1):
        if len(cells) != row_length:
            return DataError(
                f"{source}: row {row} (line {line}) has {len(cells)} cells, the header "
                f"{row_length}; is there a thousands separator? Write numbers without"
            )
        for name, position in positions.items():
            fault = number_fault(cells[position])
            if fault is not None:
                return DataError(
                    f"{source}: column {name}, row {row} (line {line}): {fault}; "
                    "correct the cell or remove the row"
                )
    raise AssertionError("a block without a faulty row was refused")

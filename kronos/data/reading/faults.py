"""Faults of bars, each told by its count and its first place: raised at once, or collected."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kronos.data.columns import Source
from kronos.errors import DataError


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One kind of fault in one column: how often it is there, and where first."""

    kind: str
    """One of "row length", "missing", "not a number", "infinite", "timestamp", "duplicate",
    "unsorted", "zero or negative", "negative", "range" and "zone"."""
    column: str | None
    """Our name of the column; None where it is about whole rows."""
    count: int
    """How many cells or rows are so."""
    message: str
    """The line that an error says, with the way out."""
    file: str
    symbol: str | None = None
    row: int | None = None
    """The first row, counted from 1 below the header."""
    line: int | None = None
    """The line in the file it ends on; None where there are no lines."""
    text: str | None = None
    """What stands in the cell."""

    def plain(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)


@dataclass(slots=True)
class Findings:
    """What becomes of faults: the first is an error, or all are kept."""

    is_strict: bool = True
    faults: list[Fault] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    """Cells or rows of each kind, those that repairs mend among them."""
    missing: dict[str, int] = field(default_factory=dict)
    """Missing cells of each column."""
    symbols: dict[str, None] = field(default_factory=dict)
    """All that the files have, those that are not asked for among them."""
    notes: dict[str, None] = field(default_factory=dict)
    """What else is to be told."""

    def add(self, fault: Fault) -> None:
        """Keep the fault; DataError where the first ends the reading."""
        if self.is_strict:
            raise DataError(fault.message)
        for place, other in enumerate(self.faults):
            if (other.kind, other.column) == (fault.kind, fault.column):  # of another file
                self.faults[place] = replace(other, count=other.count + fault.count)
                return
        self.faults.append(fault)

    def count(self, kind: str, number: int) -> None:
        """Add to what the report counts, whether it is a fault or mended."""
        self.counts[kind] = self.counts.get(kind, 0) + int(number)


@dataclass(frozen=True, slots=True)
class Suspect:
    """Cells of one column that may be a fault; its message is made only if it is told."""

    kind: str
    column: str
    bad: NDArray[np.bool_]
    """(N,), at least one."""
    text: Callable[[int], str]
    """The cell at a position."""
    words: Callable[[str], str]
    """What is said of a cell with this text, the text in it, with the way out."""

    @property
    def first(self) -> int:
        """The position of the first."""
        return int(np.argmax(self.bad))

    def fault(self, source: Source, symbol: str | None = None) -> Fault:
        """The fault, with its place told."""
        text = self.text(self.first)
        row = source.number(self.first)
        return Fault(
            kind=self.kind,
            column=self.column,
            count=int(self.bad.sum()),
            message=(
                f"{source.name}: column {self.column}, {source.row(self.first)}: {self.words(text)}"
            ),
            file=source.name,
            symbol=symbol,
            row=row + 1,
            line=None if source.line is None else source.line(row),
            text=text,
        )

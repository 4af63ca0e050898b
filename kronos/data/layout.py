"""What the columns of bars are called, and how a place in them is told to a user."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kronos.errors import DataError

PRICES = ("open", "high", "low", "close")
FEATURES = (*PRICES, "volume", "amount")
TIMESTAMPS = "timestamps"
TIMESTAMP_NAMES = ("timestamps", "timestamp", "date", "datetime", "time")

LONGEST_QUOTE = 40


@dataclass(frozen=True, slots=True)
class Source:
    """Where bars come from, to name the place of a fault."""

    name: str
    """A file, or what the caller calls its frame."""
    lines: NDArray[np.int64] | None = None
    """Line of each row in the file, (N,); None where there is no file."""

    def row(self, position: int) -> str:
        """The row at `position` (from 0) in words: rows count from 1, below the header."""
        if self.lines is None:
            return f"row {position + 1}"
        return f"row {position + 1} (line {self.lines[position]})"


def find_columns(
    names: Sequence[str], source: str, *, timestamps_needed: bool = True
) -> dict[str, int]:
    """Positions of the known columns among `names`, keyed by their names here.

    Names are compared without case and outer blanks; the timestamps may go by any of
    TIMESTAMP_NAMES. Volume and amount may be absent, unknown columns are ignored.

    Raises DataError where a needed column is absent or a known one stands there twice.
    """
    found: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        known = name.strip().lower()
        key = TIMESTAMPS if known in TIMESTAMP_NAMES else known
        if key in (TIMESTAMPS, *FEATURES):
            found.setdefault(key, []).append(position)
    for key, positions in found.items():
        if len(positions) > 1:
            given = ", ".join(quote(names[position]) for position in positions)
            raise DataError(f"{source}: {len(positions)} columns for {key} ({given}); keep one")
    needed = (TIMESTAMPS, *PRICES) if timestamps_needed else PRICES
    missing = [key for key in needed if key not in found]
    if missing:
        there = ", ".join(quote(name) for name in names[:20]) or "none"
        raise DataError(
            f"{source}: no column {', '.join(missing)}; the columns there are {there}; "
            "rename them, or separate them by commas"
        )
    return {key: found[key][0] for key in (TIMESTAMPS, *FEATURES) if key in found}


def number_fault(cell: object) -> str | None:
    """What keeps `cell` from being a finite number, in words that quote it; None if nothing."""
    text = str(cell)
    if not text.strip():
        return "the cell is empty"
    try:
        number = float(text)
    except ValueError:
        return f"{quote(text)} is not a number"
    if "_" in text:  # Python reads 1_000 as a number, a table never means it
        return f"{quote(text)} is not a number"
    if math.isnan(number):
        return f"{quote(text)} is not a number (NaN)"
    return None if math.isfinite(number) else f"{quote(text)} is infinite"


def quote(text: str) -> str:
    """`text` in quotes on one line, shortened where it is long."""
    shown = text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + "…"
    return repr(shown)

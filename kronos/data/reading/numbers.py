"""Cells as numbers: what a cell may look like, and what is said of one that is no number.

Plain numbers are converted by pyarrow, whole columns at once. Only the cells that it refuses are
read one by one, each spelling once: thousands separators, full-width digits, 万, 亿, K, M and B.
Percent and currency signs, decimal commas and 1_000 are never read.
"""

import math
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kronos.data.columns import quote

# Cells that say there is no number. Compared without case, blanks and width.
MISSING = ("", "nan", "-nan", "null", "none", "n/a", "na", "#n/a", "<na>", "nat", "-", "--")
MISSING_SPELLINGS = sorted(
    {form for word in MISSING for form in (word, word.upper(), word.capitalize())}
    | {"NaN", "-NaN", "NaT"}
)
_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_QUANTITY = re.compile(r"(.*?)\s*(万亿|万|亿|[KMBkmb])")
_SCALES = {"万": 4, "亿": 8, "万亿": 12, "K": 3, "M": 6, "B": 9}
_PLAIN_CELL = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"


@dataclass(frozen=True, slots=True)
class Numbers:
    """A column of N cells as numbers."""

    values: NDArray[np.float64]
    """(N,), NaN where the cell is missing or no number."""
    refused: NDArray[np.bool_] | None = None
    """(N,), which cells are neither missing nor numbers; None where there are none."""


def is_missing(text: str) -> bool:
    """Whether a cell says that there is nothing: empty, NaN, null, None, N/A, - or --."""
    return unicodedata.normalize("NFKC", text).strip().lower() in MISSING


def read_number(text: str, *, quantity: bool = False, commas: bool = True) -> float | None:
    """The number that the cell `text` means, NaN where it is missing, None where it is none.

    `quantity` allows 万, 亿, K, M and B behind it, `commas` thousands separators.
    """
    plain = unicodedata.normalize("NFKC", text).strip()
    if plain.lower() in MISSING:
        return math.nan
    if _INFINITE.fullmatch(plain):
        return -math.inf if plain.startswith("-") else math.inf
    places = 0
    scaled = _QUANTITY.fullmatch(plain) if quantity else None
    if scaled:
        plain, places = scaled[1], _SCALES[scaled[2].upper()]
    if commas and _THOUSANDS.fullmatch(plain):
        plain = plain.replace(",", "")
    if not _PLAIN.fullmatch(plain):
        return None
    # by decimals, since 1.1 * 1e8 is not 110000000
    return float(Decimal(plain).scaleb(places)) if places else float(plain)


def number_fault(cell: object, *, quantity: bool = False) -> str | None:
    """What keeps `cell` from being a finite number, in words that quote it; None if nothing."""
    text = str(cell)
    if not text.strip():
        return "the cell is empty"
    number = read_number(text, quantity=quantity)
    if number is None:
        return f"{quote(text)} is not a number"
    if math.isnan(number):
        is_word = "nan" in text.lower()
        return f"{quote(text)} is not a number ({'NaN' if is_word else 'missing'})"
    return None if math.isfinite(number) else f"{quote(text)} is infinite"


def to_numbers(cells: Any, *, quantity: bool, by_comma: bool) -> Numbers:
    """A pyarrow column of N cells, numbers or texts, as numbers.

    `by_comma`: the file's columns are separated by commas. Where they are not, 1,234 may be a
    decimal comma, and is read only in a column that shows thousands beyond doubt (1,234,567).
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    if not (pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type)):
        return Numbers(_as_floats(cells.cast(pa.float64(), safe=False)))
    cells = pc.fill_null(cells, "")
    is_plain = pc.match_substring_regex(cells, _PLAIN_CELL)
    plain = pc.utf8_trim_whitespace(pc.if_else(is_plain, cells, "nan"))
    values = _as_floats(pc.cast(plain, pa.float64()))
    odd = np.flatnonzero(~np.asarray(is_plain.to_numpy(zero_copy_only=False), dtype=bool))
    if not odd.size:
        return Numbers(values)
    return _with_the_odd(values, odd, cells.take(pa.array(odd)).to_pylist(), quantity, by_comma)


def _with_the_odd(
    values: NDArray[np.float64],
    odd: NDArray[np.int64],
    texts: list[str],
    quantity: bool,
    by_comma: bool,
) -> Numbers:
    """`values` with the cells at `odd` read one by one, each spelling once."""
    spellings = dict.fromkeys(texts)
    commas = by_comma or _shows_thousands(spellings)
    read = {text: read_number(text, quantity=quantity, commas=commas) for text in spellings}
    values = values.copy()
    values[odd] = [math.nan if (number := read[text]) is None else number for text in texts]
    bad = np.array([read[text] is None for text in texts])
    if not bad.any():
        return Numbers(values)
    refused = np.zeros(len(values), dtype=bool)
    refused[odd[bad]] = True
    return Numbers(values, refused)


def _shows_thousands(texts: Iterable[str]) -> bool:
    """Whether any of `texts` has two separators, or one and a decimal point."""
    plain = (unicodedata.normalize("NFKC", text).strip() for text in texts)
    return any(
        _THOUSANDS.fullmatch(text) and (text.count(",") > 1 or "." in text) for text in plain
    )


def _as_floats(column: Any) -> NDArray[np.float64]:
    """A pyarrow column of float64 (N,), NaN where it has none."""
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)

"""Timestamps as files write them, turned into times without guessing.

Three spellings are read, the first row decides which, and every row must follow:
- text, year first, as ISO 8601 (2024-06-18 11:15:00, 2024/6/18, 2024.06.18, 2024年6月18日,
  2024-06-18T11:15:00+08:00); day-first and month-first dates cannot be told apart and are refused;
- digits YYYYMMDD, with HHMM, HHMMSS or HHMMSSmmm behind;
- epoch numbers in s, ms, us or ns; the unit follows from the size, and they become UTC.
"""

import re
import unicodedata
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kronos.data.columns import TIMESTAMPS, Source, quote
from kronos.data.reading.zones import NO_TIME, Problem, Times, mixed_offsets, offsets_of
from kronos.errors import DataError

# Seconds of 1990-01-01 and 2033-01-01 UTC. In between no count in one unit can be mistaken for
# another unit, nor for digits: YYYYMMDDHH starts at 1990010100, which is a second in 2033.
EARLIEST_EPOCH = 631_152_000
LATEST_EPOCH = 1_988_150_400
TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DIGIT_LENGTHS = (8, 12, 14, 17)

# The years that datetime64[ns] holds in full.
FIRST_YEAR, LAST_YEAR = 1678, 2261
_NS = 10**9

WAY_OUT = "write timestamps like 2024-06-18 11:15:00, or as epoch s, ms, us or ns"
_NO_TIMESTAMP = f"is not a timestamp that can be read; {WAY_OUT}"

# Spellings that ISO 8601 lacks, by how the first row begins, and how they become it.
_SPELLINGS = (
    (r"^\d{4}\.\d", ((r"^(\d{4})\.(\d{1,2})\.(\d{1,2})", r"\1-\2-\3"),)),
    (
        r"^\d{4}年",
        (
            (r"^(\d{4})年(\d{1,2})月(\d{1,2})日\s*", r"\1-\2-\3 "),
            (r" (\d{1,2})时(\d{1,2})分(\d{1,2})秒$", r" \1:\2:\3"),
            (r" (\d{1,2})时(\d{1,2})分$", r" \1:\2"),
        ),
    ),
)
_ONE_DIGIT_HOUR = (r"[ T](\d):", r" 0\1:")


def parse_timestamps(cells: Sequence[str], source: Source) -> pd.DatetimeIndex:
    """The index of N text timestamps, named "timestamps", in ns; UTC where they are epochs.

    Raises DataError naming the first row that does not follow the spelling of row 1.
    """
    import pyarrow as pa

    times = read_times(pa.array(list(cells), pa.string()))
    for problem in times.problems:
        row = int(np.argmax(problem.bad))
        raise DataError(
            f"{source.name}: column {TIMESTAMPS}, {source.row(row)}: "
            f"{quote(cells[row].strip())} {problem.words}"
        )
    return times.index().rename(TIMESTAMPS)


def checked_index(
    index: pd.DatetimeIndex, cells: Sequence[object], source: Source
) -> pd.DatetimeIndex:
    """`index` (N,) in ns and named, once every row is a timestamp within the years of ns.

    Raises DataError quoting the first of `cells` that is not.
    """
    bad = _outside(index)
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(
            f"{source.name}: column {TIMESTAMPS}, {source.row(row)}: {quote(str(cells[row]))} "
            f"{_NO_TIMESTAMP}"
        )
    return index.as_unit("ns").rename(TIMESTAMPS)


def read_times(texts: Any, first: int = 0, *, converted: bool = False) -> Times:
    """The times of a pyarrow column of N texts, of which that at `first` is row 1's.

    `converted`: a zone is given that all will be converted to, so that offsets may differ.
    """
    import pyarrow.compute as pc

    texts = pc.utf8_trim_whitespace(pc.fill_null(texts, ""))
    if not pc.all(pc.string_is_ascii(texts)).as_py():
        texts = _narrow(texts)
    opening: str = texts[first].as_py()
    unit = _epoch_unit(_whole_number(opening))
    if unit is not None:
        return _from_epochs(texts, unit)
    if opening.isdecimal() and len(opening) in DIGIT_LENGTHS:
        return _from_digits(texts, len(opening))
    if _is_number(opening):
        words = f"is no epoch time from 1990 to 2032 in s, ms, us or ns, and no YYYYMMDD; {WAY_OUT}"
        bad = np.ones(len(texts), dtype=bool)
        return Times(np.full(len(texts), NO_TIME), None, (Problem(bad, words),))
    return _from_text(texts, opening, converted)


def read_clock(texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Times of day, (U,) in ns, of texts 9:30, 09:30:00, 0930 or 93000, and which are none.

    Digits are HHMM where none has more than four, else HHMMSS; zeros in front may be missing.
    """
    cells = [unicodedata.normalize("NFKC", text).strip() for text in texts]
    digits = [cell for cell in cells if cell.isdecimal()]
    width = 4 if max(map(len, digits), default=0) <= 4 else 6
    spelling = re.compile(r"(\d\d?):(\d\d)(?::(\d\d)(\.\d{1,9})?)?")
    found = np.zeros(len(cells), dtype=np.int64)
    bad = np.ones(len(cells), dtype=bool)
    for place, cell in enumerate(cells):
        if cell.isdecimal() and len(cell) <= width:
            padded = cell.zfill(width)
            cell = ":".join(padded[at : at + 2] for at in range(0, width, 2))
        match = spelling.fullmatch(cell)
        if match is None:
            continue
        hours, minutes, seconds = (int(part or 0) for part in match.groups()[:3])
        if hours < 24 and minutes < 60 and seconds < 60:
            bad[place] = False
            fraction = round(float(match[4] or 0) * _NS)
            found[place] = ((hours * 60 + minutes) * 60 + seconds) * _NS + fraction
    return found, bad


def _narrow(texts: Any) -> Any:
    """The texts with full-width digits and signs made plain."""
    import pyarrow as pa

    plain = [unicodedata.normalize("NFKC", text).strip() for text in texts.to_pylist()]
    return pa.array(plain, pa.string())


def _from_text(texts: Any, opening: str, converted: bool) -> Times:
    import pyarrow as pa
    import pyarrow.compute as pc

    for begins, rewrites in _SPELLINGS:
        if re.match(begins, opening):
            for pattern, replacement in rewrites:
                texts = pc.replace_substring_regex(texts, pattern, replacement)
            texts = pc.utf8_trim_whitespace(texts)
    try:
        instants = pc.cast(texts, pa.timestamp("us")).to_numpy(zero_copy_only=False)
        index = pd.DatetimeIndex(instants)
    except pa.ArrowInvalid:
        pattern, replacement = _ONE_DIGIT_HOUR
        padded = pc.replace_substring_regex(texts, pattern, replacement)
        return _from_iso(padded.to_pylist(), opening, converted)
    return times_of(index)


def _from_iso(texts: list[str], opening: str, converted: bool) -> Times:
    # pandas also reads words such as "now" and "today", which a file must not mean
    dates = [text if text[:1].isdecimal() else "" for text in texts]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # pandas 2 only warns of offsets
            index = pd.to_datetime(dates, format="ISO8601", errors="coerce")
        return times_of(index)
    except (ValueError, FutureWarning):  # an index has one zone
        offsets = offsets_of(dates)
        times = times_of(pd.to_datetime(dates, format="ISO8601", errors="coerce", utc=True))
        return mixed_offsets(times, offsets, opening, converted=converted)


def times_of(index: pd.DatetimeIndex) -> Times:
    """The times of an index, and which of them are none or outside the years of ns."""
    bad = _outside(index)
    zone = None if index.tz is None else str(index.tz)
    if not bad.any():
        return Times(index.as_unit("ns").asi8, zone)
    values = np.full(len(index), NO_TIME)
    values[~bad] = index[~bad].as_unit("ns").asi8
    return Times(values, zone, (Problem(bad, _NO_TIMESTAMP),))


def _outside(index: pd.DatetimeIndex) -> NDArray[np.bool_]:
    years = index.year.to_numpy()  # NaN where NaT
    return np.asarray(~((years >= FIRST_YEAR) & (years <= LAST_YEAR)))


def _from_digits(texts: Any, length: int) -> Times:
    import pyarrow as pa
    import pyarrow.compute as pc

    is_digits = pc.match_substring_regex(texts, f"^[0-9]{{{length}}}$")
    numbers = pc.cast(pc.if_else(is_digits, texts, "0"), pa.int64())
    rest = np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.int64)
    thousandths = rest % 1000 if length == 17 else np.zeros_like(rest)
    rest = rest // 1000 if length == 17 else rest
    rest = rest * {8: 10**6, 12: 100}.get(length, 1)  # YYYYMMDDHHMMSS
    day, month, year = rest // 10**6 % 100, rest // 10**8 % 100, rest // 10**10
    hours, minutes, seconds = rest // 10**4 % 100, rest // 100 % 100, rest % 100
    good = (year >= FIRST_YEAR) & (year <= LAST_YEAR) & (month >= 1) & (month <= 12) & (day >= 1)
    good &= (hours < 24) & (minutes < 60) & (seconds < 60)
    months = np.where(good, (year - 1970) * 12 + month - 1, 0)
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    after = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    good &= day <= after - first
    clock = (hours * 60 + minutes) * 60 + seconds
    values = ((first + day - 1) * 86400 + clock) * _NS + thousandths * 10**6
    values[~good] = NO_TIME
    return Times(values, None, () if good.all() else (Problem(~good, _NO_TIMESTAMP),))


def _from_epochs(texts: Any, unit: str) -> Times:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        counts = pc.cast(texts, pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        read = [_whole_number(text) for text in texts.to_pylist()]
        counts = np.array([0 if n is None or n >= 2**63 else n for n in read], dtype=np.int64)
    ticks = TICKS_PER_SECOND[unit]
    good = (counts >= EARLIEST_EPOCH * ticks) & (counts < LATEST_EPOCH * ticks)
    values = np.where(good, counts, 0) * (_NS // ticks)
    if good.all():
        return Times(values, "UTC")
    values[~good] = NO_TIME
    words = f"is no epoch time from 1990 to 2032 in {unit}, as row 1 is; {WAY_OUT}"
    return Times(values, "UTC", (Problem(~good, words),))


def _epoch_unit(count: int | None) -> str | None:
    return next((unit for unit in TICKS_PER_SECOND if _is_epoch(count, unit)), None)


def _is_epoch(count: int | None, unit: str) -> bool:
    ticks = TICKS_PER_SECOND[unit]
    return count is not None and EARLIEST_EPOCH * ticks <= count < LATEST_EPOCH * ticks


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _whole_number(text: str) -> int | None:
    """`text` as a whole number, exactly; None where it is none (1718709300.0 is one)."""
    if text.isdecimal():
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return None
    exact = number.is_integer() and abs(number) < 2**53 and "_" not in text
    return int(number) if exact else None

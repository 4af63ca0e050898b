"""Timestamps as files write them, turned into a DatetimeIndex without guessing.

Three spellings are read, the first row decides which, and every row must follow:
- text, year first, as ISO 8601 (2024-06-18 11:15:00, 2024/06/18, 2024-06-18T11:15:00+08:00);
  day-first and month-first dates cannot be told apart and are refused;
- digits YYYYMMDD, YYYYMMDDHHMM or YYYYMMDDHHMMSS;
- epoch numbers in s, ms, us or ns; the unit follows from the size, and they become UTC.
"""

import warnings
from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import pandas as pd

from kronos.data.layout import TIMESTAMPS, Source, quote
from kronos.errors import DataError

# Seconds of 1990-01-01 and 2033-01-01 UTC. In between no count in one unit can be mistaken for
# another unit, nor for digits: YYYYMMDDHH starts at 1990010100, which is a second in 2033.
EARLIEST_EPOCH = 631_152_000
LATEST_EPOCH = 1_988_150_400
TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DIGIT_FORMATS = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}

# The years that datetime64[ns] holds in full.
FIRST_YEAR, LAST_YEAR = 1678, 2261

WAY_OUT = "write timestamps like 2024-06-18 11:15:00, or as epoch s, ms, us or ns"


def parse_timestamps(cells: Sequence[str], source: Source) -> pd.DatetimeIndex:
    """The index of N text timestamps, named "timestamps", in ns; UTC where they are epochs.

    Raises DataError naming the first row that does not follow the spelling of row 1.
    """
    texts = [cell.strip() for cell in cells]
    unit = _epoch_unit(_whole_number(texts[0]))
    if unit is not None:
        index = _from_epochs(texts, unit, source)
    elif len(texts[0]) in DIGIT_FORMATS and texts[0].isdecimal():
        index = _from_digits(texts)
    elif _is_number(texts[0]):
        raise DataError(
            f"{source.name}: column {TIMESTAMPS}, {source.row(0)}: {quote(texts[0])} is no epoch "
            f"time from 1990 to 2032 in s, ms, us or ns, and no YYYYMMDD; {WAY_OUT}"
        )
    else:
        index = _from_text(texts, source)
    return checked_index(index, texts, source)


def checked_index(
    index: pd.DatetimeIndex, cells: Sequence[object], source: Source
) -> pd.DatetimeIndex:
    """`index` (N,) in ns and named, once every row is a timestamp within the years of ns.

    Raises DataError quoting the first of `cells` that is not.
    """
    years = index.year.to_numpy()  # NaN where NaT
    bad = ~((years >= FIRST_YEAR) & (years <= LAST_YEAR))
    if bad.any():
        raise _not_a_timestamp(cells, int(np.argmax(bad)), source)
    return index.as_unit("ns").rename(TIMESTAMPS)


def _from_text(texts: list[str], source: Source) -> pd.DatetimeIndex:
    # pandas also reads words such as "now" and "today", which a file must not mean
    dates = [text if text[:1].isdecimal() else "" for text in texts]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # pandas 2 only warns of offsets
            return pd.to_datetime(dates, format="ISO8601", errors="coerce")
    except (ValueError, FutureWarning) as error:  # an index has one zone
        raise _mixed_offsets(dates, texts, source) from error


def _mixed_offsets(dates: list[str], texts: list[str], source: Source) -> DataError:
    offsets: list[timedelta | None] = []
    for row, date in enumerate(dates):
        parsed = pd.to_datetime(date, format="ISO8601", errors="coerce")
        if not isinstance(parsed, pd.Timestamp):
            return _not_a_timestamp(texts, row, source)
        offsets.append(parsed.utcoffset())
        if offsets[row] != offsets[0]:
            return DataError(
                f"{source.name}: column {TIMESTAMPS}, {source.row(row)}: {quote(texts[row])} has "
                f"another UTC offset than {quote(texts[0])}; write all in one zone, such as UTC"
            )
    raise AssertionError("offsets were refused but all are the same")


def _from_digits(texts: list[str]) -> pd.DatetimeIndex:
    length = len(texts[0])
    dates = [text if len(text) == length else "" for text in texts]
    return pd.to_datetime(dates, format=DIGIT_FORMATS[length], errors="coerce")


def _from_epochs(texts: list[str], unit: str, source: Source) -> pd.DatetimeIndex:
    counts: list[int] = []
    for row, text in enumerate(texts):
        count = _whole_number(text)
        if count is None or not _is_epoch(count, unit):
            raise DataError(
                f"{source.name}: column {TIMESTAMPS}, {source.row(row)}: {quote(text)} is no "
                f"epoch time from 1990 to 2032 in {unit}, as row 1 is; {WAY_OUT}"
            )
        counts.append(count)
    instants = np.array(counts, dtype=np.int64).astype(f"datetime64[{unit}]")
    return pd.DatetimeIndex(instants).tz_localize("UTC")


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


def _not_a_timestamp(cells: Sequence[object], row: int, source: Source) -> DataError:
    shown = quote(str(cells[row]))
    return DataError(
        f"{source.name}: column {TIMESTAMPS}, {source.row(row)}: {shown} is not a timestamp "
        f"that can be read; {WAY_OUT}"
    )

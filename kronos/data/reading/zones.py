"""Times and their zone: what was read, offsets that differ, and conversion to one zone."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kronos.data.columns import quote
from kronos.errors import ConfigError

NO_TIME = np.iinfo(np.int64).min
"""What stands in place of a time where there is none, as NaT does."""

# Only behind a time of day: 2024-03-11 ends with no offset.
_OFFSET = re.compile(r"[T ]\d\d.*?(Z|z|[+-]\d\d(?::?\d\d)?)$")


@dataclass(frozen=True, slots=True)
class Problem:
    """What keeps some of N cells from being times."""

    bad: NDArray[np.bool_]
    """(N,), at least one."""
    words: str
    """What is said of such a cell, behind its text."""

    def of(self, codes: NDArray[np.int32]) -> "Problem":
        """The same of M rows that have the cells `codes` (M,)."""
        return Problem(self.bad[codes], self.words)


@dataclass(frozen=True, slots=True)
class Times:
    """N times, and what is wrong with those that are none."""

    values: NDArray[np.int64]
    """(N,) ns since 1970-01-01, in UTC where there is a zone, else by the clock on the wall;
    NO_TIME where there is a problem, but for offsets that differ."""
    zone: str | None
    problems: tuple[Problem, ...] = ()

    def index(self) -> pd.DatetimeIndex:
        """As a DatetimeIndex in ns, in the zone."""
        return index_of(self.values, self.zone)

    def of(self, codes: NDArray[np.int32]) -> "Times":
        """The times of M rows that have the cells `codes` (M,)."""
        problems = tuple(problem.of(codes) for problem in self.problems)
        return Times(self.values[codes], self.zone, problems)


def index_of(values: NDArray[np.int64], zone: str | None) -> pd.DatetimeIndex:
    """The index of times (N,) in ns, in UTC where there is a zone, else by the wall."""
    index = pd.DatetimeIndex(values.astype("datetime64[ns]"))
    return index if zone is None else index.tz_localize("UTC").tz_convert(zone)


def check_zone(name: str) -> None:
    """ConfigError unless `name` is an IANA time zone."""
    try:
        ZoneInfo(name)
    except (ValueError, OSError, LookupError, TypeError) as error:
        raise ConfigError(
            f"timezone must be an IANA name such as Asia/Shanghai, got {name!r:.60}"
        ) from error


def offsets_of(texts: Sequence[str]) -> list[str | None]:
    """The UTC offset that each text ends with, all in one spelling; None where it has none."""
    found = ((_OFFSET.search(text), text) for text in texts)
    return [_plain_offset(match[1]) if match else None for match, _ in found]


def _plain_offset(text: str) -> str:
    digits = "+0000" if text in "Zz" else text.replace(":", "").ljust(5, "0")
    return digits.replace("-0000", "+0000")


def mixed_offsets(
    times: Times, offsets: Sequence[str | None], opening: str, *, converted: bool
) -> Times:
    """`times`, read as UTC, with the problem that their offsets differ from row 1's, if that is
    one: where all will be converted to a zone, only those are that have none (or alone have one).
    """
    first = next((each for each in _OFFSET.findall(opening)), None)
    start = _plain_offset(first) if first else None
    if converted:
        other = np.array([(offset is None) != (start is None) for offset in offsets])
    else:
        other = np.array([offset != start for offset in offsets])
    readable = times.values != NO_TIME
    if not (other & readable).any():
        return times
    words = (
        f"has another UTC offset than {quote(opening)}; write all in one zone, such as UTC, or "
        "convert them with timezone='America/New_York' (--timezone)"
    )
    return replace(times, problems=(*times.problems, Problem(other & readable, words)))


def in_zone(times: Times, zone: str | None) -> Times:
    """`times` in `zone`: converted where they have one, else taken as what its clocks showed.

    A wall time that the zone skipped, or had twice, is a problem.
    """
    if zone is None:
        return times
    if times.zone is not None:
        return replace(times, zone=zone)
    known = times.values != NO_TIME
    wall = pd.DatetimeIndex(times.values.astype("datetime64[ns]"))
    summer = np.ones(len(wall), dtype=bool)
    placed = wall.tz_localize(zone, ambiguous=summer, nonexistent="NaT")
    skipped = np.asarray(placed.isna()) & known
    once = wall.tz_localize(zone, ambiguous="NaT", nonexistent="shift_forward")
    twice = np.asarray(once.isna()) & known
    values = np.where(skipped | twice, NO_TIME, placed.asi8)
    out = "give the times with their UTC offset, or in UTC"
    problems = list(times.problems)
    if skipped.any():
        problems.append(Problem(skipped, f"is no time in {zone}, whose clocks skip it; {out}"))
    if twice.any():
        problems.append(Problem(twice, f"comes twice in {zone}, whose clocks go back; {out}"))
    return Times(values, zone, tuple(problems))

"""The bars to come: timestamps that keep the spacing, sessions and weekends of a history.

`wall` is the history by the clock on the wall, without its zone; all rules go by that clock.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kronos.data.timestamps import as_timestamps
from kronos.errors import ConfigError, DataError

Calendar: TypeAlias = pd.offsets.BusinessDay | np.busdaycalendar | Iterable[Any]
IsOpen: TypeAlias = Callable[[pd.Timestamp], bool]

_DAY = pd.Timedelta(days=1)
_RECENT = 10  # days with bars that show the hours; summer time moves those of a UTC clock
_PATTERN = pd.Timedelta(weeks=4)  # shows that a weekday has other hours: Forex on Sundays
_ABSENCES = np.array([2, 2, 2, 2, 2, 1, 1])  # close a weekday: one Monday may be a holiday
_BREAK = pd.Timedelta(hours=1)  # an exchange's; a market round the clock may lack a few bars
_LONGEST_CLOSURE = 3653  # days, ten years: a calendar that is closed for so long never opens


def future_timestamps(
    history: pd.DatetimeIndex, count: int, calendar: Calendar | None = None
) -> pd.DatetimeIndex:
    """The `count` timestamps after an ascending `history`, (count,), in its zone.

    Times of day are those of the last ten days with bars, on each weekday less those it lacked in
    two weeks (one, if Saturday or Sunday has few). A night or lunch break that the history spans
    stays free; hours that it is too short to reach count as open. A weekday is closed that had no
    bars (Saturday or Sunday once, others twice) and has less than a quarter of the busiest one's
    days; an exchange with daily breaks is closed at weekends until seen open. Evenly spaced bars,
    daily bars and bars without fixed times keep their spacing on the open weekdays, bars further
    apart than a day on all. All by the clock on the wall: an hour it skips has no bars, one it
    repeats has them once.

    `calendar` says which days have bars, in place of the weekdays, and so knows holidays: a pandas
    BusinessDay or CustomBusinessDay, a numpy.busdaycalendar, or a list of the days themselves
    (dates, datetimes or ISO 8601 texts, of which only the date counts).

    Raises ConfigError for a count below 1, for any other calendar, and for one given with bars
    further apart than a day. Raises DataError for a history of fewer than two bars or not strictly
    ascending, and for a calendar that ends, or is closed for ten years, before `count` bars.
    """
    if count < 1:
        raise ConfigError(f"the number of bars to come must be at least 1, got {count}")
    history = _ascending(history)
    moments, end = _moments(history, calendar)
    future = history[:0].rename(None)
    while len(future) < count:
        block = pd.DatetimeIndex(list(itertools.islice(moments, count - len(future))))
        if block.empty:
            raise DataError(
                f"the calendar has days for {len(future)} of {count} bars: {end}; "
                "give one with later days, or ask for fewer bars"
            )
        first = np.ones(len(block), dtype=bool)  # of the two hours when the clock goes back
        stamps = block.tz_localize(history.tz, ambiguous=first, nonexistent="NaT").dropna()
        stamps = stamps[stamps > history[-1]].as_unit(history.unit)
        future = pd.DatetimeIndex(future.append(stamps))
    return future


def _ascending(history: pd.DatetimeIndex) -> pd.DatetimeIndex:
    history = as_timestamps(history, "history")
    if len(history) < 2:
        raise DataError(
            f"a spacing cannot be read from {len(history)} bar(s); give the future timestamps"
        )
    early = np.flatnonzero(history[1:] <= history[:-1])
    if early.size:
        row = early[0] + 1
        raise DataError(
            f"history, row {row + 1}: {history[row]} does not come after {history[row - 1]}; "
            "sort the bars and drop those that repeat"
        )
    return history


def _moments(
    history: pd.DatetimeIndex, calendar: Calendar | None
) -> tuple[Iterator[pd.Timestamp], str]:
    """Moments after the last bar, ascending and without a zone, and words on where they end."""
    wall = history.tz_localize(None)
    spacing = _spacing(history, wall)
    if spacing > _DAY and calendar is None:
        return (wall[-1] + spacing * step for step in itertools.count(1)), "endless"
    if spacing > _DAY:
        raise ConfigError(
            f"a calendar serves bars of a day or less, and these are {spacing} apart; "
            "leave the calendar out"
        )
    times = _times_of_day(history, wall, spacing)
    if calendar is None:
        has_breaks = times is not None and _DAY - spacing * len(times) >= _BREAK
        weekdays = _open_weekdays(wall, has_breaks)
        days, end = _open_days(wall[-1], lambda day: bool(weekdays[day.day_of_week])), "endless"
    else:
        days, end = _calendar_days(wall[-1], calendar)
    if times is None:
        return _at_the_spacing(wall[-1], spacing, days), end
    daily = [times[is_open] for is_open in _open_times(wall, times)]
    moments = (day + time for day in days for time in daily[day.day_of_week])
    return (moment for moment in moments if moment > wall[-1]), end


def _spacing(history: pd.DatetimeIndex, wall: pd.DatetimeIndex) -> pd.Timedelta:
    """The commonest; in days it is by the wall, in hours by what elapsed over a clock change."""
    days, hours = (pd.Series(index[1:] - index[:-1]).mode().iloc[0] for index in (wall, history))
    return days if days >= _DAY else hours


def _at_the_spacing(
    last: pd.Timestamp, spacing: pd.Timedelta, days: Iterator[pd.Timestamp]
) -> Iterator[pd.Timestamp]:
    for day in days:
        moment = max(last + spacing, day + (last - day) % spacing)
        while moment < day + _DAY:
            yield moment
            moment += spacing


def _times_of_day(
    history: pd.DatetimeIndex, wall: pd.DatetimeIndex, spacing: pd.Timedelta
) -> pd.TimedeltaIndex | None:
    """The open times, ascending; None where bars go on at their spacing instead."""
    is_even = (history[1:] - history[:-1] == spacing).all()
    if is_even or spacing == _DAY:
        return None
    days = wall.normalize()
    recent = days >= days.unique()[-_RECENT:][0]
    seen = (wall - days)[recent].unique()
    # 95 minutes round the clock: each day has other times, together more than a day can hold
    if len(seen) > max(_DAY / spacing, days[recent].value_counts().max()):
        return None
    first, last = wall[0] - days[0], wall[-1] - days[-1]
    grid = pd.timedelta_range(last % spacing, _DAY, freq=spacing, closed="left")
    if days.nunique() == 1:
        seen = seen.union(grid[(grid < first) | (grid > last)])
    elif days.nunique() == 2:  # from three on, one day spans every time
        seen = seen.union(grid[(grid < first) & (grid > last)])
    return pd.TimedeltaIndex(seen.sort_values())


def _open_weekdays(wall: pd.DatetimeIndex, has_breaks: bool) -> NDArray[np.bool_]:
    """(7,), Monday first."""
    days = wall.normalize().unique()
    seen = np.bincount(days.day_of_week, minlength=7)
    missed = np.bincount(pd.date_range(days[0], days[-1]).day_of_week, minlength=7) - seen
    closed = (missed >= _ABSENCES) & (seen * 4 < seen.max())
    if has_breaks:
        closed[5:] |= seen[5:] == 0
    return ~closed


def _open_times(wall: pd.DatetimeIndex, times: pd.TimedeltaIndex) -> NDArray[np.bool_]:
    """(7, T), Monday first: closed is what a weekday lacked where other days of the week had it."""
    late = wall[wall > wall[-1] - _PATTERN]
    days = late.normalize()
    number = ((days - days[0]) // _DAY).to_numpy() + days[0].day_of_week
    week, weekday, time = number // 7, number % 7, times.get_indexer(late - days)
    seen = np.zeros((week.max() + 1, 7, len(times)), dtype=np.bool_)
    is_kept = time >= 0  # others are not open any more
    seen[week[is_kept], weekday[is_kept], time[is_kept]] = True
    whole = np.asarray(seen.any(axis=2, keepdims=True))
    whole[week[[0, -1]], weekday[[0, -1]]] = False  # may be cut off
    weeks = (whole & seen.any(axis=1, keepdims=True)).sum(axis=0)  # that could have shown it
    is_short = seen.any(axis=0).sum(axis=1) < len(times) / 2  # not a few that lack by chance
    return seen.any(axis=0) | (weeks < np.where(is_short, _ABSENCES, 2)[:, None])


def _calendar_days(last: pd.Timestamp, calendar: Calendar) -> tuple[Iterator[pd.Timestamp], str]:
    """The open days from that of the last bar on, ascending, and words on where they end."""
    if isinstance(calendar, np.busdaycalendar):
        calendar = pd.offsets.CustomBusinessDay(calendar=calendar)
    if isinstance(calendar, pd.offsets.BusinessDay):
        return _open_days(last, calendar.is_on_offset), "then it is closed for ten years"
    try:
        listed = as_timestamps(calendar, "calendar")
    except DataError as error:
        raise ConfigError(
            f"{error}; or give a pandas BusinessDay, a CustomBusinessDay or a numpy.busdaycalendar"
        ) from error
    days = listed.tz_localize(None).normalize().unique().sort_values()
    end = f"its last day is {days[-1]:%Y-%m-%d}" if len(days) else "it lists no day"
    return iter(days[days >= last.normalize()]), end


def _open_days(last: pd.Timestamp, is_open: IsOpen) -> Iterator[pd.Timestamp]:
    day, closed = last.normalize(), 0
    while closed < _LONGEST_CLOSURE:
        closed = 0 if is_open(day) else closed + 1
        if closed == 0:
            yield day
        day += _DAY

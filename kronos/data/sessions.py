"""The bars to come: timestamps that keep the spacing, sessions and weekends of a history."""

from collections.abc import Iterator
from itertools import count as count_from

import pandas as pd

from kronos.errors import ConfigError, DataError

_DAY = pd.Timedelta(days=1)
_RECENT = 10
"""Days with bars that show the times of day; summer time moves a session on a UTC clock."""
_ENOUGH = pd.Timedelta(days=14)
"""A history that spans two weeks has shown on which weekdays and at what times bars come."""


def future_timestamps(history: pd.DatetimeIndex, count: int) -> pd.DatetimeIndex:
    """The `count` timestamps after an ascending `history`, (count,).

    Bars come on the weekdays and at the times of day that the history shows, so nights, lunch
    breaks and weekends stay free; holidays are not known. The times are those of the last ten
    days with bars, for daily bars that of the last one. A history of less than two weeks, or
    with bars further apart than a day, goes on at its commonest spacing. All this goes by the
    clock on the wall: an hour that it skips has no bars, one that it repeats has them once.

    Raises ConfigError for a count below 1, DataError for a history of fewer than two bars.
    """
    if count < 1:
        raise ConfigError(f"the number of bars to come must be at least 1, got {count}")
    if len(history) < 2:
        raise DataError(
            f"a spacing cannot be read from {len(history)} bar(s); give the future timestamps"
        )
    wall = history.tz_localize(None)
    spacing = _commonest(wall)
    if spacing < _DAY and wall[-1] - wall[0] < _ENOUGH:
        elapsed = _commonest(history)
        return pd.DatetimeIndex([history[-1] + elapsed * step for step in range(1, count + 1)])
    found = [history[-1]]
    for moment in _by_the_calendar(wall, spacing):
        stamp = moment.tz_localize(history.tz, ambiguous=True, nonexistent="NaT")
        if isinstance(stamp, pd.Timestamp) and stamp > found[-1]:  # not NaT
            found.append(stamp)
        if len(found) > count:
            break
    return pd.DatetimeIndex(found[1:])


def _commonest(history: pd.DatetimeIndex) -> pd.Timedelta:
    return pd.Series(history[1:] - history[:-1]).mode().iloc[0]


def _by_the_calendar(wall: pd.DatetimeIndex, spacing: pd.Timedelta) -> Iterator[pd.Timestamp]:
    """Endless moments from the day of the last bar on, ascending, without a zone."""
    last = wall[-1]
    if spacing > _DAY or last - wall[0] < _ENOUGH:
        return (last + spacing * step for step in count_from(1))
    days_seen = wall.normalize()
    recent = wall[-1:] if spacing == _DAY else wall[days_seen >= days_seen.unique()[-_RECENT:][0]]
    times = sorted(set(recent - recent.normalize()))
    weekdays = set(wall.day_of_week)
    days = (days_seen[-1] + _DAY * number for number in count_from(0))
    return (day + time for day in days if day.day_of_week in weekdays for time in times)

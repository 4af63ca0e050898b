"""The bars to come: timestamps that keep the spacing, sessions and weekends of a history."""

import pandas as pd

from kronos.errors import ConfigError, DataError

_DAY = pd.Timedelta(days=1)
_ENOUGH = pd.Timedelta(days=14)
"""A history that spans two weeks has shown on which weekdays and at what times bars come."""


def future_timestamps(history: pd.DatetimeIndex, count: int) -> pd.DatetimeIndex:
    """The `count` timestamps after an ascending `history`, (count,).

    Bars come on the weekdays and at the times of day that the history shows, so nights, lunch
    breaks and weekends stay free; holidays are not known. A history of less than two weeks, or
    with bars further apart than a day, goes on at its commonest spacing.

    Raises ConfigError for a count below 1, DataError for a history of fewer than two bars.
    """
    if count < 1:
        raise ConfigError(f"the number of bars to come must be at least 1, got {count}")
    if len(history) < 2:
        raise DataError(
            f"a spacing cannot be read from {len(history)} bar(s); give the future timestamps"
        )
    last = history[-1]
    spacing = pd.Series(history[1:] - history[:-1]).mode().iloc[0]
    if spacing > _DAY or last - history[0] < _ENOUGH:
        return pd.DatetimeIndex([last + spacing * step for step in range(1, count + 1)])
    weekdays = set(history.dayofweek)
    times = sorted(set(history - history.normalize()))
    found: list[pd.Timestamp] = []
    day = last.normalize()
    while len(found) < count:
        if day.dayofweek in weekdays:
            found += [day + time for time in times if day + time > last]
        day += _DAY
    return pd.DatetimeIndex(found[:count])

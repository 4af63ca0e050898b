"""Dividing windows in time, so that validation never sees a bar of training."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from kronos.data.market import Market
from kronos.data.windows import Windows, WindowStarts
from kronos.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """Where the windows begin that are to train on, and those to validate on."""

    train: WindowStarts
    validation: WindowStarts
    boundary: pd.Timestamp
    """Validation forecasts bars from this time on."""


def split_by_time(
    windows: Windows,
    *,
    validation_share: float | None = None,
    boundary: pd.Timestamp | str | None = None,
) -> TimeSplit:
    """Split the windows of a market at one time, with `window` + `horizon` windows between.

    The rule, for each symbol: a window validates if all its targets (the bars behind its
    lookback) are at or after the boundary; it trains if all its bars come before the first
    bar that a validating window looks back on, or before the boundary where none does. So no
    bar is in both, and the `window` + `horizon` windows in between are in neither (an embargo:
    López de Prado, Advances in Financial Machine Learning, 2018, chapter 7).

    Give the boundary, on the market's clock, or the share of all bars, rounded, that lie at or
    behind it. Raises ConfigError where neither or both are given, the boundary is of another
    clock, or a side would have no window.
    """
    market = windows.market
    if (validation_share is None) == (boundary is None):
        raise ConfigError("give either validation_share or boundary, not both and not neither")
    if boundary is not None:
        instant = _instant(market, pd.Timestamp(boundary))
    elif validation_share is not None and 0 < validation_share < 1:
        instant = _latest_with(market, round(len(market) * validation_share))
    else:
        raise ConfigError(f"validation_share must be between 0 and 1, got {validation_share}")
    train, validation = [], []
    most = {"train": 0, "validate": 0}  # bars that one symbol has for it
    for first, end in zip(market.offsets[:-1].tolist(), market.offsets[1:].tolist(), strict=True):
        at = first + int(np.searchsorted(market.times[first:end], instant))
        run = range(max(first, at - windows.window), max(first, end - windows.sample_length + 1))
        free = run.start if run else at  # bars before it are for training
        train.append(range(first, max(first, free - windows.sample_length + 1)))
        validation.append(run)
        most["train"] = max(most["train"], free - first)
        most["validate"] = max(most["validate"], end - run.start)
    split = TimeSplit(WindowStarts(train), WindowStarts(validation), _timestamp(market, instant))
    market.release()
    _check(split, windows, most)
    return split


def _latest_with(market: Market, count: int) -> int:
    """The latest time from which on there are `count` bars, by bisection: nothing is sorted."""
    symbols = [
        market.times[first:end]
        for first, end in zip(market.offsets[:-1], market.offsets[1:], strict=True)
    ]

    def behind(instant: int) -> int:
        return sum(len(times) - int(np.searchsorted(times, instant)) for times in symbols)

    low = min(int(times[0]) for times in symbols)
    high = max(int(times[-1]) for times in symbols) + 1
    while high - low > 1:  # behind(low) >= count > behind(high), but for count 0
        middle = (low + high) // 2
        low, high = (middle, high) if behind(middle) >= count else (low, middle)
    return low if behind(high) < count else high


def _instant(market: Market, boundary: pd.Timestamp) -> int:
    if (boundary.tz is None) != (market.zone is None):
        clock = "have no time zone" if market.zone is None else f"are in the zone {market.zone}"
        raise ConfigError(
            f"boundary must be on the clock of the bars, which {clock}; got {boundary}"
        )
    return int(boundary.as_unit("ns").value)


def _timestamp(market: Market, instant: int) -> pd.Timestamp:
    time = pd.Timestamp(instant, tz=None if market.zone is None else "UTC")
    return time if market.zone is None else time.tz_convert(market.zone)


def _check(split: TimeSplit, windows: Windows, most: dict[str, int]) -> None:
    for name, starts in (("train", split.train), ("validate", split.validation)):
        if not len(starts):
            raise ConfigError(
                f"no window to {name} on: one takes {windows.sample_length} bars (window "
                f"{windows.window} + horizon {windows.horizon} + 1) of one symbol, and of "
                f"{len(windows.market)} bars split at {split.boundary} it may use at most "
                f"{max(0, most[name])}; move the boundary, or give more bars, a smaller window or "
                "horizon"
            )

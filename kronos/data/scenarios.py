"""Market shocks applied to real bars, to learn what forecasts do in a market they did not know.

Axes: N bars, 6 features (open, high, low, close, volume, amount).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import pandas as pd

from kronos.data.bars import validate_bars
from kronos.data.columns import FEATURES, PRICES
from kronos.data.shocks import (
    Shock,
    black_swan,
    halted_trading,
    high_volatility,
    liquidity_drought,
    trend_reversal,
)
from kronos.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Scenario:
    """A shock and what to say of it."""

    summary: str
    """One line for a list of scenarios: what happens at strength 1."""
    shock: Shock


def apply_scenario(
    bars: pd.DataFrame,
    name: str,
    *,
    strength: float = 1.0,
    seed: int = 0,
    start: int | None = None,
    length: int | None = None,
) -> pd.DataFrame:
    """The N bars with a shock in those from `start` on, `length` of them; a new frame.

    Without `start` the shock begins in the middle of the bars, or earlier where `length` needs it;
    without `length` it lasts a quarter of them, at least one bar and at most what there is behind
    `start`. What strength s means, σ being the standard deviation of the span's log returns:

    - high_volatility: moves, wicks and volume times 1 + 2s. The return of the span stays.
    - liquidity_drought: volume divided by 1 + 4s. Each bar but the last is without trade with
      chance s / (s + 4): flat, its move left to the next gap. Wicks times 1 + s. Opens and closes
      lie s/2 of the span's mean range above or below the path: traded at one side of a wide
      spread (Roll 1984, Journal of Finance 39, 1127-1139). The path itself stays.
    - black_swan: a fall of F = s (0.1 + 6σ) in the logarithm, two fifths of it in the first gap,
      the rest over the first tenth of the span; by its end a third is regained, if it has more
      than one bar. On the way there, normal shocks of standard deviation 0.15 F at first, together
      0, and wicks longer by 0.05 F on average. Volume is times 1 + 9s at first. All that fades by
      a factor of e in a quarter of the span.
    - trend_reversal: the log return R of the span becomes (1 - 2s) R, spread evenly over its bars.
    - halted_trading: ceil(s L) bars at most, however few are behind `start`, are flat at the price
      before and without volume. Then the bars go on as they are, the first with the whole gap.

    Strength 0 changes nothing. Bars before `start` never change. Behind the span returns and
    volumes stay, and prices go on from the shocked ones. Volume that is 0 stays 0. Chance, and so
    the seed, plays a part in liquidity_drought and black_swan.

    Raises:
        ConfigError: an unknown name; a strength, seed, start or length against these rules; a
            strength that takes prices, volumes or amounts beyond what a float can hold.
        DataError: bars against the rules of `validate_bars`.
    """
    if name not in SCENARIOS:
        raise ConfigError(f"no scenario {name!r:.60}; there are {', '.join(SCENARIOS)}")
    if not (math.isfinite(strength) and strength >= 0):
        raise ConfigError(f"strength must be a finite number of at least 0, got {strength:g}")
    if seed < 0:
        raise ConfigError(f"seed must be at least 0, got {seed}")
    before = validate_bars(bars)
    span = _span(len(before), start, length)
    if strength == 0:
        return before
    with np.errstate(all="ignore"):  # what leaves the floats is refused below
        shocked = SCENARIOS[name].shock(
            before.to_numpy(np.float64, copy=True), span, strength, np.random.default_rng(seed)
        )
    if not (np.isfinite(shocked).all() and (shocked[:, : len(PRICES)] > 0).all()):
        raise ConfigError(
            f"strength {strength:g} of {name} takes the bars beyond what a float can hold; "
            "give a smaller one"
        )
    return pd.DataFrame(shocked, index=before.index, columns=list(FEATURES))


def _span(bars: int, start: int | None, length: int | None) -> slice:
    """The bars to shock, at least one, out of so many."""
    if start is None:
        start = max(0, min(bars // 2, bars - (length or 1)))
    if not 0 <= start < bars:
        raise ConfigError(f"start must be from 0 to {bars - 1}, the last bar; got {start}")
    if length is None:
        length = max(1, min(bars // 4, bars - start))
    if not 1 <= length <= bars - start:
        raise ConfigError(
            f"length must be from 1 to {bars - start}, the bars from bar {start} on; got {length}"
        )
    return slice(start, start + length)


SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType(
    {
        "high_volatility": Scenario(
            "moves, ranges and volume three times as large", high_volatility
        ),
        "liquidity_drought": Scenario(
            "a fifth of the volume, a wide spread, and one bar in five without trade",
            liquidity_drought,
        ),
        "black_swan": Scenario(
            "a gap and a crash of 10 % and more, wild trade that fades, a third regained",
            black_swan,
        ),
        "trend_reversal": Scenario("what rose falls as much, and what fell rises", trend_reversal),
        "halted_trading": Scenario(
            "no trade at the last price, then a gap to the real path", halted_trading
        ),
    }
)
"""Every scenario by its name."""

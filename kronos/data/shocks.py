"""What a shock does to bars: the five of `kronos.data.scenarios`, where their formulas stand.

Axes: N bars, L of them in the span that is shocked, 6 features (open, high, low, close, volume,
amount).

A shock takes the bars of its span apart into logarithms: the gap from the close before to the
open, the body from open to close, and the wicks beyond them, never negative. It changes those and
puts the bars together again from the price before the span on. So whatever a shock does, high and
low contain open and close, prices are positive, and the bars behind go on from where it ended.
Amounts follow volumes and mean prices: what a bar paid for a share beside its mean price stays.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Shock: TypeAlias = Callable[[Floats, slice, float, np.random.Generator], Floats]
"""Bars (N, 6), the span in them, the strength above 0, the source of chance; new bars (N, 6)."""

_OPEN, _HIGH, _LOW, _CLOSE, _VOLUME, _AMOUNT = range(6)


@dataclass(slots=True)
class _Parts:
    """L bars taken apart: logarithms, (L,) each, to be changed in place."""

    gap: Floats
    """From the close before to the open."""
    body: Floats
    """From open to close."""
    upper: Floats
    """From the higher of them to the high."""
    lower: Floats
    """From the low to the lower of them."""
    volume: Floats
    """What volume is to be multiplied by."""

    def log_return(self) -> float:
        return float(self.gap.sum() + self.body.sum())

    def ranges(self) -> Floats:
        """From low to high."""
        return self.upper + np.abs(self.body) + self.lower

    def amplify(self, factors: Floats) -> None:
        """Moves and wicks times the factors (L,), the log return of all kept."""
        total = self.log_return()
        for part in (self.gap, self.body, self.upper, self.lower):
            part *= factors
        self.drift(total - self.log_return())

    def drift(self, total: float) -> None:
        """Add to the log return, evenly over the bars that move: what stood still does so yet."""
        for part, moves in ((self.body, self.ranges() > 0), (self.gap, self.gap != 0)):
            if moves.any():
                part[moves] += total / moves.sum()
                return


def _take_apart(bars: Floats, span: slice) -> _Parts:
    opens, highs, lows, closes = bars[span, :_VOLUME].T
    return _Parts(
        np.log(opens / np.concatenate([[_price_before(bars, span)], closes[:-1]])),
        np.log(closes / opens),
        np.log(highs / np.maximum(opens, closes)),
        np.log(np.minimum(opens, closes) / lows),
        np.ones(len(opens)),
    )


def _put_together(bars: Floats, span: slice, parts: _Parts) -> Floats:
    """New bars (N, 6), those behind the span as far from it as they were."""
    shocked = bars.copy()
    inside, behind = shocked[span], shocked[span.stop :]
    # open and close from one sum, so that a bar without a body has exactly one price
    levels = np.cumsum(np.column_stack([parts.gap, parts.body]))  # 2L
    opens, closes = (_price_before(bars, span) * np.exp(levels)).reshape(-1, 2).T
    inside[:, _OPEN], inside[:, _CLOSE] = opens, closes
    inside[:, _HIGH] = np.maximum(opens, closes) * np.exp(parts.upper)
    inside[:, _LOW] = np.minimum(opens, closes) * np.exp(-parts.lower)
    dearer = inside[:, :_VOLUME].mean(axis=1) / bars[span, :_VOLUME].mean(axis=1)
    inside[:, _VOLUME] *= parts.volume
    inside[:, _AMOUNT] *= parts.volume * dearer
    level = inside[-1, _CLOSE] / bars[span.stop - 1, _CLOSE]
    behind[:, :_VOLUME] *= level
    behind[:, _AMOUNT] *= level
    return shocked


def _price_before(bars: Floats, span: slice) -> float:
    """The close before the span; the first bar has none, and its open takes that place."""
    return float(bars[span.start - 1, _CLOSE] if span.start else bars[0, _OPEN])


def high_volatility(
    bars: Floats, span: slice, strength: float, chance: np.random.Generator
) -> Floats:
    """Larger moves, wicks and volume, around the way from the first price to the last."""
    parts = _take_apart(bars, span)
    parts.volume *= 1 + 2 * strength
    parts.amplify(parts.volume)
    return _put_together(bars, span, parts)


def liquidity_drought(
    bars: Floats, span: slice, strength: float, chance: np.random.Generator
) -> Floats:
    """Little volume, some bars without any, and prices on both sides of a wide spread."""
    parts = _take_apart(bars, span)
    idle = chance.random(len(parts.gap)) < strength / (strength + 4)
    idle[-1] = False  # the path is taken up again at the end
    sides = chance.choice([-0.5, 0.5], size=(len(idle), 2))
    sides *= strength * parts.ranges().mean()  # L 2, of open and close
    sides[-1, 1] = 0
    parts.gap += sides[:, 0] - np.concatenate([[0.0], sides[:-1, 1]])
    parts.body += sides[:, 1] - sides[:, 0]
    for wick in (parts.upper, parts.lower):
        wick *= 1 + strength
        wick[idle] = 0
    _leave_to_the_next(parts, idle)
    parts.volume[:] = np.where(idle, 0, 1 / (1 + 4 * strength))
    return _put_together(bars, span, parts)


def _leave_to_the_next(parts: _Parts, idle: NDArray[np.bool_]) -> None:
    """Move what idle bars moved into the gap of the bar that trades next."""
    closes = np.cumsum(parts.gap + parts.body)
    traded = np.maximum.accumulate(np.where(idle, -1, np.arange(len(idle))))
    known = np.where(traded < 0, 0.0, closes[traded])  # at each bar, the last traded close
    late = np.flatnonzero(idle[:-1] & ~idle[1:]) + 1  # trade after a bar that did not
    parts.gap[late] += closes[late - 1] - known[late - 1]
    parts.gap[idle] = parts.body[idle] = 0


def black_swan(bars: Floats, span: slice, strength: float, chance: np.random.Generator) -> Floats:
    """A gap and a crash, then a third of the fall regained, with aftershocks that fade."""
    parts = _take_apart(bars, span)
    size = len(parts.gap)
    fall = strength * (0.1 + 6 * (parts.gap + parts.body).std())
    crash = math.ceil(size / 10)
    fading = np.exp(-np.arange(size) / (size / 4))
    parts.volume += 9 * strength * fading
    parts.gap[0] -= 0.4 * fall
    parts.body[:crash] -= 0.6 * fall * _shares(crash, chance)
    after = fading[: size - crash]
    shocks = after * chance.standard_normal(len(after))
    parts.body[crash:] += 0.15 * fall * (shocks - after * (shocks.sum() / after.sum()))
    parts.body[crash:] += fall / 3 * _shares(size - crash, chance)
    for wick in (parts.upper, parts.lower):
        wick[crash:] += 0.05 * fall * after * chance.exponential(size=len(after))
    return _put_together(bars, span, parts)


def _shares(count: int, chance: np.random.Generator) -> Floats:
    """So many uneven shares of 1; none of none."""
    shares = chance.exponential(size=count)
    return np.asarray(shares / shares.sum())


def trend_reversal(
    bars: Floats, span: slice, strength: float, chance: np.random.Generator
) -> Floats:
    """The drift of the span turned around, its ups and downs as they were."""
    parts = _take_apart(bars, span)
    parts.drift(-2 * strength * parts.log_return())
    return _put_together(bars, span, parts)


def halted_trading(
    bars: Floats, span: slice, strength: float, chance: np.random.Generator
) -> Floats:
    """No trade at the last price; thereafter the bars as they are."""
    remaining = len(bars) - span.start
    halted = math.ceil(min(strength * (span.stop - span.start), remaining))
    shocked = bars.copy()
    shocked[span.start : span.start + halted, :_VOLUME] = _price_before(bars, span)
    shocked[span.start : span.start + halted, _VOLUME:] = 0
    return shocked

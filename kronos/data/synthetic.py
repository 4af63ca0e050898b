"""A market made up from a seed, of any size, for tests that need bars and have none.

Axes: n bars of one symbol, N of all, P bars of a day.

It has what Cont (2001, Quantitative Finance 1, 223-236) finds in all markets: returns with heavy
tails and no memory, whose size has a long one; and volume that goes with volatility. A Markov
chain of a calm and a turbulent state sets drift and volatility, Student's t with 4 degrees of
freedom the shape. Within a day both volume and volatility are high at its ends.

Everything comes from a generator of each symbol's own, by additions, products, quotients and
square roots alone, which every machine rounds alike; exp and log would differ in the last digit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kronos.data.market import Market
from kronos.data.timestamps import stamp_columns
from kronos.errors import ConfigError

Floats: TypeAlias = NDArray[np.float64]

_DAY: Final = pd.Timedelta(days=1)
_SESSIONS: Final = (pd.Timedelta(hours=9, minutes=30), pd.Timedelta(hours=13))
_SESSION: Final = pd.Timedelta(hours=2)
"""How long each session is, the end excluded."""
_FIRST_DAY, _LAST_DAY = pd.Timestamp.min.ceil("D"), pd.Timestamp.max.floor("D")
"""What int64 nanoseconds reach."""

_CALM, _TURBULENT = 0, 1
_STAY: Final = (400, 100)
"""Bars a state lasts, on average."""
_DRIFT: Final = np.array([0.0005, -0.0015])
_VOLATILITY: Final = np.array([0.011, 0.030])
"""Of a day: mean and standard deviation of its return, for a symbol of middling risk."""
_BODIES, _NIGHT, _LUNCH, _TICKING = 0.7, 0.25, 0.05, 0.01
"""Shares of a day's variance: of all bodies, of the gaps at night and at noon; of a body's
variance, that of a gap within a session."""
_LIMIT: Final = 0.2
"""No gap and no body is larger, as where exchanges limit prices; 1 - limit keeps them positive."""
_WICK: Final = 0.4
"""Size of a wick in the bar's volatility."""
_LOT: Final = 100.0
_DRAWS: Final = 12
"""Normal numbers for a bar: state, body (1 over 4), gap, two wicks, volume (3)."""


def synthetic_market(
    symbols: int,
    bars: int | Sequence[int],
    *,
    seed: int = 0,
    spacing: str = "5min",
    start: str = "2024-01-02",
    tick: float | None = None,
) -> Market:
    """A market of made-up symbols S00000, S00001, ..., without a time zone.

    `bars`: how many each symbol has, or a sequence of S numbers. A bar is stamped with its
    beginning. Up to two hours apart, bars are in the sessions 09:30-11:30 and 13:00-15:00 of
    Monday to Friday; with a `spacing` of one day there is one for each of these days. All symbols
    begin on the day `start`, or the Monday after it, and share one calendar. Volumes are in lots of
    100, at least one; amounts are the volume times a price between low and high. `tick`: prices
    are multiples of it, at least one; None leaves them as they are.

    Symbol k depends on `seed`, k, `spacing` and `tick` alone: neither on the other symbols nor on
    `start`, and with more bars it begins with the same ones.

    Raises:
        ConfigError: no symbols or bars, a seed below 0, a spacing of neither kind, a start that is
            no date, a tick that is none, or bars that reach beyond the year 2262.
    """
    for setting, value, least in (("symbols", symbols, 1), ("seed", seed, 0)):
        if value < least:
            raise ConfigError(f"{setting} must be at least {least}, got {value}")
    counts = _counts(symbols, bars)
    calendar = _calendar(max(counts), _spacing(spacing), start)
    if tick is not None and not 1e-9 <= tick <= 1000:
        raise ConfigError(f"tick must be from 1e-9 to 1000, or None for no grid; got {tick:g}")
    offsets = np.cumsum([0, *counts], dtype=np.int64)
    features = np.empty((offsets[-1], 6))
    for symbol in range(symbols):
        source = np.random.SeedSequence(seed, spawn_key=(symbol,))
        rows = features[offsets[symbol] : offsets[symbol + 1]]
        _fill(rows, np.random.Generator(np.random.PCG64(source)), calendar.profile, tick)
    stamps = stamp_columns(calendar.index).astype(np.uint8)
    times = calendar.index.asi8
    arrays = (
        np.concatenate([times[:count] for count in counts]),
        features,
        np.concatenate([stamps[:count] for count in counts]),
    )
    for array in (offsets, *arrays):
        array.setflags(write=False)
    return Market(tuple(f"S{symbol:05d}" for symbol in range(symbols)), offsets, *arrays, None)


def synthetic_bars(
    bars: int,
    *,
    seed: int = 0,
    spacing: str = "5min",
    start: str = "2024-01-02",
    tick: float | None = None,
) -> pd.DataFrame:
    """The bars of the first symbol of `synthetic_market`, in the form of `read_bars`.

    Raises ConfigError as `synthetic_market` does.
    """
    market = synthetic_market(1, bars, seed=seed, spacing=spacing, start=start, tick=tick)
    return market.frame(market.symbols[0])


@dataclass(frozen=True, slots=True)
class _Profile:
    """What the times of a day do to its bars, (P,) each."""

    body: Floats
    """Standard deviations, in that of a day's return."""
    gap: Floats
    volume: Floats
    """Mean 1."""


@dataclass(frozen=True, slots=True)
class _Calendar:
    index: pd.DatetimeIndex
    """(n,), from the first bar of a day on."""
    profile: _Profile


def _calendar(bars: int, spacing: pd.Timedelta, start: str) -> _Calendar:
    """The times of so many bars, and what times of day do."""
    times = _times_of_day(spacing)
    first = _date(start)
    # the number of a weekday, five in each week, counted from the Monday of the first week
    begin, count = min(first.day_of_week, 5), -(-bars // len(times))
    room = (_LAST_DAY.value - first.value) // _DAY.value  # days; a Timedelta may not hold them
    if (begin + count) // 5 * 7 + 7 > room:
        raise ConfigError(
            f"{bars} bars of {spacing} from {first:%Y-%m-%d} on reach beyond {_LAST_DAY:%Y-%m-%d}; "
            "take fewer of them or an earlier start"
        )
    number = begin + np.arange(count)
    days = 7 * (number // 5) + number % 5 - first.day_of_week
    moments = days[:, None] * _DAY.value + np.array([time.value for time in times]) + first.value
    return _Calendar(pd.DatetimeIndex(moments.ravel()[:bars].view("M8[ns]")), _profile(times))


def _times_of_day(spacing: pd.Timedelta) -> list[pd.Timedelta]:
    if spacing == _DAY:
        return [pd.Timedelta(0)]
    return [opens + spacing * step for opens in _SESSIONS for step in range(_SESSION // spacing)]


def _profile(times: list[pd.Timedelta]) -> _Profile:
    count = len(times)
    from_noon = 2 * (np.arange(count) + 0.5) / count - 1  # -1 to 1
    bow = 3 * from_noon * from_noon if count > 1 else np.ones(1)  # mean about 1
    shares = np.full(count, _TICKING * _BODIES / count)
    if count > 1:
        shares[count // 2] = _LUNCH
    shares[0] = _NIGHT
    return _Profile(
        math.sqrt(_BODIES / count) * (0.7 + 0.3 * bow), np.sqrt(shares), 0.55 + 0.45 * bow
    )


def _fill(rows: Floats, source: np.random.Generator, profile: _Profile, tick: float | None) -> None:
    """Write the bars (n, 6) of one symbol."""
    price, risk, trade, state = source.standard_normal(4)
    # a row for each bar, so that further bars change none of those before
    draws = source.standard_normal((len(rows), _DRAWS)).T.copy()
    states = markov_states(draws[0], int(state < NormalDist().inv_cdf(_share_of_turbulence())))
    slots = len(profile.body)
    slot = np.arange(len(rows)) % slots
    volatility = _VOLATILITY[states] * (0.7 + 0.6 * risk * risk / (1 + risk * risk))  # of the day
    spread = volatility * profile.body[slot]
    shock = draws[1] / np.sqrt(_squares(draws[2:6]) * 0.5)  # t4 over its deviation, sqrt(2)
    moves = np.stack(  # n 2
        [volatility * profile.gap[slot] * draws[6], spread * shock + _DRIFT[states] / slots], axis=1
    )
    path = 10 * (1 + 2 * price * price) * np.cumprod(1 + np.clip(moves, -_LIMIT, _LIMIT))
    opens, closes = path.reshape(-1, 2).T
    upper, lower = 1 + _WICK * spread * np.abs(draws[7:9])
    prices = (
        opens,
        np.maximum(opens, closes) * upper,
        np.minimum(opens, closes) / lower,
        closes,
    )
    for column, values in enumerate(prices):
        rows[:, column] = values if tick is None else _on_grid(values, tick)
    busy = (1 + np.abs(shock)) * (1 + states) * (0.25 + 0.25 * _squares(draws[9:12]))
    lots = 2000 * (1 + 2 * trade * trade) / slots * profile.volume[slot] * busy
    rows[:, 4] = np.maximum(np.rint(lots), 1) * _LOT
    middle = (rows[:, 0] + 2 * (rows[:, 1] + rows[:, 2]) + rows[:, 3]) / 6
    rows[:, 5] = rows[:, 4] * middle


def markov_states(draws: Floats, first: int) -> NDArray[np.int64]:
    """The state (0 calm, 1 turbulent) at each bar, from normal numbers (n,) and a state before.

    A number below the quantile of a state's chance to end ends it. Turbulence ends more easily, so
    a number either swaps both states, or ends turbulence alone, or does nothing: the state is the
    parity of the swaps since turbulence alone was last ended.
    """
    calm, turbulent = (NormalDist().inv_cdf(1 / stay) for stay in _STAY)
    swaps = np.cumsum(draws < calm)
    ended = np.maximum.accumulate(np.where((draws >= calm) & (draws < turbulent), swaps, -1))
    return np.where(ended < 0, first + swaps, swaps - ended) % 2


def _share_of_turbulence() -> float:
    return _STAY[_TURBULENT] / sum(_STAY)


def _squares(draws: Floats) -> Floats:
    """Sum of the squares of each column, in the order of the rows whatever the machine."""
    total = draws[0] * draws[0]
    for draw in draws[1:]:
        total += draw * draw
    return total


def _on_grid(prices: Floats, tick: float) -> Floats:
    per_unit = round(1 / tick) if tick < 1 else 0
    if per_unit and math.isclose(per_unit * tick, 1, rel_tol=1e-9):  # 12.34, not 12.340000000000002
        return np.maximum(np.rint(prices * per_unit), 1) / per_unit
    return np.maximum(np.rint(prices / tick), 1) * tick


def _counts(symbols: int, bars: int | Sequence[int]) -> list[int]:
    counts = [bars] * symbols if isinstance(bars, int) else list(bars)
    if len(counts) != symbols:
        raise ConfigError(
            f"bars has {len(counts)} numbers for {symbols} symbols; give one for each, or one"
        )
    if min(counts) < 1:
        raise ConfigError(f"every symbol must have at least 1 bar, got {min(counts)}")
    return counts


def _spacing(text: str) -> pd.Timedelta:
    try:
        spacing = pd.Timedelta(text)
    except ValueError:
        spacing = pd.Timedelta(0)
    if not (pd.Timedelta(seconds=1) <= spacing <= _SESSION or spacing == _DAY):
        raise ConfigError(
            "spacing must be one day, or from one second to the two hours of a session, "
            f"got {text!r:.40}; write 5min, 1h or 1D"
        )
    return spacing


def _date(text: str) -> pd.Timestamp:
    start = pd.to_datetime(text, format="%Y-%m-%d", errors="coerce")
    if not isinstance(start, pd.Timestamp) or not _FIRST_DAY <= start <= _LAST_DAY:
        raise ConfigError(
            f"start must be a date from {_FIRST_DAY:%Y-%m-%d} to {_LAST_DAY:%Y-%m-%d}, "
            f"got {text!r:.40}; write it like 2024-01-02"
        )
    return start

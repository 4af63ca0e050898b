"""What the columns of bars are called, and how a place in them is told to a user."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kronos.errors import DataError

PRICES = ("open", "high", "low", "close")
FEATURES = (*PRICES, "volume", "amount")
TIMESTAMPS = "timestamps"
TIMESTAMP_NAMES = ("timestamps", "timestamp", "date", "datetime", "time")
SYMBOL = "symbol"

# Columns that stand for the timestamps together, or for the volume where that is all zero.
DATE, TIME, TICK_VOLUME = "date", "time", "tick volume"

# What files call a column, in the form of `plain_name`. Left out on purpose: adjusted and previous
# closes, close times, and every "turnover", which is a rate (换手率) as often as it is money.
ALIASES: dict[str, tuple[str, ...]] = {
    TIMESTAMPS: (
        *("timestamps", "timestamp", "datetime", "date time", "ts", "open time", "opentime"),
        *("candle begin time", "日期时间", "时间戳"),
    ),
    DATE: ("date", "day", "trade date", "tradedate", "日期", "交易日期", "交易日"),
    TIME: ("time", "trade time", "tradetime", "时间", "交易时间"),
    "open": ("open", "open price", "开盘", "开盘价", "今开", "今开盘"),
    "high": ("high", "high price", "最高", "最高价"),
    "low": ("low", "low price", "最低", "最低价"),
    "close": ("close", "close price", "收盘", "收盘价"),
    "volume": (
        *("volume", "vol", "real volume", "trade volume"),
        *("成交量", "总量", "总手", "成交股数"),
    ),
    "amount": (
        *("amount", "amt", "money", "quote volume", "quote asset volume"),
        *("成交额", "成交金额", "金额"),
    ),
    TICK_VOLUME: ("tickvol", "tick volume"),
    SYMBOL: (
        *("symbol", "code", "ticker", "tic", "ts code", "stock code", "instrument"),
        *("order book id", "kdcode", "股票代码", "证券代码", "代码", "合约代码", "基金代码"),
    ),
}
_KEY_OF = {alias: key for key, aliases in ALIASES.items() for alias in aliases}
_UNIT = re.compile(
    r"^(.+?) ?[(\[](百万股|万股|股|万手|手|百万元|万元|千元|亿元|元|港元|美元)[)\]]$"
)

LONGEST_QUOTE = 40


@dataclass(frozen=True, slots=True)
class Source:
    """Where bars come from, to name the place of a fault."""

    name: str
    """A file, or what the caller calls its frame."""
    line: Callable[[int], int] | None = None
    """The line in the file of a row, counted from 0; None where there are no lines."""
    rows: NDArray[np.int64] | None = None
    """(N,), the row, from 0, of each position; None where they are the same."""

    def number(self, position: int) -> int:
        """The row at `position`, counted from 0 as the file has it."""
        return position if self.rows is None else int(self.rows[position])

    def row(self, position: int) -> str:
        """The row at `position` (from 0) in words: rows count from 1, below the header."""
        row = self.number(position)
        if self.line is None:
            return f"row {row + 1}"
        return f"row {row + 1} (line {self.line(row)})"


def plain_name(name: str) -> str:
    """A column's name to be compared: without case, width, outer blanks, $, <> and underscores."""
    text = unicodedata.normalize("NFKC", name).strip("\ufeff\u200b \t\r\n")
    text = re.sub(r"^<(.*)>$", r"\1", text).removeprefix("$")
    return re.sub(r"[\s_\-]+", " ", text).strip().lower()


def split_unit(name: str) -> tuple[str, str | None]:
    """A name in the form of `plain_name` and the unit in brackets behind it, if that is known."""
    found = _UNIT.match(name)
    return (found[1], found[2]) if found else (name, None)


def known_columns(names: Sequence[str]) -> dict[str, list[int]]:
    """Positions of the known columns among `names`, keyed as ALIASES is."""
    found: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        key = _KEY_OF.get(split_unit(plain_name(name))[0])
        if key is not None:
            found.setdefault(key, []).append(position)
    return found


def find_columns(
    names: Sequence[str], source: str, *, timestamps_needed: bool = True
) -> dict[str, int]:
    """Positions of the timestamps and the features among a frame's `names`, keyed by their names.

    Names are compared as `plain_name` writes them and may be any of ALIASES. Volume and amount
    may be absent, unknown columns are ignored.

    Raises DataError where a needed column is absent or a known one stands there twice.
    """
    found = known_columns(names)
    times = sorted(place for key in (TIMESTAMPS, DATE, TIME) for place in found.get(key, []))
    places = {key: found[key] for key in FEATURES if key in found}
    if times:
        places = {TIMESTAMPS: times, **places}
    for key, positions in places.items():
        only_one(key, positions, names, source)
    need_columns(places, names, source, timestamps_needed=timestamps_needed)
    return {key: positions[0] for key, positions in places.items()}


def only_one(key: str, positions: Sequence[int], names: Sequence[str], source: str) -> None:
    """DataError where there are several columns for `key`."""
    if len(positions) > 1:
        given = ", ".join(quote(names[position]) for position in positions)
        raise DataError(
            f"{source}: {len(positions)} columns for {key} ({given}); keep one, or say which with "
            f"columns={{{key!r}: ...}} (--columns)"
        )


def need_columns(
    there: Sequence[str] | dict[str, list[int]],
    names: Sequence[str],
    source: str,
    *,
    timestamps_needed: bool = True,
) -> None:
    """DataError where a column that bars cannot do without is not among the keys `there`."""
    needed = (TIMESTAMPS, *PRICES) if timestamps_needed else PRICES
    missing = [key for key in needed if key not in there]
    if missing:
        listed = ", ".join(quote(name) for name in names[:20]) or "none"
        raise DataError(
            f"{source}: no column {', '.join(missing)}; the columns there are {listed}; "
            f"rename them, or say which it is with columns={{{missing[0]!r}: ...}} (--columns)"
        )


def quote(text: str) -> str:
    """`text` in quotes on one line, shortened where it is long."""
    shown = text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + "…"
    return repr(shown)

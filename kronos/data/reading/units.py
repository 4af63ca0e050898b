"""Units of volume and amount: shares and money, whatever lots and thousands a source counts in.

A-share sources count volume in lots (手) of 100 shares. amount / (volume * mean price) shows it:
about 100 where the volume is in lots, about 1 where it is in shares. Adjusted prices blur that,
but not everywhere: they are the traded ones at one end of the history.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kronos.data.columns import PRICES
from kronos.data.reading.layouts import Layout

LOT: Final = 100
_AROUND: Final = 1.25  # a ratio within this factor is taken as the value
_END: Final = 50  # bars of each end that are looked at
_MOST: Final = 20_000
_MAINLAND = (".SH", ".SZ", ".BJ", ".CSI")

_VOLUME_UNITS = {"股": 1, "万股": 10**4, "百万股": 10**6, "万手": 10**6}
_AMOUNT_UNITS = {"千元": 10**3, "万元": 10**4, "百万元": 10**6, "亿元": 10**8}

Columns = dict[str, NDArray[np.float64]]


def convert_units(
    layout: Layout, columns: Columns, symbols: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Make the volume (N,) and the amount (N,) of `columns` shares and money, in place.

    Gives what was converted, and what else is to be said of the units, in words.
    """
    told: list[str] = []
    if "volume" not in columns:
        return _amount_by_name(layout, columns), []
    told += _amount_by_name(layout, columns)
    if layout.units.get("volume") in _VOLUME_UNITS:
        told += _multiply(columns, "volume", _VOLUME_UNITS[layout.units["volume"]], "in the header")
    ratios = _ratios(columns)
    if layout.lots == "tushare":
        return _tushare(columns, ratios, symbols)
    lots, shares = _any_near(ratios, LOT), _any_near(ratios, 1)
    shown = ", ".join(f"{ratio:.3g}" for ratio in ratios) or "unknown"
    if layout.lots == "perhaps":
        if lots and not shares:
            reason = "from lots of 100 shares, since amount / (volume * price) is about 100"
            return [*told, *_multiply(columns, "volume", LOT, reason)], []
        if shares and not lots:
            return told, ["volume is in shares: amount / (volume * price) is about 1"]
        note = f"volume is left as it is: amount / (volume * price) is {shown}, neither 100 nor 1"
        return told, [note]
    if lots and not shares:
        note = "amount / (volume * price) is about 100: the volume may be in lots of 100 shares"
        return told, [note]
    return told, []


def _amount_by_name(layout: Layout, columns: Columns) -> list[str]:
    unit = layout.units.get("amount")
    if unit in _AMOUNT_UNITS and "amount" in columns:
        return _multiply(columns, "amount", _AMOUNT_UNITS[unit], f"from {unit}, as the header says")
    return []


def _tushare(
    columns: Columns, ratios: list[float], symbols: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Daily bars of the mainland are in lots and thousands, which make the ratio 10; those of
    Hong Kong and the USA in shares and money. 1 all along means that they were converted."""
    is_plain = ratios and all(_is_near(ratio, 1) for ratio in ratios)
    is_mainland = all(symbol.upper().endswith(_MAINLAND) for symbol in symbols if symbol)
    if is_plain or not (is_mainland or _any_near(ratios, 10)):
        return [], ["volume and amount are left as they are, as tushare gives shares elsewhere"]
    told = _multiply(columns, "volume", LOT, "from lots of 100 shares, as tushare has daily bars")
    if "amount" in columns:
        told += _multiply(columns, "amount", 1000, "from thousands, as tushare has daily bars")
    return told, []


def _multiply(columns: Columns, name: str, factor: int, reason: str) -> list[str]:
    if factor == 1:
        return []
    columns[name] = columns[name] * factor
    return [f"{name} times {factor}, {reason}"]


def _ratios(columns: Columns) -> list[float]:
    """Median amount / (volume * mean price) of the first bars, the last, and all of them."""
    if "amount" not in columns:
        return []
    volume, amount = columns["volume"], columns["amount"]
    step = max(1, len(volume) // _MOST)
    rows = np.unique(
        np.concatenate([
            np.flatnonzero(volume > 0)[:_END],
            np.arange(0, len(volume), step),
            np.flatnonzero(volume > 0)[-_END:],
        ])
    )  # fmt: skip
    price = np.mean([columns[name][rows] for name in PRICES], axis=0)
    with np.errstate(all="ignore"):
        ratio = amount[rows] / (volume[rows] * price)
    ratio = ratio[np.isfinite(ratio) & (ratio > 0)]
    if not ratio.size:
        return []
    parts = (ratio[:_END], ratio, ratio[-_END:])
    return [float(np.median(part)) for part in parts]


def _is_near(ratio: float, value: float) -> bool:
    return value / _AROUND <= ratio <= value * _AROUND


def _any_near(ratios: list[float], value: float) -> bool:
    return any(_is_near(ratio, value) for ratio in ratios)

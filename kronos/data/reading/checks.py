"""The rules that bars obey, each a fault that names the column, the count and the first row.

The order is fixed: repeated timestamps, their order, gaps that nothing fills, finite numbers,
positive prices, volume and amount not negative, high and low around open and close.
"""

import numpy as np
from numpy.typing import NDArray

from kronos.data.columns import FEATURES, PRICES, TIMESTAMPS, quote
from kronos.data.reading.faults import Fault, Findings
from kronos.data.reading.gather import Bars


def check_values(bars: Bars, findings: Findings) -> None:
    """The rules on the numbers of bars; the timestamps were seen to by `put_in_order`."""
    for column, name in enumerate(FEATURES):
        values = bars.features[:, column]
        _refuse(bars, ~np.isfinite(values), name, "not finite", findings)
    for column, name in enumerate(FEATURES):
        values = bars.features[:, column]
        if name in PRICES:
            _refuse(bars, values <= 0, name, "zero or negative", findings)
        else:
            _refuse(bars, values < 0, name, "negative", findings)
    _check_ranges(bars, findings)


def outside_range(features: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of N bars (N, >=4) have a high below, or a low above, one of their other prices."""
    opens, highs, lows, closes = features[:, :4].T
    # high < low needs no test of its own: open would lie above the one or below the other
    below, above = highs < np.maximum(opens, closes), lows > np.minimum(opens, closes)
    return np.asarray(below | above)


def duplicate(bars: Bars, bar: int, earlier: int, count: int) -> Fault:
    """`bar` has the symbol and the time of the `earlier` one, as `count` bars do of others."""
    out = "" if bars.is_frame else " with dedupe='first' or 'last' (--dedupe)"
    before = bars.row(earlier)
    if bars.place(earlier)[0] is not bars.place(bar)[0]:
        before += f" in {bars.place(earlier)[0].name}"
    words = (
        f"{quote(bars.when(bar))} repeats {before} ({count} repeated in {len(bars)} bars); "
        f"keep one bar for each timestamp{out}"
    )
    return _at(bars, bar, "duplicate", TIMESTAMPS, count, words)


def unsorted(bars: Bars, backwards: NDArray[np.bool_]) -> Fault:
    """Bars, (N - 1,) from the second on, that are earlier than that before."""
    out = "" if bars.is_frame else " with sort=True (--sort)"
    bar = bars.first(np.concatenate([[False], backwards]))
    if backwards[bars.inside()].all() and len(bars) > 2:
        out = f"{out}; the rows stand newest first"
    words = (
        f"{quote(bars.when(bar))} is earlier than {quote(bars.when(bar - 1))} before it; "
        f"sort the rows by time{out}"
    )
    return _at(bars, bar, "unsorted", TIMESTAMPS, int(backwards.sum()), words)


def leading_gap(bars: Bars, column: str, gaps: NDArray[np.bool_]) -> Fault:
    """Cells (N,) that are missing in bars before which their symbol has none with a number."""
    bar = bars.first(gaps)
    words = (
        "the cell is missing, and no bar before it has a number to fill it with; "
        "leave the bar out with fill='drop' (--fill drop)"
    )
    return _at(bars, bar, "missing", column, int(gaps.sum()), words)


def _at(bars: Bars, bar: int, kind: str, column: str, count: int, words: str) -> Fault:
    source, _ = bars.place(bar)
    message = f"{source.name}: column {column}, {bars.row(bar)}: {words}"
    return _fault(bars, bar, kind, column, count, message)


def _fault(bars: Bars, bar: int, kind: str, column: str | None, count: int, message: str) -> Fault:
    source, position = bars.place(bar)
    row = source.number(position)
    text = None
    if column in FEATURES and kind != "missing":
        text = f"{bars.features[bar, FEATURES.index(column)]:.9g}"
    elif column == TIMESTAMPS:
        text = bars.when(bar)
    return Fault(
        kind=kind,
        column=column,
        count=count,
        message=message,
        file=source.name,
        symbol=bars.symbols[bars.codes[bar]],
        row=row + 1,
        line=None if source.line is None else source.line(row),
        text=text,
    )


def _refuse(bars: Bars, bad: NDArray[np.bool_], name: str, kind: str, findings: Findings) -> None:
    if not bad.any():
        return
    findings.count(kind, int(bad.sum()))
    bar = bars.first(bad)
    value = bars.features[bar, FEATURES.index(name)]
    message = (
        f"{bars.place(bar)[0].name}: column {name} is {kind} in {bad.sum()} of {len(bars)} bars, "
        f"first in {bars.row(bar)}: {value:.9g}; correct or remove them"
    )
    findings.add(_fault(bars, bar, kind, name, int(bad.sum()), message))


def _check_ranges(bars: Bars, findings: Findings) -> None:
    bad = outside_range(bars.features)
    if not bad.any():
        return
    bar = bars.first(bad)
    prices = zip(PRICES, bars.features[bar, :4], strict=True)
    shown = ", ".join(f"{name} {price:.9g}" for name, price in prices)
    out = "repair_bars(frame)" if bars.is_frame else "repair=True (--repair)"
    message = (
        f"{bars.place(bar)[0].name}: high and low do not contain open and close in {bad.sum()} of "
        f"{len(bars)} bars, first in {bars.row(bar)}: {shown}; correct them, or widen high and low "
        f"with {out}"
    )
    findings.add(_fault(bars, bar, "range", None, int(bad.sum()), message))

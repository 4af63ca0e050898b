"""What makes bars sound on request: one bar for each time, in order, filled, widened.

Every change is counted. What is not asked for is a fault, with the way to ask for it.
"""

import numpy as np

from kronos.data.columns import FEATURES
from kronos.data.options import ReadOptions
from kronos.data.reading.checks import duplicate, leading_gap, outside_range, unsorted
from kronos.data.reading.faults import Findings
from kronos.data.reading.gather import Bars, mean_price


def put_in_order(bars: Bars, options: ReadOptions, findings: Findings) -> None:
    """One bar for each symbol and time, and those in order, as the options ask.

    Where they do not, and faults are collected, the first of equal bars stays and all are
    sorted, so that the rest can be looked at.
    """
    if not (bars.inside() & (bars.times[1:] <= bars.times[:-1])).any():
        return
    _dedupe(bars, options, findings)
    backwards = bars.inside() & (bars.times[1:] < bars.times[:-1])
    findings.count("unsorted", int(backwards.sum()))
    if not backwards.any():
        return
    if not options.sort:
        findings.add(unsorted(bars, backwards))
    order = np.lexsort((bars.times, bars.codes))
    if options.sort:
        findings.count("sorted", int((order != np.arange(len(order))).sum()))
    bars.take(order)


def _dedupe(bars: Bars, options: ReadOptions, findings: Findings) -> None:
    order = np.lexsort((bars.times, bars.codes))  # stable: equal bars stay in the files' order
    times, codes = bars.times[order], bars.codes[order]
    same = (times[1:] == times[:-1]) & (codes[1:] == codes[:-1])
    if not same.any():
        return
    later = np.zeros(len(bars), dtype=bool)
    later[order[1:][same]] = True
    findings.count("duplicate", int(later.sum()))
    if options.dedupe is None:
        bar = bars.first(later)
        at = int(np.flatnonzero(order == bar)[0])
        while at and same[at - 1]:
            at -= 1
        findings.add(duplicate(bars, bar, int(order[at]), int(later.sum())))
    else:
        findings.count("deduped", int(later.sum()))
    if options.dedupe == "last":
        later[:] = False
        later[order[:-1][same]] = True
    bars.keep(~later)


def fill_missing(bars: Bars, options: ReadOptions, findings: Findings) -> None:
    """Give missing cells the value of the symbol's bar before, where that is asked for."""
    if options.fill != "ffill":
        return
    starts = bars.offsets()[1][:-1]
    begins = np.zeros(len(bars), dtype=np.int64)
    begins[starts] = starts
    begins = np.maximum.accumulate(begins)
    orphans = np.zeros(len(bars), dtype=bool)
    for column, name in enumerate(FEATURES):
        missing = np.isnan(bars.features[:, column])
        if not missing.any():
            continue
        known = np.maximum.accumulate(np.where(missing, -1, np.arange(len(bars))))
        leading = missing & (known < begins)
        if leading.any():
            findings.add(leading_gap(bars, name, leading))
        values = bars.features[:, column]
        bars.features[:, column] = np.where(missing & ~leading, values[known], values)
        findings.count("filled", int((missing & ~leading).sum()))
        orphans |= leading
    bars.keep(~orphans)


def widen(bars: Bars, options: ReadOptions, findings: Findings) -> None:
    """Widen high and low to contain open and close, where that is asked for."""
    bad = outside_range(bars.features)
    findings.count("range", int(bad.sum()))
    if options.repair and bad.any():
        opens, highs, lows, closes = (bars.features[bad, column] for column in range(4))
        bars.features[bad, 1] = np.maximum(highs, np.maximum(opens, closes))
        bars.features[bad, 2] = np.minimum(lows, np.minimum(opens, closes))
        findings.count("widened", int(bad.sum()))


def derive_amounts(bars: Bars) -> None:
    """The amount of bars without one: volume times the mean of the four prices."""
    if bars.derived.any():
        with np.errstate(over="ignore", invalid="ignore"):  # not finite is for the check to say
            amounts = bars.features[:, 4] * mean_price(bars.features)
        bars.features[:, 5] = np.where(bars.derived, amounts, bars.features[:, 5])

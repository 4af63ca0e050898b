"""What bars look like: their spacing, gaps in it, jumps of the price, bars without volume."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kronos.data.reading.gather import Bars
from kronos.data.reading.zones import index_of

DAY: Final = 86_400 * 10**9
LONG_GAP: Final = 5
"""A spacing of more than so many usual ones is a long gap, unless the market was closed."""
CLOSURE: Final = 4
"""Days of closure that count as a weekend; a longer one is a long gap."""
HABIT: Final = 0.2
"""A gap within a day is a break of the session where so many days have it at that time."""
JUMP_MADS: Final = 12
JUMP_LEAST: Final = 0.1
"""A jump is a change of the close by more than both: 12 scaled median absolute deviations of the
log changes around their median, and 10 %."""
_MAD_TO_STD: Final = 1.4826


@dataclass(frozen=True, slots=True)
class Spacing:
    """How far apart the bars of a symbol are."""

    usual: int
    """The most frequent spacing in ns."""
    share: float
    """The share of the spacings that are the usual one."""
    larger: int
    """Spacings larger than the usual one, nights and weekends among them."""
    long: int
    """Spacings of more than LONG_GAP usual ones that are no closure: within a day those at a
    time of day at which fewer than HABIT of the days have one, over nights those of more than
    CLOSURE days, or any where the market goes on over most nights."""


def spacing_of(bars: Bars) -> Spacing | None:
    """The spacing of the bars of all symbols; None where no symbol has two."""
    steps = np.diff(bars.times)[bars.inside()]
    if not steps.size:
        return None
    usual = _most_frequent(steps)
    larger = steps > usual
    suspects = np.flatnonzero(bars.inside())[steps > LONG_GAP * usual]
    return Spacing(
        usual,
        float(np.mean(steps == usual)),
        int(larger.sum()),
        _long_gaps(bars, suspects, usual) if suspects.size else 0,
    )


def _most_frequent(steps: NDArray[np.int64]) -> int:
    middle = np.median(steps)
    if np.mean(steps == middle) > 0.5:  # then no other can be more frequent
        return int(middle)
    values, counts = np.unique(steps, return_counts=True)
    return int(values[np.argmax(counts)])


def _long_gaps(bars: Bars, suspects: NDArray[np.int64], usual: int) -> int:
    """How many of the spacings behind the bars `suspects` are no closure."""
    steps = bars.times[suspects + 1] - bars.times[suspects]
    if usual >= DAY:
        return len(suspects)
    wall = index_of(bars.times, bars.zone).tz_localize(None).asi8
    days = wall // DAY
    over_night = days[1:] != days[:-1]
    nights = over_night & bars.inside()
    is_endless = np.mean(np.diff(bars.times)[nights] == usual) > 0.5 if nights.any() else False
    if is_endless:
        return len(suspects)
    within = ~over_night[suspects]
    times = wall[suspects[within]] % DAY
    _, which, counts = np.unique(times, return_inverse=True, return_counts=True)
    # each symbol has its own days
    total = 1 + int((nights).sum()) + len(set(bars.codes[[0, -1]])) - 1
    rare = counts[which] < HABIT * total
    return int(rare.sum() + (steps[~within] > CLOSURE * DAY).sum())


def jumps_of(bars: Bars) -> int:
    """How many closes are a jump from that of the bar before, see JUMP_MADS."""
    closes = bars.features[:, 3]
    with np.errstate(divide="ignore", invalid="ignore"):
        changes = np.diff(np.log(closes))[bars.inside()]
    changes = changes[np.isfinite(changes)]
    if not changes.size:
        return 0
    away = np.abs(changes - np.median(changes))
    limit = JUMP_MADS * _MAD_TO_STD * float(np.median(away))
    return int(((away > limit) & (np.abs(changes) > np.log1p(JUMP_LEAST))).sum())

"""A forecast as a picture: candlesticks of the past, those of the forecast, and its paths' spread.

The x-axis counts bars, so that nights and weekends take no room; its ticks tell the times. This
is what both libraries draw, and where; `candles_image` (matplotlib) and `candles_page` (plotly)
draw it, and are loaded when asked for.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kronos.errors import DataError
from kronos.report.pictures import picture_writer

if TYPE_CHECKING:
    import pandas as pd

WIDTH, HEIGHT = 1200, 675
LEFT, RIGHT, BOTTOM = 132, 44, 64
"""Pixels around the axes; above them is `Drawing.margin`."""
NOTE: Final = 24
"""Pixels between the axes and the legend, for what is written at the boundary."""
LEGEND_COLUMNS, LEGEND_ROW = 3, 22
"""Entries side by side, and the pixels of a row of them."""
_TITLE_ROW: Final = 46
VOLUME_PART, VOLUME_GAP = 0.18, 0.04
"""The small panel below, in parts of the height of all axes."""

HISTORY: Final = "#1b1f24"
FORECAST: Final = "#0072b2"
HOLLOW: Final = "#ffffff"
MIDDLE: Final = "#d55e00"
"""The line of the middle quantile. The hues are Okabe and Ito's (2008)."""
_BAND: Final = (230, 159, 0)
GRID: Final = "#e4e6e9"
BODY: Final = 0.7
"""Of a bar's room, for its body."""
_LOOKS: Final = {
    "history": ("history", HISTORY, 0.0, "#7a7f87"),
    "forecast": ("forecast", FORECAST, 0.4, "#8fc7ea"),
}
"""Label, colour, cap and colour of the volumes; by the caps they differ in grey print too."""

BOUNDARY_LABEL: Final = "forecast from here"
PRICE_LABEL: Final = "price (hollow: up, filled: down)"

_TITLE: Final = 88
"""Letters there is room for."""
_LABEL: Final = 13
"""Letters there is room for left of the axes."""
_NOTE_ROOM: Final = 140
"""Pixels that `BOUNDARY_LABEL` takes."""
_FEWEST: Final = 24
"""Bars that there is always room for: a few are not drawn as wide as houses."""
_MARGIN: Final = 0.04
"""Of the prices' span, above and below them."""
_TIMES: Final = 8
"""Ticks that there is room for."""
_STEPS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 36, 48, 72, 96)
"""Bars from tick to tick; beyond them, multiples of 60: whole hours of 5-minute bars."""


@dataclass(frozen=True, slots=True)
class ForecastChart:
    """What is drawn. Frames have open, high, low, close and maybe volume, and no gaps in them.

    Their indexes are DatetimeIndexes, ascending, the forecast's after the history's. Times are
    shown as they stand there: with a zone, its wall clock. Volumes below zero, which a raw
    forecast may have, are drawn as none.
    """

    title: str
    history: "pd.DataFrame"
    forecast: "pd.DataFrame"
    bands: Mapping[float, Sequence[float]] = field(default_factory=dict)
    """By quantile (0 to 1): below which close that part of the paths lies, at each forecast bar.

    The lowest and the highest are the edges of a band, the next two those of one inside it, and
    so on; one left over in the middle is a line.
    """


def write_forecast_chart(path: Path, chart: ForecastChart) -> None:
    """Draw the chart as the suffix says: 1200 x 675 pixels, a .png twice as many each way.

    The same chart gives the same bytes, with one version of the libraries.

    Raises:
        ConfigError: see `check_chart_path`.
        DataError: no bars, or quantiles that do not fit the forecast.
        OSError: the file cannot be written; what was there before stays.
    """
    picture_writer(path, "candles")(path, Drawing(chart))


def check_chart_path(path: Path) -> None:
    """Refuse, before any costly work, a path that no picture can be written to.

    Raises:
        ConfigError: another suffix than .png, .svg or .html, or a library that is not installed.
    """
    picture_writer(path, "candles")


class Candle(NamedTuple):
    """One bar at place `x`. A raw forecast may have a high below its close."""

    x: int
    open: float
    high: float
    low: float
    close: float


class Group(NamedTuple):
    """The candles of one frame; `kind` is "history" or "forecast"."""

    kind: str
    label: str
    colour: str
    cap: float
    """Width of the strokes that end the wicks, in bars; 0 for none."""
    volume_colour: str
    candles: list[Candle]
    volumes: list[float]
    """Of each candle, 0 at least."""


class Band(NamedTuple):
    """Between two quantiles of the close, at every `Drawing.band_x`."""

    label: str
    colour: str
    low: list[float]
    high: list[float]


class Drawing:
    """What both libraries draw: places across are numbers of bars, the first is 0."""

    def __init__(self, chart: ForecastChart) -> None:
        _check(chart)
        title = " ".join(chart.title.split())
        self.title = title if len(title) <= _TITLE else title[: _TITLE - 1] + "…"
        past, to_come = len(chart.history), len(chart.forecast)
        self.boundary = past - 0.5
        self.end = past + to_come
        beside = max(_FEWEST - self.end, 0) / 2
        self.across = (-0.5 - beside, self.end - 0.5 + beside)
        slot = (WIDTH - LEFT - RIGHT) / (self.end + 2 * beside)  # pixels of a bar's room
        self.stroke = min(max(slot / 8, 0.5), 1.2)
        """Pixels: the width of outlines and wicks."""
        room = (self.across[1] - self.boundary) * slot
        self.note_side = "right" if room > _NOTE_ROOM else "left"
        """On which side of the boundary `BOUNDARY_LABEL` is."""
        self._read_times(chart)
        self.groups = (
            _group("history", chart.history, 0),
            _group("forecast", chart.forecast, past),
        )
        self.band_x = [self.boundary, *range(past, self.end), self.end - 0.5]
        self.quantiles = {part: _to_edges(chart.bands[part]) for part in sorted(chart.bands)}
        self.bands, self.middle = self._spread()
        self.prices = self._price_range()
        self.volume_top = 1.05 * max(max(group.volumes) for group in self.groups)
        """0 without any volume: there is no panel for it then."""
        rows = math.ceil((2 + len(self.bands) + bool(self.middle)) / LEGEND_COLUMNS)
        self.margin = _TITLE_ROW + LEGEND_ROW * rows + NOTE
        """Pixels above the axes."""

    def _read_times(self, chart: ForecastChart) -> None:
        index = [*chart.history.index, *chart.forecast.index]
        finest = min(later - earlier for earlier, later in pairwise(index))
        if finest >= timedelta(hours=20):  # a day may have 23 hours
            full = short = "%Y-%m-%d"
        elif finest >= timedelta(minutes=1):
            full, short = "%Y-%m-%d %H:%M", "%m-%d %H:%M"
        else:
            full, short = "%Y-%m-%d %H:%M:%S", "%H:%M:%S"
        self.times = [time.strftime(full) for time in index]
        zone = f" ({index[0].tz})" if index[0].tz else ""
        self.time_label = f"{self.times[0]} to {self.times[-1]}{zone}, bar by bar"
        places = _places(len(chart.history), self.end)
        self.time_ticks = [(place, index[place].strftime(short)) for place in places]

    def _spread(self) -> tuple[list[Band], tuple[str, list[float]] | None]:
        """Bands from the widest to the innermost, and the line in the middle with its label."""
        parts = list(self.quantiles)
        pairs = list(zip(parts, reversed(parts), strict=True))[: len(parts) // 2]
        bands = [
            Band(
                f"{100 * low:g} % to {100 * high:g} % of the paths (close)",
                _tint(0.3 + 0.4 * rank / len(pairs)),
                self.quantiles[low],
                self.quantiles[high],
            )
            for rank, (low, high) in enumerate(pairs)
        ]
        if len(parts) % 2 == 0:
            return bands, None
        part = parts[len(pairs)]
        name = "median" if part == 0.5 else f"{100 * part:g} % quantile"
        return bands, (f"{name} of the paths (close)", self.quantiles[part])

    def _price_range(self) -> tuple[float, float]:
        """From the lowest to the highest that is drawn, and a little more."""
        drawn = [price for group in self.groups for bar in group.candles for price in bar[1:]]
        drawn += [price for edge in self.quantiles.values() for price in edge]
        low, high = min(drawn), max(drawn)
        size = max(abs(low), abs(high))
        beside = _MARGIN * (high - low)
        if high - low <= 1e-9 * size:  # one price: float64 has too few digits for ticks about it
            beside = 0.01 * size or 1
        return low - beside, high + beside


def round_ticks(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Round numbers from `low` to `high`, at most `most` (4 or more) of them, with their labels.

    They are multiples of 1, 2 or 5 times a power of ten, written in full, or with powers of ten
    where that is shorter and there is no room.
    """
    least = (high - low) / (most - 1)
    power = math.floor(math.log10(least))
    factor = next((factor for factor in (1, 2, 5) if factor * 10.0**power >= least), 10)
    if factor == 10:
        factor, power = 1, power + 1
    step = factor * 10.0**power
    numbers = range(math.ceil(low / step), math.floor(high / step) + 1)
    values = [float(f"{number * factor}e{power}") for number in numbers]  # 0.3, not 0.30000000004
    labels = [f"{value:,.{max(-power, 0)}f}" for value in values]
    if _longest(labels) > _LABEL:
        digits = math.floor(math.log10(max(map(abs, values)))) - power
        labels = min(labels, [f"{value:.{digits}e}" for value in values], key=_longest)
    return list(zip(values, labels, strict=True))


def _longest(labels: list[str]) -> int:
    return max(map(len, labels))


def _check(chart: ForecastChart) -> None:
    past, to_come = len(chart.history), len(chart.forecast)
    if not past or not to_come:
        raise DataError(
            f"a chart needs a bar of history and one of forecast at least; got {past} and {to_come}"
        )
    for part, closes in chart.bands.items():
        if not 0 <= part <= 1:
            raise DataError(f"quantiles are from 0 to 1; got {part!r}; write 10 % as 0.1")
        if len(closes) != to_come:
            raise DataError(
                f"a quantile needs a close for each of the {to_come} forecast bars; "
                f"got {len(closes)} for {part!r}"
            )


def _group(kind: str, frame: "pd.DataFrame", first: int) -> Group:
    columns = [frame[name].tolist() for name in ("open", "high", "low", "close")]
    candles = [Candle(first + row, *bar) for row, bar in enumerate(zip(*columns, strict=True))]
    volumes = frame["volume"] if "volume" in frame else [0] * len(frame)
    return Group(kind, *_LOOKS[kind], candles, [max(float(volume), 0.0) for volume in volumes])


def _to_edges(closes: Sequence[float]) -> list[float]:
    """Values at every `Drawing.band_x`: even that of a single bar is as wide as the bar."""
    values = [float(close) for close in closes]
    return [values[0], *values, values[-1]]


def _places(past: int, end: int) -> range:
    """Bars with a tick: the first of the forecast, and others equally far apart."""
    least = math.ceil(max(end, _FEWEST) / _TIMES)
    step = next((step for step in _STEPS if step >= least), 60 * math.ceil(least / 60))
    return range(past % step, end, step)


def _tint(strength: float) -> str:
    """The bands' hue on white, opaque: the candles on it keep their colours."""
    return "#" + "".join(f"{round(255 - strength * (255 - part)):02x}" for part in _BAND)

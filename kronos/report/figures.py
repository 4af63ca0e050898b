"""GPU memory over training steps as a picture: areas of what is alive, by category, stacked.

The x-axis counts allocations and frees in their order and is no time. A pixel has room for few
of thousands of events; the highest is drawn. This is what both libraries draw, and where;
`figure_image` (matplotlib) and `figure_page` (plotly) draw it, and are loaded when asked for.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final, NamedTuple

from kronos.hardware import GIB, KIB, MIB, format_size
from kronos.report.pictures import picture_writer

COLOURS: Final[Mapping[str, str]] = {
    "parameters": "#0072b2",
    "optimizer states": "#e69f00",
    "workspaces": "#f0e442",
    "inputs": "#cc79a7",
    "gradients": "#006b4e",
    "activations": "#8fd0f5",
    "temporaries": "#d55e00",
}
"""By category, from the bottom of the stack up: what stays for longest lies at the bottom.

Okabe and Ito's palette (2008), the sky blue lighter and the green darker, so ordered that
neighbours differ in grey too.
"""
_OTHERS: Final = "#999999"
_PHASES: Final = ("#ededed", "#bdbdbd", "#8a8a8a")
INK: Final = "#1b1f24"
X_LABEL: Final = "allocations and frees, in order"

WIDTH, HEIGHT = 1200, 600
LEFT, RIGHT, TOP, BOTTOM = 104, 208, 96, 60
"""Pixels around the axes."""
BAND: Final = (1.005, 1.05)
"""Where the phases are, in parts of the axes' height."""
_STEPS_AT: Final = 1.08
STEPS_TO: Final = 1.11
_LETTER: Final = 7.5
"""Pixels: the mean width of a letter of the labels above the axes."""
_TITLE: Final = 96
"""Letters there is room for."""
_POINTS: Final = 2000
"""Rows that are drawn at most, about two for each pixel."""
_HEADROOM: Final = 1.14
"""Of the y-axis, for the peak's label."""
_FAR: Final = 2.5
"""A line so many times higher than the peak is told, not drawn: it would flatten the areas."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryCurve:
    """What is drawn: columns with one row for each allocation or free, and lines across them."""

    title: str
    allocated: Mapping[str, Sequence[int]]
    """Live bytes by category, after each event."""
    starts: Sequence[int] = ()
    """The row at which each step begins; what lies before the first is the construction."""
    warmup: int = 0
    """How many of the steps only fill the optimizer's state."""
    phases: Sequence[int] = ()
    """Of each row, the index into `phase_names`; may be left out."""
    phase_names: Sequence[str] = ("forward", "backward", "optimizer")
    reserved: int | None = None
    """Bytes that the allocator reserves at most."""
    limit: int | None = None
    """Bytes that the allocator may reserve: a budget less the CUDA context."""


def write_figure(path: Path, curve: MemoryCurve) -> None:
    """Draw the curve in the format that the suffix names, 1200 x 600 pixels.

    Raises:
        ConfigError: another suffix than .png, .svg or .html, or a library that is not installed.
    """
    picture_writer(path, "figure")(path, Drawing(curve))


def thinned(totals: Sequence[int], most: int) -> list[int]:
    """At most `most` rows, in order: the highest and the lowest of each of equally long bins.

    Rows are kept whole, so that the categories add up to what was there at one time. The first
    and the last row are kept too.
    """
    count = len(totals)
    if count <= most:
        return list(range(count))
    bins = (most - 2) // 2
    kept = {0, count - 1}
    for number in range(bins):
        rows = range(number * count // bins, (number + 1) * count // bins)
        kept |= {max(rows, key=totals.__getitem__), min(rows, key=totals.__getitem__)}
    return sorted(kept)


class _Span(NamedTuple):
    """Rows from `start` up to `stop`, and the longest of their names that there is room for."""

    start: int
    stop: int
    label: str
    colour: str = INK


class _Line(NamedTuple):
    """One across the whole picture."""

    label: str
    height: float
    dash: str
    """"dot" or "dash"."""
    far: bool
    """Too high to be drawn."""


class Drawing:
    """What both libraries draw. Heights are in `unit`, places are rows."""

    def __init__(self, curve: MemoryCurve) -> None:
        self.curve = curve
        title = " ".join(curve.title.split())
        self.title = title if len(title) <= _TITLE else title[: _TITLE - 1] + "…"
        names = sorted(curve.allocated, key=[*COLOURS, *curve.allocated].index)
        self.columns = {name: curve.allocated[name] for name in names}
        self.colours = {name: COLOURS.get(name, _OTHERS) for name in names}
        named = zip(curve.phase_names, _PHASES, strict=False)
        self.phase_colours = dict(named) if curve.phases else {}
        self.totals = [sum(row) for row in zip(*self.columns.values(), strict=True)]
        self.end = max(len(self.totals), 1)
        self.peak = max(range(len(self.totals)), key=self.totals.__getitem__, default=0)
        largest = max(self.totals, default=0)
        self.unit, self.scale = _unit(max(largest, curve.reserved or 0))
        self.peak_height = largest / self.scale
        self.rows = thinned(self.totals, _POINTS - 1)
        self.x = [*self.rows, self.end]  # a row's bytes are there up to the next row
        self.lines = list(self._lines())
        drawn = [line.height for line in self.lines if not line.far]
        self.top = _HEADROOM * (max(self.peak_height, *drawn, 0) or 1)

    def heights(self, column: Sequence[int]) -> list[float]:
        """A column at every `x`."""
        kept = [round(column[row] / self.scale, 4) for row in self.rows]
        return [*kept, kept[-1] if kept else 0.0]

    def _lines(self) -> Iterator[_Line]:
        for name, size, dash in (
            ("reserved at most", self.curve.reserved, "dot"),
            ("budget less context", self.curve.limit, "dash"),
        ):
            if size is not None:
                far = size / self.scale > _FAR * self.peak_height
                label = f"{name}\n{format_size(size)}{', far above' if far else ''}"
                yield _Line(label, size / self.scale, dash, far)

    def steps(self) -> Iterator[_Span]:
        """The steps, behind what was there before."""
        bounds = [*self.curve.starts, self.end]
        for number, (start, stop) in enumerate(pairwise(bounds), 1):
            warm = [f"step {number} (warm-up)"] if number <= self.curve.warmup else []
            names = [*warm, f"step {number}", str(number)]
            yield _Span(start, stop, self._fitting(stop - start, *names))

    def phases(self) -> Iterator[_Span]:
        """Runs of rows of one phase, from the first step on."""
        row = self.curve.starts[0] if self.curve.starts else 0
        for phase, run in groupby(self.curve.phases[row:]):
            start, row = row, row + sum(1 for _ in run)
            name = self._fitting(row - start, self.curve.phase_names[phase])
            yield _Span(start, row, name, _PHASES[phase % len(_PHASES)])

    def _fitting(self, rows: int, *names: str) -> str:
        room = rows / self.end * (WIDTH - LEFT - RIGHT)
        return next((name for name in names if _LETTER * (len(name) + 1) < room), "")

    def peak_label(self) -> str:
        """How high the peak is, where it lies, and what most of it is."""
        if not any(self.totals):
            return "Nothing was allocated."
        total = self.totals[self.peak]
        most = max(self.columns, key=lambda name: self.columns[name][self.peak])
        share = f"{self.columns[most][self.peak] / total:.0%} {most}"
        return ", ".join([f"peak {format_size(total)}", *self.where(self.peak), share])

    def where(self, row: int) -> list[str]:
        """Step and phase of a row in words."""
        step = sum(start <= row for start in self.curve.starts)
        if self.curve.starts and not step:
            return ["construction"]
        phases = self.curve.phases[row : row + 1]
        return [f"step {step}"] * bool(step) + [self.curve.phase_names[phase] for phase in phases]

    def texts(self) -> Iterator[tuple[float, float, str, str, int]]:
        """Place across in rows and upwards in parts of the axes, text, alignment, size in points.

        A short construction is told beside the axes.
        """
        first = self.curve.starts[0] if self.curve.starts else 0
        if first and self._fitting(first, "construction"):
            yield first / 2, _STEPS_AT, "construction", "center", 10
        elif first:
            yield first, _STEPS_AT, "construction ", "right", 10
        for span in self.steps():
            yield (span.start + span.stop) / 2, _STEPS_AT, span.label, "center", 10
        for span in self.phases():
            yield (span.start + span.stop) / 2, sum(BAND) / 2, span.label, "center", 8
        side = ("left", "center", "right")[3 * self.peak // self.end]
        yield self.peak, 0.96, self.peak_label(), side, 10


def _unit(largest: int) -> tuple[str, int]:
    units = (("GiB", GIB), ("MiB", MIB))
    return next((unit for unit in units if largest >= unit[1]), ("KiB", KIB))

"""The picture of `figures` as .png and .svg, by matplotlib; the optional extra `report`."""

from pathlib import Path
from typing import Final, Literal

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import CARETDOWN
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from kronos.files import atomic_path
from kronos.report.figures import (
    BAND,
    BOTTOM,
    HEIGHT,
    INK,
    LEFT,
    RIGHT,
    STEPS_TO,
    TOP,
    WIDTH,
    X_LABEL,
    Drawing,
)

_DASHES: Final[dict[str, Literal[":", "--"]]] = {"dot": ":", "dash": "--"}


def write(path: Path, drawing: Drawing) -> None:
    """Write the picture in the format that the suffix names, the same bytes for the same curve."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever a matplotlibrc says
        matplotlib.rcParams.update({"svg.hashsalt": "kronos", "svg.fonttype": "none"})
        figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100)
        _draw(figure, drawing)
        dated = {"Date": None} if path.suffix == ".svg" else {}
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format=path.suffix[1:], metadata=dated)


def _draw(figure: Figure, drawing: Drawing) -> None:
    left, right = LEFT / WIDTH, 1 - RIGHT / WIDTH
    bottom, top = BOTTOM / HEIGHT, 1 - TOP / HEIGHT
    axes = figure.add_axes((left, bottom, right - left, top - bottom))
    axes.set(xlim=(0, drawing.end), ylim=(0, drawing.top))
    axes.set(xlabel=X_LABEL, ylabel=f"alive ({drawing.unit})")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.spines[["top", "right"]].set_visible(False)
    if drawing.columns:
        heights = [drawing.heights(column) for column in drawing.columns.values()]
        colours = list(drawing.colours.values())
        axes.stackplot(drawing.x, *heights, colors=colours, step="post", linewidth=0)
    _mark(axes, drawing)
    keys = _keys(drawing)
    corner = (right + 0.005, top + 0.02)
    figure.legend(handles=keys, loc="upper left", bbox_to_anchor=corner, frameon=False, fontsize=9)
    figure.text(left, 0.94, drawing.title, size=13, weight="bold", parse_math=False)


def _mark(axes: Axes, drawing: Drawing) -> None:
    above = axes.get_xaxis_transform()  # rows across, parts of the axes' height upwards
    for line in drawing.lines:
        if not line.far:
            axes.axhline(line.height, color=INK, linestyle=_DASHES[line.dash], linewidth=1.2)
    for start in drawing.curve.starts:
        axes.axvline(start, 0, STEPS_TO, color=INK, linewidth=0.6, alpha=0.6, clip_on=False)
    for span in drawing.phases():
        bar, height = [(span.start, span.stop - span.start)], (BAND[0], BAND[1] - BAND[0])
        axes.broken_barh(bar, height, color=span.colour, transform=above, clip_on=False)
    axes.vlines(drawing.peak, drawing.peak_height, 0.94 * drawing.top, color=INK, linewidth=0.8)
    axes.plot(drawing.peak, drawing.peak_height, marker=CARETDOWN, color=INK)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 2}
    for x, y, text, side, size in drawing.texts():
        behind = box if y < 1 else None
        axes.text(x, y, text, transform=above, ha=side, va="center", size=size, bbox=behind)


def _keys(drawing: Drawing) -> list[Artist]:
    areas = [Patch(color=colour, label=name) for name, colour in drawing.colours.items()]
    lines = [
        Line2D([], [], color=INK, linestyle=_DASHES[line.dash], label=line.label)
        for line in drawing.lines
    ]
    bars = [Patch(color=colour, label=name) for name, colour in drawing.phase_colours.items()]
    return [*reversed(areas), *lines, *bars]

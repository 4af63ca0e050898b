"""The picture of `candles` as .png and .svg, by matplotlib; the optional extra `report`."""

from pathlib import Path
from typing import Any, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from kronos.files import atomic_path
from kronos.report.candles import (
    BODY,
    BOTTOM,
    BOUNDARY_LABEL,
    GRID,
    HEIGHT,
    HISTORY,
    HOLLOW,
    LEFT,
    LEGEND_COLUMNS,
    MIDDLE,
    NOTE,
    PRICE_LABEL,
    RIGHT,
    VOLUME_GAP,
    VOLUME_PART,
    WIDTH,
    Drawing,
    Group,
    round_ticks,
)

_MIDDLE_LINE: Final[dict[str, Any]] = {
    "color": MIDDLE,
    "linewidth": 1.5,
    "linestyle": (0, (4, 1.5)),
}
_POINT: Final = 0.72
"""Points of a pixel of the layout, 100 to the inch."""
_SHARPNESS: Final = 2
"""Pixels of a .png for each of the layout: hundreds of candles are thinner than one."""


def write(path: Path, drawing: Drawing) -> None:
    """Write the picture in the format that the suffix names, the same bytes for the same chart."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever a matplotlibrc says
        matplotlib.rcParams.update({"svg.hashsalt": "kronos", "svg.fonttype": "none"})
        figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100)
        _draw(figure, drawing)
        dated = {"Date": None} if path.suffix == ".svg" else {}
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format=path.suffix[1:], metadata=dated, dpi=100 * _SHARPNESS)


def _draw(figure: Figure, drawing: Drawing) -> None:
    below = VOLUME_PART + VOLUME_GAP if drawing.volume_top else 0.0
    price = _panel(figure, drawing, below, 1.0)
    price.set(ylim=drawing.prices, ylabel=PRICE_LABEL)
    _label(price, round_ticks(*drawing.prices, most=8))
    _draw_spread(price, drawing)
    for group in drawing.groups:
        _draw_candles(price, group, drawing.stroke * _POINT)
    lowest = price
    if drawing.volume_top:
        price.tick_params(labelbottom=False)
        lowest = _panel(figure, drawing, 0.0, VOLUME_PART)
        lowest.set(ylim=(0, drawing.volume_top), ylabel="volume")
        _label(lowest, round_ticks(0, drawing.volume_top, most=4))
        for group in drawing.groups:
            _draw_volumes(lowest, group)
    lowest.set_xlabel(drawing.time_label)
    _draw_boundary(price, drawing)
    _name(figure, drawing)


def _panel(figure: Figure, drawing: Drawing, bottom: float, top: float) -> Axes:
    """Axes between two heights, in parts of the height of all axes."""
    height = HEIGHT - drawing.margin - BOTTOM
    width = WIDTH - LEFT - RIGHT
    axes = figure.add_axes(
        (
            LEFT / WIDTH,
            (BOTTOM + bottom * height) / HEIGHT,
            width / WIDTH,
            (top - bottom) * height / HEIGHT,
        )
    )
    axes.set_xlim(drawing.across)
    axes.set_xticks(*map(list, zip(*drawing.time_ticks, strict=True)))
    axes.tick_params(labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    name = f"boundary-{len(figure.axes)}"  # an id is there once
    axes.axvline(drawing.boundary, color=HISTORY, linewidth=1, linestyle="--", gid=name)
    return axes


def _label(axes: Axes, ticks: list[tuple[float, str]]) -> None:
    axes.set_yticks([value for value, _ in ticks], [label for _, label in ticks])


def _draw_spread(axes: Axes, drawing: Drawing) -> None:
    for rank, band in enumerate(drawing.bands):
        axes.fill_between(
            drawing.band_x, band.low, band.high, color=band.colour, linewidth=0, gid=f"band-{rank}"
        )
    if drawing.middle:
        axes.plot(drawing.band_x, drawing.middle[1], **_MIDDLE_LINE, zorder=5, gid="middle")


def _draw_candles(axes: Axes, group: Group, stroke: float) -> None:
    """Wicks, and over them the bodies: a hollow one hides what lies behind it."""
    wicks = [[(float(bar.x), bar.low), (float(bar.x), bar.high)] for bar in group.candles]
    half = group.cap / 2
    if half:
        wicks += [
            [(bar.x - half, end), (bar.x + half, end)]
            for bar in group.candles
            for end in (bar.low, bar.high)
        ]
    look: dict[str, Any] = {"linewidths": stroke, "edgecolors": group.colour, "zorder": 3}
    axes.add_collection(LineCollection(wicks, gid=f"{group.kind}-wicks", **look))
    for falls, side, fill in ((False, "up", HOLLOW), (True, "down", group.colour)):
        bodies = [
            _box(bar.x, bar.open, bar.close)  # of an unchanged price: a dash
            for bar in group.candles
            if (bar.close < bar.open) == falls
        ]
        name = f"{group.kind}-{side}"
        axes.add_collection(PolyCollection(bodies, gid=name, facecolors=fill, **look))


def _draw_volumes(axes: Axes, group: Group) -> None:
    boxes = [
        _box(bar.x, 0, volume)
        for bar, volume in zip(group.candles, group.volumes, strict=True)
        if volume
    ]
    look: dict[str, Any] = {"facecolors": group.volume_colour, "linewidths": 0}
    axes.add_collection(PolyCollection(boxes, gid=f"{group.kind}-volumes", **look))


def _box(x: int, low: float, high: float) -> list[tuple[float, float]]:
    left, right = x - BODY / 2, x + BODY / 2
    return [(left, low), (left, high), (right, high), (right, low)]


def _draw_boundary(axes: Axes, drawing: Drawing) -> None:
    """What the line means, above the axes, where no candle is."""
    right = drawing.note_side == "right"
    axes.annotate(
        BOUNDARY_LABEL,
        (drawing.boundary, 1),
        xycoords=axes.get_xaxis_transform(),
        xytext=(4 if right else -4, 4),
        textcoords="offset points",
        ha="left" if right else "right",
        size=9,
    )


def _name(figure: Figure, drawing: Drawing) -> None:
    """Title and legend."""
    keys: list[Any] = [
        tuple(Patch(facecolor=fill, edgecolor=group.colour) for fill in (HOLLOW, group.colour))
        for group in drawing.groups
    ]
    labels = [group.label for group in drawing.groups]
    keys += [Patch(color=band.colour) for band in drawing.bands]
    labels += [band.label for band in drawing.bands]
    if drawing.middle:
        keys.append(Line2D([], [], **_MIDDLE_LINE))
        labels.append(drawing.middle[0])
    figure.legend(
        handles=keys,
        labels=labels,
        handler_map={tuple: HandlerTuple(ndivide=None)},
        loc="lower left",
        bbox_to_anchor=(LEFT / WIDTH, 1 - (drawing.margin - NOTE) / HEIGHT),
        ncols=LEGEND_COLUMNS,
        frameon=False,
        fontsize=9,
        borderpad=0,
        borderaxespad=0,
    )
    x, y = LEFT / WIDTH, 1 - 28 / HEIGHT
    figure.text(x, y, drawing.title, size=13, weight="bold", parse_math=False)

"""The picture of `candles` as one page of HTML, by plotly; the optional extra `report`."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from plotly.io import to_html

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
from kronos.report.pictures import plain, write_page

_ICON = 48
"""Pixels beside the text of an entry of the legend."""


def write(path: Path, drawing: Drawing) -> None:
    """Write the page, plotly's code inside: it is read where there may be no network."""
    plot = to_html(
        {"data": list(_traces(drawing)), "layout": _layout(drawing)},
        full_html=False,
        include_plotlyjs=True,
        config={"displaylogo": False, "showSendToCloud": False},  # nothing leaves the reader's disk
        div_id="forecast",
    )
    write_page(path, drawing.title, plot)


def _traces(drawing: Drawing) -> Iterator[dict[str, Any]]:
    for rank, group in enumerate(drawing.groups):
        yield _candlesticks(drawing, group) | {"legendrank": rank}
    yield from _lines(drawing)
    if drawing.volume_top:
        for group in drawing.groups:
            yield {
                "type": "bar",
                "name": f"volume, {group.kind}",
                "x": [bar.x for bar in group.candles],
                "y": group.volumes,
                "yaxis": "y2",
                "width": BODY,
                "marker": {"color": group.volume_colour, "line": {"width": 0}},
                "hovertemplate": "volume %{y:,}<extra></extra>",
                "showlegend": False,
            }


def _candlesticks(drawing: Drawing, group: Group) -> dict[str, Any]:
    line = {"color": group.colour, "width": drawing.stroke}
    decimals = _decimals(drawing)
    times = [drawing.times[bar.x] for bar in group.candles]
    told = [
        "<br>".join(
            [
                plain(time),
                *(
                    f"{name} {value:,.{decimals}f}"
                    for name, value in zip(bar._fields[1:], bar[1:], strict=True)
                ),
            ]
        )
        for time, bar in zip(times, group.candles, strict=True)
    ]
    columns = zip(*group.candles, strict=True)
    names = ("x", "open", "high", "low", "close")
    return {
        "type": "candlestick",
        "name": group.label,
        **{name: list(column) for name, column in zip(names, columns, strict=True)},
        "increasing": {"line": line, "fillcolor": HOLLOW},
        "decreasing": {"line": line, "fillcolor": group.colour},
        "whiskerwidth": group.cap / BODY,
        "text": told,
        "hoverinfo": "text",
        "showlegend": True,
    }


def _lines(drawing: Drawing) -> Iterator[dict[str, Any]]:
    """The middle quantile; and all of them unseen, for the pointer."""
    line = {"type": "scatter", "mode": "lines", "x": drawing.band_x}
    if drawing.middle:
        label, closes = drawing.middle
        yield line | {
            "name": plain(label),
            "y": closes,
            "line": {"color": MIDDLE, "width": 2, "dash": "dash"},
            "hoverinfo": "skip",
            "showlegend": True,
            "legendrank": 99,
        }
    told = f"%{{y:,.{_decimals(drawing)}f}}<extra></extra>"
    for part, closes in drawing.quantiles.items():
        yield line | {
            "name": f"{100 * part:g} %",
            "y": closes,
            "line": {"width": 0},
            "hovertemplate": f"{100 * part:g} % of the paths close below {told}",
            "showlegend": False,
        }


def _decimals(drawing: Drawing) -> int:
    """How many tell prices apart that are a thousandth of the axis apart."""
    low, high = drawing.prices
    return max(3 - math.floor(math.log10(high - low)), 0)


def _layout(drawing: Drawing) -> dict[str, Any]:
    axes = HEIGHT - drawing.margin - BOTTOM  # pixels
    places, times = zip(*drawing.time_ticks, strict=True)
    return {
        "template": "none",
        "width": WIDTH,
        "height": HEIGHT,
        "margin": {"l": LEFT, "r": RIGHT, "t": drawing.margin, "b": BOTTOM},
        "title": {"text": f"<b>{plain(drawing.title)}</b>", "x": LEFT / WIDTH, "y": 0.97},
        "boxgap": 1 - BODY,
        "hovermode": "closest",
        "xaxis": {
            "type": "linear",
            "title": {"text": plain(drawing.time_label)},
            "range": list(drawing.across),
            "tickvals": list(places),
            "ticktext": [plain(time) for time in times],
            "tickangle": 0,
            "showgrid": False,
            "zeroline": False,
            "rangeslider": {"visible": False},
            "anchor": "y2" if drawing.volume_top else "y",
        },
        **_heights(drawing),
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1 + NOTE / axes,
            "yanchor": "bottom",
            "entrywidth": (WIDTH - LEFT - RIGHT) // LEGEND_COLUMNS - _ICON,
        },
        "shapes": [*_bands(drawing), _boundary(drawing)],
        "annotations": [_note(drawing)],
    }


def _heights(drawing: Drawing) -> dict[str, Any]:
    """The axis of the prices, and that of the volumes if there are any."""
    look = {"gridcolor": GRID, "zeroline": False}
    price = look | {
        "title": {"text": PRICE_LABEL},
        "range": list(drawing.prices),
        "domain": [VOLUME_PART + VOLUME_GAP if drawing.volume_top else 0, 1],
        "exponentformat": "none",
        "separatethousands": True,
        "automargin": True,
    }
    if not drawing.volume_top:
        return {"yaxis": price}
    values, labels = zip(*round_ticks(0, drawing.volume_top, most=4), strict=True)
    volume = look | {
        "title": {"text": "volume"},
        "range": [0, drawing.volume_top],
        "domain": [0, VOLUME_PART],
        "tickvals": list(values),
        "ticktext": list(labels),
        "automargin": True,
    }
    return {"yaxis": price, "yaxis2": volume}


def _bands(drawing: Drawing) -> Iterator[dict[str, Any]]:
    """As shapes: what plotly fills between lines would lie over the candles."""
    for rank, band in enumerate(drawing.bands, len(drawing.groups)):
        there = zip(drawing.band_x, band.low, strict=True)
        back = zip(reversed(drawing.band_x), reversed(band.high), strict=True)
        yield {
            "type": "path",
            "path": _path([*there, *back]),
            "xref": "x",
            "yref": "y",
            "layer": "below",
            "fillcolor": band.colour,
            "line": {"width": 0},
            "name": plain(band.label),
            "showlegend": True,
            "legendrank": rank,
        }


def _path(corners: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x},{y}" for x, y in corners) + "Z"


def _boundary(drawing: Drawing) -> dict[str, Any]:
    across = {"type": "line", "x0": drawing.boundary, "x1": drawing.boundary, "xref": "x"}
    line = {"color": HISTORY, "width": 1, "dash": "dash"}
    return across | {"yref": "paper", "y0": 0, "y1": 1, "line": line}


def _note(drawing: Drawing) -> dict[str, Any]:
    right = drawing.note_side == "right"
    return {
        "text": BOUNDARY_LABEL,
        "x": drawing.boundary,
        "xref": "x",
        "xanchor": "left" if right else "right",
        "y": 1,
        "yref": "paper",
        "yanchor": "bottom",
        "showarrow": False,
    }

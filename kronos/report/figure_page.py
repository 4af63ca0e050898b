"""The picture of `figures` as one page of HTML, by plotly; the optional extra `report`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plotly.io import to_html

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
from kronos.report.pictures import plain, write_page


def write(path: Path, drawing: Drawing) -> None:
    """Write the page, plotly's code inside: it is read where there may be no network."""
    plot = to_html(
        {"data": list(_traces(drawing)), "layout": _layout(drawing)},
        full_html=False,
        include_plotlyjs=True,
        config={"displaylogo": False, "showSendToCloud": False},  # nothing leaves the reader's disk
        div_id="memory",
    )
    write_page(path, drawing.title, plot)


def _traces(drawing: Drawing) -> Iterator[dict[str, Any]]:
    told = f"%{{y:.3f}} {drawing.unit}"
    curve = {"type": "scatter", "x": drawing.x, "mode": "lines"}
    for rank, (name, column) in enumerate(drawing.columns.items()):
        yield curve | {
            "name": plain(name),
            "y": drawing.heights(column),
            "stackgroup": "alive",
            "line": {"width": 0, "shape": "hv", "color": drawing.colours[name]},
            "fillcolor": drawing.colours[name],
            "hovertemplate": told,
            "legendrank": len(drawing.columns) - rank,  # from the top of the stack down
        }
    yield curve | {
        "name": "all",
        "y": drawing.heights(drawing.totals),
        "line": {"width": 0, "shape": "hv", "color": INK},
        "text": [", ".join(drawing.where(row)) for row in drawing.x],
        "hovertemplate": f"{told}, %{{text}}",
        "showlegend": False,
    }
    for line in drawing.lines:
        yield {
            "type": "scatter",
            "name": plain(line.label),
            "x": [0, drawing.end],
            "y": [None if line.far else line.height] * 2,
            "mode": "lines",
            "line": {"color": INK, "width": 1.2, "dash": line.dash},
            "hoverinfo": "skip",
        }
    for name, colour in drawing.phase_colours.items():
        yield {
            "type": "bar",  # of no height: for its key alone
            "name": plain(name),
            "x": [0],
            "y": [None],
            "marker": {"color": colour},
        }


def _layout(drawing: Drawing) -> dict[str, Any]:
    peak = drawing.peak_height
    across = {"type": "line", "xref": "x", "line": {"color": INK, "width": 0.8}}
    shapes = [
        across | {"yref": "paper", "x0": start, "x1": start, "y0": 0, "y1": STEPS_TO}
        for start in drawing.curve.starts
    ]
    shapes.append(
        across | {"x0": drawing.peak, "x1": drawing.peak, "y0": peak, "y1": 0.94 * drawing.top}
    )
    shapes += [
        {"type": "rect", "xref": "x", "yref": "paper", "x0": span.start, "x1": span.stop}
        | {"y0": BAND[0], "y1": BAND[1], "fillcolor": span.colour, "line": {"width": 0}}
        for span in drawing.phases()
    ]
    notes = [
        {"x": x, "y": y, "yref": "paper", "text": plain(text), "xanchor": side, "showarrow": False}
        | {"yanchor": "middle", "font": {"size": 1.3 * size}, "bgcolor": "white" if y < 1 else None}
        for x, y, text, side, size in drawing.texts()
    ]
    return {
        "template": "none",
        "width": WIDTH,
        "height": HEIGHT,
        "margin": {"l": LEFT, "r": RIGHT, "t": TOP, "b": BOTTOM},
        "title": {"text": f"<b>{plain(drawing.title)}</b>", "x": LEFT / WIDTH, "y": 0.96},
        "xaxis": {"title": {"text": X_LABEL}, "range": [0, drawing.end], "tickformat": ",d"},
        "yaxis": {"title": {"text": f"alive ({drawing.unit})"}, "range": [0, drawing.top]},
        "legend": {"x": 1.005, "y": 1.02, "traceorder": "normal"},
        "hovermode": "x unified",
        "shapes": shapes,
        "annotations": notes,
    }

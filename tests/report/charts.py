"""Charts to draw, and the pictures of them read back."""

import json
import re
import xml.etree.ElementTree as ET

import pandas as pd
import pytest

from kronos.report import ForecastChart, write_forecast_chart
from kronos.report.candles import Drawing

SUFFIXES = (".png", ".svg", ".html")
COLUMNS = ["open", "high", "low", "close", "volume"]
HISTORY = [
    [10.0, 12.0, 9.0, 11.0, 500.0],  # up
    [11.0, 11.5, 8.5, 9.0, 900.0],  # down
    [9.0, 9.0, 9.0, 9.0, 0.0],  # flat, nothing traded
    [9.0, 10.0, 8.0, 9.5, 100.0],  # up
]
FORECAST = [
    [9.5, 9.8, 9.2, 9.4, 300.0],  # down
    [9.4, 9.6, 9.0, 9.7, -50.0],  # up; the mean of highs is below that of closes
]
BANDS = {0.9: [9.9, 10.4], 0.1: [8.9, 7.5], 0.5: [9.5, 9.6]}


def bar_frame(rows, start, **steps):
    times = pd.date_range(start, periods=len(rows), **({"freq": "5min"} | steps))
    return pd.DataFrame(rows, columns=COLUMNS, index=times)


def some_chart(**changes):
    """Four bars of history and two of forecast, across a night."""
    settings = {
        "title": "a share, 5-minute bars",
        "history": bar_frame(HISTORY, "2024-06-17 14:45"),
        "forecast": bar_frame(FORECAST, "2024-06-18 09:35"),
        "bands": BANDS,
    }
    return ForecastChart(**settings | changes)


def long_chart(past, to_come, start="2024-06-17 00:00", **steps):
    """As many bars, each of the same prices, without a gap in their times."""
    frame = bar_frame([HISTORY[0]] * (past + to_come), start, **steps)
    return some_chart(history=frame[:past], forecast=frame[past:], bands={})


def text_drawn(path, chart):
    """The text of the file; its library may be left out of an installation."""
    pytest.importorskip("plotly" if path.suffix == ".html" else "matplotlib")
    write_forecast_chart(path, chart)
    return path.read_text(encoding="utf-8")


class ChartImage:
    """The .svg of a chart, its shapes in bars across and in prices or volumes upwards.

    Its places are in points: 864 x 486, y downwards.
    """

    def __init__(self, folder, chart):
        self.text = text_drawn(folder / "a.svg", chart)
        self.root = ET.fromstring(self.text)
        self.drawing = Drawing(chart)
        self.ids = [element.get("id") for element in self.root.iter() if element.get("id")]

    def group(self, name):
        (group,) = (element for element in self.root.iter() if element.get("id") == name)
        return group

    def paths(self, name):
        return [element for element in self.group(name).iter() if element.tag.endswith("}path")]

    def shapes(self, name, panel=1):
        return [self._in_bars(path.get("d"), panel) for path in self.paths(name)]

    def colours(self, name):
        """Of a group's first shape: fill and outline."""
        style = [part.get("style") for part in self.group(name).iter() if part.get("style")][-1]
        return re.findall("(?:fill|stroke): (#......|none)", style)

    def spans(self, name, panel=1):
        """(middle, width, lowest, highest) of each shape."""
        spans = []
        for corners in self.shapes(name, panel):
            across, heights = zip(*corners, strict=True)
            width = max(across) - min(across)
            spans.append((min(across) + width / 2, width, min(heights), max(heights)))
        return spans

    def _in_bars(self, path, panel):
        corners = self.corners(path)
        left, right, bottom, top = self.frame(panel)
        low, high = self.drawing.prices if panel == 1 else (0, self.drawing.volume_top)
        start, stop = self.drawing.across
        return [
            (
                start + (stop - start) * (x - left) / (right - left),
                low + (high - low) * (bottom - y) / (bottom - top),
            )
            for x, y in corners
        ]

    def frame(self, panel):
        """Left, right, bottom and top of a panel's background, which is drawn first."""
        (axes,) = (element for element in self.root.iter() if element.get("id") == f"axes_{panel}")
        background = next(element for element in axes.iter() if element.tag.endswith("}path"))
        across, heights = zip(*self.corners(background.get("d")), strict=True)
        return min(across), max(across), max(heights), min(heights)

    @staticmethod
    def corners(path):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", path)]
        # What matplotlib fills hangs on a corner at the bottom of the picture.
        return [
            (x, y + 486 if y < 0 else y) for x, y in zip(numbers[::2], numbers[1::2], strict=True)
        ]

    def texts(self):
        return [element.text for element in self.root.iter() if element.tag.endswith("}text")]


def plotted_of(page):
    """Traces and layout, as the page hands them to plotly."""
    start = page.rindex("Plotly.newPlot(")
    values, decoder = [], json.JSONDecoder()
    at = page.index('"forecast",', start) + len('"forecast",')
    for _ in range(2):
        at = re.compile(r"[\s,]*").match(page, at).end()
        value, at = decoder.raw_decode(page, at)
        values.append(value)
    return values


def close_to(spans):
    return [pytest.approx(span, abs=2e-3) for span in spans]

"""Pictures of a forecast: what is drawn, where it lies, and that each file stands alone."""

import errno
import re
import subprocess
import sys

import pytest
from charts import (
    BANDS,
    COLUMNS,
    FORECAST,
    HISTORY,
    SUFFIXES,
    ChartImage,
    bar_frame,
    close_to,
    long_chart,
    plotted_of,
    some_chart,
    text_drawn,
)

from kronos.errors import ConfigError, DataError
from kronos.report import check_chart_path, write_forecast_chart
from kronos.report.candles import Drawing


@pytest.fixture
def image(tmp_path):
    return lambda **changes: ChartImage(tmp_path, some_chart(**changes))


def test_each_bar_is_a_candle_where_its_prices_are(image):
    drawn = image()
    up, down = drawn.spans("history-up"), drawn.spans("history-down")
    assert up == close_to([(0, 0.7, 10, 11), (2, 0.7, 9, 9), (3, 0.7, 9, 9.5)])
    assert down == close_to([(1, 0.7, 9, 11)])
    assert drawn.spans("history-wicks") == close_to(
        [(0, 0, 9, 12), (1, 0, 8.5, 11.5), (2, 0, 9, 9), (3, 0, 8, 10)]
    )
    assert drawn.spans("forecast-up") == close_to([(5, 0.7, 9.4, 9.7)])
    assert drawn.spans("forecast-down") == close_to([(4, 0.7, 9.4, 9.5)])


def test_the_forecast_differs_from_the_history_in_colour_and_in_shape(image):
    drawn = image()
    looks = {
        name: drawn.colours(name)
        for name in ("history-up", "history-down", "forecast-up", "forecast-down")
    }
    assert looks == {
        "history-up": ["#ffffff", "#1b1f24"],
        "history-down": ["#1b1f24", "#1b1f24"],
        "forecast-up": ["#ffffff", "#0072b2"],
        "forecast-down": ["#0072b2", "#0072b2"],
    }
    caps = [span for span in drawn.spans("forecast-wicks") if span[1] > 0.01]
    assert sorted(caps) == close_to(
        [(4, 0.4, 9.2, 9.2), (4, 0.4, 9.8, 9.8), (5, 0.4, 9.0, 9.0), (5, 0.4, 9.6, 9.6)]
    )
    assert not [span for span in drawn.spans("history-wicks") if span[1] > 0.01]


def test_a_hollow_body_hides_the_wick_and_the_band_behind_it(image):
    ids = image().ids
    for kind in ("history", "forecast"):
        assert ids.index(f"{kind}-wicks") < ids.index(f"{kind}-up")
    assert ids.index("band-0") < ids.index("forecast-wicks")
    assert len(set(ids)) == len(ids)


def test_a_flat_bar_is_a_dash_as_wide_as_a_body(tmp_path):
    pytest.importorskip("matplotlib")
    from PIL import Image

    chart = some_chart(history=bar_frame([HISTORY[2]] * 4, "2024-06-17 14:45"), bands={})
    write_forecast_chart(tmp_path / "a.png", chart)
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size == (2400, 1350)
        pixels = picture.convert("L")
    left, _, bottom, top = (
        round(place * 2 / 0.72) for place in ChartImage(tmp_path, chart).frame(1)
    )
    slot = (2400 - 2 * (132 + 44)) / 24
    first = [round(left + slot * (9 + 0.5 + bar)) for bar in range(4)]  # 9 empty ones beside
    for middle in first:
        dark = [
            row
            for row in range(top, bottom)
            if all(pixels.getpixel((middle + shift, row)) < 90 for shift in (-25, 0, 25))
        ]
        assert 1 <= len(dark) <= 4


def test_the_boundary_is_between_the_last_bar_and_the_first_forecast(image):
    drawn = image()
    for panel in (1, 2):
        ((x, width, *_),) = drawn.spans(f"boundary-{panel}", panel)
        assert (x, width) == (pytest.approx(3.5, abs=1e-3), 0)
    assert drawn.texts().count("forecast from here") == 1


@pytest.mark.parametrize(("to_come", "side"), [(5, "left"), (40, "right")])
def test_the_note_at_the_boundary_stays_inside(tmp_path, to_come, side):
    chart = long_chart(100, to_come)
    assert Drawing(chart).note_side == side
    drawn = ChartImage(tmp_path, chart)
    (note,) = (element for element in drawn.root.iter() if element.text == "forecast from here")
    assert ("text-anchor: end" in note.get("style")) == (side == "left")
    _, layout = plotted_of(text_drawn(tmp_path / "a.html", chart))
    (annotation,) = layout["annotations"]
    assert annotation["xanchor"] == {"left": "right", "right": "left"}[side]
    assert annotation["x"] == 99.5


def test_bands_lie_between_quantiles_and_the_median_is_a_line(image):
    drawn = image()
    (corners,) = drawn.shapes("band-0")
    there = {(3.5, 8.9), (4, 8.9), (5, 7.5), (5.5, 7.5)}
    back = {(3.5, 9.9), (4, 9.9), (5, 10.4), (5.5, 10.4)}
    assert {(round(x, 2), round(y, 2)) for x, y in corners} == there | back
    (line,) = drawn.shapes("middle")
    points = [(3.5, 9.5), (4, 9.5), (5, 9.6), (5.5, 9.6)]
    assert line == [pytest.approx(point, abs=2e-3) for point in points]
    assert "band-1" not in drawn.ids


def test_inner_bands_are_darker_and_drawn_later(image):
    bands = {part: [10 + part, 10 + 2 * part] for part in (0.75, 0.05, 0.95, 0.25)}
    drawn = image(bands=bands)
    assert [(band.label, band.low[0], band.high[-1]) for band in drawn.drawing.bands] == [
        ("5 % to 95 % of the paths (close)", 10.05, 11.9),
        ("25 % to 75 % of the paths (close)", 10.25, 11.5),
    ]
    outer, inner = (sum(bytes.fromhex(band.colour[1:])) for band in drawn.drawing.bands)
    assert inner < outer - 40
    assert drawn.ids.index("band-0") < drawn.ids.index("band-1")
    assert drawn.drawing.middle is None
    assert "middle" not in drawn.ids


@pytest.mark.parametrize(
    ("bands", "labels"),
    [
        ({}, []),
        (BANDS, ["10 % to 90 % of the paths (close)", "median of the paths (close)"]),
        ({0.025: [9, 9], 0.975: [9, 9]}, ["2.5 % to 97.5 % of the paths (close)"]),
        ({0.07: [9, 9]}, ["7 % quantile of the paths (close)"]),
    ],
)
def test_the_legend_says_what_is_what(tmp_path, bands, labels):
    chart = some_chart(bands=bands)
    drawn = ChartImage(tmp_path, chart)
    told = ["history", "forecast", *labels]
    assert drawn.texts()[-len(told) :] == told
    traces, layout = plotted_of(text_drawn(tmp_path / "a.html", chart))
    entries = [entry for entry in [*traces, *layout["shapes"]] if entry.get("showlegend")]
    assert [entry["name"] for entry in sorted(entries, key=lambda e: e["legendrank"])] == told


@pytest.mark.parametrize(("count", "rows"), [(0, 1), (2, 1), (3, 2), (8, 2), (9, 3)])
def test_the_legend_has_its_room_above_the_axes(tmp_path, count, rows):
    chart = some_chart(bands={(1 + part) / 10: [9, 9] for part in range(count)})
    top = 46 + 22 * rows + 24
    drawn = ChartImage(tmp_path, chart)
    assert drawn.frame(1)[3] == pytest.approx(0.72 * top, abs=0.01)
    _, layout = plotted_of(text_drawn(tmp_path / "a.html", chart))
    assert layout["margin"]["t"] == top
    assert layout["legend"]["y"] * (675 - top - 64) == pytest.approx(675 - top - 64 + 24)


def test_volumes_below_zero_are_nothing(image):
    drawn = image()
    assert drawn.spans("history-volumes", 2) == close_to(
        [(0, 0.7, 0, 500), (1, 0.7, 0, 900), (3, 0.7, 0, 100)]
    )
    assert drawn.spans("forecast-volumes", 2) == close_to([(4, 0.7, 0, 300)])
    assert drawn.colours("history-volumes") == ["#7a7f87"]
    assert drawn.colours("forecast-volumes") == ["#8fc7ea"]


@pytest.mark.parametrize("kind", ["without", "none", "below"])
def test_without_volume_there_is_no_panel_for_it(tmp_path, kind):
    def frame(rows, start):
        bars = bar_frame(rows, start)
        return (
            bars[COLUMNS[:4]] if kind == "without" else bars.assign(volume=-float(kind != "none"))
        )

    past = frame(HISTORY, "2024-06-17 14:45")
    chart = some_chart(history=past, forecast=frame(FORECAST, "2024-06-18 09:35"))
    drawn = ChartImage(tmp_path, chart)
    assert "axes_2" not in drawn.ids
    assert "volume" not in drawn.texts()
    assert drawn.frame(1)[2] == pytest.approx((675 - 64) * 0.72)  # down to the times
    assert "06-18 09:35" in drawn.texts()
    traces, layout = plotted_of(text_drawn(tmp_path / "a.html", chart))
    assert "bar" not in {trace["type"] for trace in traces}
    assert "yaxis2" not in layout
    assert (layout["yaxis"]["domain"], layout["xaxis"]["anchor"]) == ([0, 1], "y")


def test_one_frame_with_volume_is_enough_for_the_panel(image):
    drawn = image(history=bar_frame(HISTORY, "2024-06-17 14:45")[COLUMNS[:4]])
    assert drawn.spans("history-volumes", 2) == []
    assert drawn.spans("forecast-volumes", 2) == close_to([(4, 0.7, 0, 300)])


@pytest.mark.parametrize(("past", "to_come"), [(1, 1), (500, 120)])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_few_and_many_bars(tmp_path, past, to_come, suffix):
    chart = long_chart(past, to_come)
    drawing = Drawing(chart)
    assert drawing.across[1] - drawing.across[0] == max(past + to_come, 24)
    assert sum(drawing.across) == past + to_come - 1  # in the middle
    assert 0.5 <= drawing.stroke <= 1.2
    text = text_drawn(tmp_path / f"a{suffix}", chart) if suffix != ".png" else ""
    if suffix == ".svg":
        image = ChartImage(tmp_path, chart)
        assert len(image.paths("history-up")) == past
        assert len(image.paths("forecast-up")) == to_come
    elif suffix == ".html":
        traces, _ = plotted_of(text)
        assert [len(trace["x"]) for trace in traces[:2]] == [past, to_come]
    else:
        pytest.importorskip("matplotlib")
        write_forecast_chart(tmp_path / "a.png", chart)


def test_a_band_over_one_bar_is_as_wide_as_the_bar(image):
    one = bar_frame(FORECAST[:1], "2024-06-18 09:35")
    drawn = image(forecast=one, bands={0.1: [9.0], 0.9: [10.0]})
    ((x, width, low, high),) = drawn.spans("band-0")
    assert (x, width, low, high) == pytest.approx((4, 1, 9, 10), abs=2e-3)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_chart_is_the_same_bytes(tmp_path, suffix):
    pytest.importorskip("plotly" if suffix == ".html" else "matplotlib")
    matplotlib = pytest.importorskip("matplotlib")
    first, second, other = (tmp_path / f"{name}{suffix}" for name in "abc")
    write_forecast_chart(first, some_chart())
    with matplotlib.rc_context({"axes.facecolor": "black", "font.size": 30}):
        write_forecast_chart(second, some_chart(bands=dict(sorted(BANDS.items()))))
        assert matplotlib.rcParams["font.size"] == 30
    assert first.read_bytes() == second.read_bytes()
    assert b"<dc:date>" not in first.read_bytes()
    write_forecast_chart(other, some_chart(bands=BANDS | {0.1: [8.9, 7.6]}))
    assert first.read_bytes() != other.read_bytes()


def test_a_title_is_text(tmp_path):
    title = "a_$1$ <b>& </script>\n" + "x" * 200
    shown = "a_$1$ &lt;b&gt;&amp; &lt;/script&gt; xxx"
    image = text_drawn(tmp_path / "a.svg", some_chart(title=title))
    assert re.search(f">{re.escape(shown)}x*…</text>", image)
    assert len(Drawing(some_chart(title=title)).title) == 88
    page = text_drawn(tmp_path / "a.html", some_chart(title=title))
    assert "<b>&amp;" not in page
    assert f"<title>{shown}" in page
    _, layout = plotted_of(page)
    assert layout["title"]["text"].startswith(f"<b>{shown}")
    assert layout["title"]["text"].endswith("x…</b>")


def test_a_page_stands_alone_and_has_what_the_image_has(tmp_path):
    page = text_drawn(tmp_path / "a.html", some_chart())
    assert not re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=", page)
    assert '"showSendToCloud": false' in page
    assert page.endswith("</body></html>\n")
    traces, layout = plotted_of(page)
    past, to_come, *_ = traces
    assert [trace["type"] for trace in traces].count("candlestick") == 2
    assert (past["x"], to_come["x"]) == ([0, 1, 2, 3], [4, 5])
    for trace, rows in ((past, HISTORY), (to_come, FORECAST)):
        for place, name in enumerate(COLUMNS[:4]):
            assert trace[name] == [row[place] for row in rows]
        assert trace["increasing"]["fillcolor"] == "#ffffff"
        assert trace["decreasing"]["fillcolor"] == trace["decreasing"]["line"]["color"]
        assert trace["increasing"]["line"] == trace["decreasing"]["line"]
    assert past["increasing"]["line"]["color"] != to_come["increasing"]["line"]["color"]
    assert (past["whiskerwidth"], to_come["whiskerwidth"]) == (0, pytest.approx(0.4 / 0.7))
    assert to_come["text"][1] == (
        "2024-06-18 09:40<br>open 9.400<br>high 9.600<br>low 9.000<br>close 9.700"
    )
    bars = [trace for trace in traces if trace["type"] == "bar"]
    assert [trace["y"] for trace in bars] == [[500, 900, 0, 100], [300, 0]]
    assert [trace["x"] for trace in bars] == [past["x"], to_come["x"]]
    assert {trace["yaxis"] for trace in bars} == {"y2"}
    assert layout["yaxis2"]["domain"][1] < layout["yaxis"]["domain"][0]
    assert layout["xaxis"]["rangeslider"] == {"visible": False}
    assert layout["xaxis"]["anchor"] == "y2"
    assert layout["yaxis"]["range"] == pytest.approx([7.5 - 0.18, 12 + 0.18])


def test_a_page_has_the_spread_and_the_boundary(tmp_path):
    traces, layout = plotted_of(text_drawn(tmp_path / "a.html", some_chart()))
    band, boundary = layout["shapes"]
    assert band["path"] == (
        "M3.5,8.9L4,8.9L5,7.5L5.5,7.5L5.5,10.4L5,10.4L4,9.9L3.5,9.9Z"  # there and back
    )
    assert band["layer"] == "below"
    assert (boundary["x0"], boundary["x1"], boundary["y0"], boundary["y1"]) == (3.5, 3.5, 0, 1)
    lines = [trace for trace in traces if trace["type"] == "scatter"]
    assert [(line["name"], line["line"]["width"], line["y"]) for line in lines] == [
        ("median of the paths (close)", 2, [9.5, 9.5, 9.6, 9.6]),
        ("10 %", 0, [8.9, 8.9, 7.5, 7.5]),
        ("50 %", 0, [9.5, 9.5, 9.6, 9.6]),
        ("90 %", 0, [9.9, 9.9, 10.4, 10.4]),
    ]
    assert {tuple(line["x"]) for line in lines} == {(3.5, 4, 5, 5.5)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"history": bar_frame([], "2024")}, "one of forecast at least; got 0 and 2"),
        ({"forecast": bar_frame([], "2024")}, "one of forecast at least; got 4 and 0"),
        ({"bands": {10: [9, 9]}}, "quantiles are from 0 to 1; got 10; write 10 % as 0.1"),
        ({"bands": {-0.1: [9, 9]}}, "quantiles are from 0 to 1; got -0.1"),
        ({"bands": {0.1: [9]}}, "each of the 2 forecast bars; got 1 for 0.1"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_a_file_is_touched(tmp_path, changes, message):
    pytest.importorskip("matplotlib")
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        write_forecast_chart(tmp_path / "a.svg", some_chart(**changes))
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def _both(path):
    return (lambda: check_chart_path(path), lambda: write_forecast_chart(path, some_chart()))


@pytest.mark.parametrize("name", ["a.pdf", "a.PNG", "png", ".svg"])
def test_another_suffix_is_refused_and_nothing_is_written(tmp_path, name):
    for refused in _both(tmp_path / name):
        with pytest.raises(
            ConfigError, match=r"pictures are \.png, \.svg or \.html; got"
        ) as caught:
            refused()
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_path_that_can_be_drawn_to_is_not_touched_by_its_check(tmp_path, suffix):
    pytest.importorskip("plotly" if suffix == ".html" else "matplotlib")
    check_chart_path(tmp_path / f"a{suffix}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("suffix", "library", "module"),
    [
        (".png", "matplotlib", "candles_image"),
        (".svg", "matplotlib", "candles_image"),
        (".html", "plotly", "candles_page"),
    ],
)
def test_a_missing_library_is_told_with_its_command(tmp_path, monkeypatch, suffix, library, module):
    for name in [name for name in sys.modules if name.startswith(f"{library}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, f"kronos.report.{module}", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    for refused in _both(tmp_path / f"a{suffix}"):
        with pytest.raises(ConfigError) as caught:
            refused()
        assert str(caught.value) == (
            f"a {suffix} picture needs {library}, which is not installed; "
            "pip install pytest-kronos[report]"
        )
    assert not list(tmp_path.iterdir())


def test_nothing_heavy_is_loaded_before_a_picture_is_asked_for():
    code = "import sys, kronos.report; print({'pandas', 'matplotlib', 'plotly'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_what_was_there_stays_where_an_image_fails_half_way(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    def full_disk(figure, path, **options):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "no space left", str(path))

    monkeypatch.setattr(Figure, "savefig", full_disk)
    (tmp_path / "a.svg").write_text("old")
    with pytest.raises(OSError, match=r"no space left: .*a\.svg"):
        write_forecast_chart(tmp_path / "a.svg", some_chart())
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]
    assert (tmp_path / "a.svg").read_text() == "old"


def test_what_was_there_stays_where_a_page_fails_half_way(tmp_path, monkeypatch):
    pytest.importorskip("plotly")
    from kronos import files

    def full_disk(path):
        raise OSError(errno.ENOSPC, "no space left", str(path))

    monkeypatch.setattr(files, "_flush_to_disk", full_disk)
    (tmp_path / "a.html").write_text("old")
    with pytest.raises(OSError, match=r"no space left: .*a\.html"):
        write_forecast_chart(tmp_path / "a.html", some_chart())
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]
    assert (tmp_path / "a.html").read_text() == "old"

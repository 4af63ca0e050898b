"""Pictures of memory: what is drawn of thousands of events, and that each file stands alone."""

import errno
import json
import re
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kronos.errors import ConfigError
from kronos.hardware import GIB, MIB
from kronos.report.figures import COLOURS, Drawing, MemoryCurve, thinned, write_figure

KRONOS = Path(__file__).parents[2] / "kronos"
SUFFIXES = (".png", ".svg", ".html")
STEP = [0, 200, 400, 900, 600, 300, 0, 0, 50, 0]
"""MiB of activations over ten events: forward, backward, optimizer."""


def _curve(**changes):
    """Parameters built in four events, then three steps of ten."""
    allocated = {
        "mystery": [0] * 24 + [7 * MIB] * 10,
        "activations": [0] * 4 + [size * MIB for size in STEP * 3],
        "parameters": [100 * MIB] * 34,
    }
    settings = {
        "title": "baseline on a card",
        "allocated": allocated,
        "starts": (4, 14, 24),
        "warmup": 1,
        "phases": [0] * 4 + [0, 0, 0, 0, 1, 1, 1, 2, 2, 2] * 3,
        "reserved": 1200 * MIB,
        "limit": 2 * GIB,
    }
    return MemoryCurve(**settings | changes)


def _drawn(path, curve):
    """The text of the file; its library may be left out of an installation."""
    pytest.importorskip("plotly" if path.suffix == ".html" else "matplotlib")
    write_figure(path, curve)
    return path.read_text(encoding="utf-8")


def _plotted(page):
    """Traces and layout, as the page hands them to plotly."""
    start = page.rindex("Plotly.newPlot(")
    values, decoder = [], json.JSONDecoder()
    at = page.index('"memory",', start) + len('"memory",')
    for _ in range(2):
        at = re.compile(r"[\s,]*").match(page, at).end()
        value, at = decoder.raw_decode(page, at)
        values.append(value)
    return values


@given(st.lists(st.integers(0, 9)), st.integers(4, 20))
def test_thinning_keeps_the_highest_and_the_lowest_of_every_stretch(totals, most):
    kept = thinned(totals, most)
    assert kept == sorted(set(kept))
    assert len(kept) <= most
    assert not totals or (kept[0], kept[-1]) == (0, len(totals) - 1)
    bins = (most - 2) // 2
    for row, total in enumerate(totals):
        near = [totals[other] for other in kept if abs(other - row) < len(totals) / bins + 1]
        assert min(near) <= total <= max(near)


def test_a_thousandth_of_the_events_still_shows_the_peak():
    spiky = [1] * 400_000
    spiky[123_457] = 5
    drawing = Drawing(_curve(allocated={"temporaries": spiky}, starts=(), phases=(), reserved=None))
    assert 1000 < len(drawing.x) <= 2000
    assert max(drawing.heights(spiky)) == pytest.approx(5 / 1024, abs=1e-4)  # in KiB
    assert drawing.rows.count(123_457) == 1


def test_categories_have_their_colour_and_their_place_whatever_else_there_is():
    assert len(set(COLOURS.values())) == len(COLOURS)
    drawing = Drawing(_curve())
    assert list(drawing.colours.items()) == [
        ("parameters", COLOURS["parameters"]),
        ("activations", COLOURS["activations"]),
        ("mystery", "#999999"),
    ]
    assert [*drawing.columns] == [*drawing.colours]


def test_the_categories_are_those_of_the_meter():
    said = [(KRONOS / name).read_text() for name in ("measure/events.py", "capacity/tracer.py")]
    names = re.findall('^[A-Z]+: Final = "(.*)"$', "".join(said), re.MULTILINE)
    assert sorted(COLOURS) == sorted(names)


def test_neighbours_in_the_stack_differ_in_grey():
    greys = []
    for colour in COLOURS.values():
        red, green, blue = bytes.fromhex(colour[1:])
        greys.append((0.299 * red + 0.587 * green + 0.114 * blue) / 255)
    assert min(abs(a - b) for a, b in pairwise(greys)) > 0.17


def test_the_labels_tell_steps_phases_and_the_peak():
    texts = {text.strip(): (x, side) for x, _, text, side, _ in Drawing(_curve()).texts()}
    assert texts["construction"] == (2, "center")
    assert texts["step 1 (warm-up)"] == (9, "center")
    assert texts["step 2"] == (19, "center")
    assert texts["step 3"] == (29, "center")
    assert texts["forward"] == (26, "center")  # the last of three
    assert [span.start for span in Drawing(_curve()).phases()] == [4, 8, 11, 14, 18, 21, 24, 28, 31]
    assert Drawing(_curve()).where(3) == ["construction"]
    assert Drawing(_curve()).where(4) == ["step 1", "forward"]
    assert texts["peak 1,007.00 MiB, step 3, forward, 89% activations"] == (27, "right")


def test_labels_shrink_with_their_room_and_a_short_construction_is_told_beside_the_axes():
    rows = 1000
    curve = _curve(
        allocated={"inputs": [MIB] * rows}, starts=(5, 105, 165, 185), phases=(), warmup=4
    )
    texts = {text: (x, side) for x, _, text, side, _ in Drawing(curve).texts()}
    assert texts["construction "] == (5, "right")
    assert texts["step 1"] == (55, "center")
    assert texts["3"] == (175, "center")
    assert texts["step 4 (warm-up)"] == (592.5, "center")
    assert texts["peak 1.00 MiB, construction, 100% inputs"] == (0, "left")


def test_a_limit_far_above_does_not_flatten_the_areas():
    near, far = (Drawing(_curve(limit=limit)) for limit in (2 * GIB, 80 * GIB))
    assert [line.label for line in near.lines] == [
        "reserved at most\n1.17 GiB",
        "budget less context\n2.00 GiB",
    ]
    assert far.lines[1].label == "budget less context\n80.00 GiB, far above"
    assert (near.unit, far.unit) == ("GiB", "GiB")
    assert 2 < near.top < 2.4
    assert 1.17 < far.top < 1.4


def test_svg_is_the_same_each_time_and_says_it_all(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    first = _drawn(tmp_path / "a.svg", _curve())
    with matplotlib.rc_context({"axes.facecolor": "black", "font.size": 30}):
        second = _drawn(tmp_path / "b.svg", _curve())
        assert matplotlib.rcParams["font.size"] == 30
    assert first == second
    assert "<dc:date>" not in first
    told = ("baseline on a card", "step 1 (warm-up)", "construction", "alive (GiB)")
    for text in (*told, "allocations and frees, in order", "peak 1,007.00 MiB", "2.00 GiB"):
        assert text in first
    for colour in (COLOURS["parameters"], COLOURS["activations"], "#999999"):
        assert f"fill: {colour}" in first
    assert COLOURS["gradients"] not in first
    assert first != _drawn(tmp_path / "c.svg", _curve(limit=3 * GIB))


def test_a_title_is_text(tmp_path):
    title = "a_$1$ <b>& </script>\n" + "x" * 200
    shown = "a_$1$ &lt;b&gt;&amp; &lt;/script&gt; xxx"
    assert re.search(
        f">{re.escape(shown)}x*…</text>", _drawn(tmp_path / "a.svg", _curve(title=title))
    )
    page = _drawn(tmp_path / "a.html", _curve(title=title))
    assert "<b>&amp;" not in page
    _, layout = _plotted(page)
    assert layout["title"]["text"].startswith(f"<b>{shown}")
    assert layout["title"]["text"].endswith("x…</b>")


def test_png_has_the_size_and_the_areas_the_heights(tmp_path):
    pytest.importorskip("matplotlib")
    from PIL import Image

    write_figure(
        tmp_path / "a.png", _curve(allocated={"gradients": [0, GIB]}, starts=(), phases=())
    )
    with Image.open(tmp_path / "a.png") as image:
        assert image.size == (1200, 600)
        pixels = image.convert("RGB")
    green = tuple(bytes.fromhex(COLOURS["gradients"][1:]))
    axes = range(104, 1200 - 208)
    columns = [x for x in axes if pixels.getpixel((x, 530)) == green]
    assert len(columns) == pytest.approx(len(axes) / 2, abs=2)  # from the second event on
    rows = [y for y in range(600) if pixels.getpixel((columns[100], y)) == green]
    assert len(rows) == pytest.approx((600 - 96 - 60) / (1.14 * 2), abs=3)  # the limit: 2 GiB


def test_a_page_stands_alone_and_stacks_what_was_alive(tmp_path):
    page = _drawn(tmp_path / "a.html", _curve(limit=80 * GIB))
    assert not re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=", page)
    assert '"showSendToCloud": false' in page
    traces, layout = _plotted(page)
    areas = [trace for trace in traces if trace.get("stackgroup") == "alive"]
    assert [(trace["name"], trace["fillcolor"]) for trace in areas] == [
        *((name, COLOURS[name]) for name in ("parameters", "activations")),
        ("mystery", "#999999"),
    ]
    assert [trace["legendrank"] for trace in areas] == [3, 2, 1]  # as stacked, the top first
    (total,) = (trace for trace in traces if trace["name"] == "all")
    sums = [sum(parts) for parts in zip(*(trace["y"] for trace in areas), strict=True)]
    assert total["y"] == pytest.approx(sums, abs=1e-3)
    assert max(total["y"]) == pytest.approx(1007 / 1024, abs=1e-3)
    assert areas[0]["y"][-1] == pytest.approx(100 / 1024, abs=1e-3)  # up to the end
    assert total["x"] == [*range(34), 34]
    assert (total["text"][0], total["text"][8]) == ("construction", "step 1, backward")
    lines = {trace["name"]: trace for trace in traces}
    assert lines["reserved at most<br>1.17 GiB"]["y"][0] == pytest.approx(1200 / 1024)
    assert lines["budget less context<br>80.00 GiB, far above"]["y"] == [None, None]
    assert layout["xaxis"]["title"]["text"] == "allocations and frees, in order"
    assert layout["yaxis"]["range"][1] == pytest.approx(1.14 * 1200 / 1024)
    assert {"step 2", "forward"} <= {note["text"] for note in layout["annotations"]}


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_a_page_is_closed(tmp_path):
    page = _drawn(tmp_path / "a.html", _curve(title="</title><i>"))
    tags = _Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    assert "<title>&lt;/title&gt;&lt;i&gt;</title>" in page


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("allocated", [{}, {"inputs": []}, {"inputs": [0, 0]}])
def test_nothing_is_a_picture_too(tmp_path, suffix, allocated):
    curve = MemoryCurve(title="none", allocated=allocated)
    assert Drawing(curve).peak_label() == "Nothing was allocated."
    pytest.importorskip("plotly" if suffix == ".html" else "matplotlib")
    write_figure(tmp_path / f"a{suffix}", curve)
    assert (tmp_path / f"a{suffix}").stat().st_size > 1000


@pytest.mark.parametrize("name", ["a.pdf", "a.PNG", "png", ".svg"])
def test_another_suffix_is_refused_and_nothing_is_written(tmp_path, name):
    with pytest.raises(ConfigError, match=r"pictures are \.png, \.svg or \.html; got") as caught:
        write_figure(tmp_path / name, _curve())
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("suffix", "library", "module"),
    [
        (".png", "matplotlib", "figure_image"),
        (".svg", "matplotlib", "figure_image"),
        (".html", "plotly", "figure_page"),
    ],
)
def test_a_missing_library_is_told_with_its_command(tmp_path, monkeypatch, suffix, library, module):
    for name in [name for name in sys.modules if name.startswith(f"{library}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, f"kronos.report.{module}", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError) as caught:
        write_figure(tmp_path / f"a{suffix}", _curve())
    assert str(caught.value) == (
        f"a {suffix} picture needs {library}, which is not installed; "
        "pip install pytest-kronos[report]"
    )
    assert not list(tmp_path.iterdir())


def test_what_was_there_stays_where_an_image_fails_half_way(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    def full_disk(figure, path, **options):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "no space left", str(path))

    monkeypatch.setattr(Figure, "savefig", full_disk)
    (tmp_path / "a.svg").write_text("old")
    with pytest.raises(OSError, match=r"no space left: .*a\.svg"):
        write_figure(tmp_path / "a.svg", _curve())
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
        write_figure(tmp_path / "a.html", _curve())
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]
    assert (tmp_path / "a.html").read_text() == "old"

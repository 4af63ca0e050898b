"""The axes of a forecast's picture: their ranges, and ticks of prices and times."""

from itertools import pairwise

import pytest
from charts import (
    COLUMNS,
    FORECAST,
    HISTORY,
    SUFFIXES,
    ChartImage,
    bar_frame,
    long_chart,
    plotted_of,
    some_chart,
    text_drawn,
)
from hypothesis import given
from hypothesis import strategies as st

from kronos.report import write_forecast_chart
from kronos.report.candles import Drawing, round_ticks


def test_the_prices_fill_their_axis():
    assert Drawing(some_chart(bands={})).prices == pytest.approx((8 - 0.16, 12 + 0.16))
    assert Drawing(some_chart()).prices == pytest.approx((7.5 - 0.18, 12 + 0.18))  # the band's edge
    bands = {0.5: [14.0, 10.0]}
    assert Drawing(some_chart(bands=bands)).prices == pytest.approx((8 - 0.24, 14 + 0.24))


@pytest.mark.parametrize("price", [0.0, 1e-6, 9.0, 1e9, -37.0])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_one_price_alone_is_in_the_middle(tmp_path, price, suffix):
    rows = [[price] * 4 + [0.0]] * 2
    chart = some_chart(
        history=bar_frame(rows, "2024-06-17"), forecast=bar_frame(rows, "2024-06-18"), bands={}
    )
    low, high = Drawing(chart).prices
    assert low < price < high
    assert (low + high) / 2 == pytest.approx(price)
    pytest.importorskip("plotly" if suffix == ".html" else "matplotlib")
    write_forecast_chart(tmp_path / f"a{suffix}", chart)


@pytest.mark.parametrize(
    ("scale", "labels"),
    [
        (1e-6, ["0.000008", "0.000009", "0.000010", "0.000011", "0.000012"]),
        (1, ["8", "9", "10", "11", "12"]),
        (1e8, ["800,000,000", "900,000,000", "1,000,000,000", "1,100,000,000", "1,200,000,000"]),
        (1e-12, ["8e-12", "9e-12", "1e-11", "1.1e-11", "1.2e-11"]),
    ],
)
def test_prices_of_any_size_are_told_in_full_where_there_is_room(tmp_path, scale, labels):
    def frame(rows, start):
        bars = bar_frame(rows, start)
        return bars.assign(**{name: bars[name] * scale for name in COLUMNS[:4]})

    past = frame(HISTORY, "2024-06-17 14:45")
    chart = some_chart(history=past, forecast=frame(FORECAST, "2024-06-18 09:35"), bands={})
    texts = ChartImage(tmp_path, chart).texts()
    if scale < 1e-9:
        labels = [f"{float(label):.1e}" for label in labels]
    assert [text for text in texts if text in labels] == labels
    traces, layout = plotted_of(text_drawn(tmp_path / "a.html", chart))
    assert traces[0]["close"] == pytest.approx([row[3] * scale for row in HISTORY])
    assert (layout["yaxis"]["exponentformat"], layout["yaxis"]["separatethousands"]) == (
        "none",
        True,
    )


@given(
    st.floats(-1e12, 1e12),
    st.floats(1e-9, 1e12),
    st.integers(4, 9),
)
def test_ticks_are_few_round_and_told_apart(low, span, most):
    high = low + max(span, 1e-8 * abs(low))
    ticks = round_ticks(low, high, most)
    values, labels = zip(*ticks, strict=True)
    assert 1 <= len(ticks) <= most
    assert len(ticks) >= (high - low) / (high - low + 1) * (most - 1) / 2.5 - 1
    assert all(low <= value <= high for value in values)
    assert len(set(labels)) == len(labels)
    for value, label in ticks:
        assert float(label.replace(",", "")) == pytest.approx(value, rel=1e-12, abs=1e-30)
    steps = [later - earlier for earlier, later in pairwise(values)]
    assert not steps or steps == pytest.approx([steps[0]] * len(steps), rel=1e-3)


def test_the_digits_of_ticks_are_those_that_differ():
    assert round_ticks(19.75, 20.42, 8) == [
        (value, f"{value:.1f}") for value in (19.8, 19.9, 20.0, 20.1, 20.2, 20.3, 20.4)
    ]
    assert round_ticks(0, 2_400_000, 4) == [(0, "0"), (1e6, "1,000,000"), (2e6, "2,000,000")]
    assert [label for _, label in round_ticks(1e9, 1e9 + 2, 4)] == [
        "1,000,000,000",
        "1,000,000,001",
        "1,000,000,002",
    ]


@pytest.mark.parametrize(
    ("steps", "start", "first", "label"),
    [
        (
            {"freq": "5min"},
            "2024-06-17 09:15",
            "06-17 11:15",
            "2024-06-17 09:15 to 2024-06-18 00:20",
        ),
        ({"freq": "D"}, "2024-06-18", "2024-07-12", "2024-06-18 to 2024-12-16"),
        ({"freq": "B"}, "2024-06-18 15:00", "2024-07-22", "2024-06-18 to 2025-02-26"),
        (
            {"freq": "s"},
            "2024-06-18 23:59:50",
            "00:00:14",
            "2024-06-18 23:59:50 to 2024-06-19 00:02:51",
        ),
        (
            {"freq": "D", "tz": "Europe/Berlin"},  # one of its days has 23 hours
            "2024-02-18",
            "2024-03-13",
            "2024-02-18 to 2024-08-17 (Europe/Berlin)",
        ),
        (
            {"freq": "4h"},
            "2024-06-18",
            "06-22 00:00",
            "2024-06-18 00:00 to 2024-07-18 04:00",
        ),
        (
            {"freq": "5min", "tz": "Asia/Shanghai"},
            "2024-06-17 09:15",
            "06-17 11:15",
            "2024-06-17 09:15 to 2024-06-18 00:20 (Asia/Shanghai)",
        ),
    ],
)
def test_ticks_tell_dates_or_times_as_finely_as_the_bars(tmp_path, steps, start, first, label):
    chart = long_chart(120, 62, start=start, **steps)
    ticks = Drawing(chart).time_ticks
    assert [place for place, _ in ticks] == [0, 24, 48, 72, 96, 120, 144, 168]
    assert ticks[1][1] == first
    texts = ChartImage(tmp_path, chart).texts()
    assert [text for text in texts if text in dict(ticks).values()] == [text for _, text in ticks]
    assert f"{label}, bar by bar" in texts
    _, layout = plotted_of(text_drawn(tmp_path / "a.html", chart))
    assert layout["xaxis"]["ticktext"] == [text for _, text in ticks]
    assert layout["xaxis"]["tickvals"] == [place for place, _ in ticks]
    assert layout["xaxis"]["title"]["text"] == f"{label}, bar by bar"


def test_times_are_told_of_bars_within_a_day_though_a_weekend_is_among_them():
    chart = some_chart(history=bar_frame(HISTORY, "2024-06-14 14:45"))
    assert Drawing(chart).times[0] == "2024-06-14 14:45"
    assert Drawing(chart).time_ticks == [(1, "06-14 14:50"), (4, "06-18 09:35")]


def test_a_zone_shows_its_wall_clock_on_both_sides_of_a_change():
    chart = long_chart(3, 3, start="2024-10-27 01:00", freq="h", tz="Europe/Berlin")
    assert [time[-5:] for time in Drawing(chart).times] == [
        "01:00",
        "02:00",
        "02:00",
        "03:00",
        "04:00",
        "05:00",
    ]


@given(st.integers(1, 700), st.integers(1, 200))
def test_there_are_a_few_ticks_and_one_at_the_first_forecast(past, to_come):
    frame = bar_frame([HISTORY[0]] * (past + to_come), "2024-06-17")
    drawing = Drawing(some_chart(history=frame[:past], forecast=frame[past:], bands={}))
    places = [place for place, _ in drawing.time_ticks]
    assert 1 <= len(places) <= 8
    assert past in places
    assert 0 <= places[0] <= places[-1] < past + to_come
    distances = {later - earlier for earlier, later in pairwise(places)}
    assert len(distances) <= 1
    room = (1200 - 132 - 44) / (drawing.across[1] - drawing.across[0])
    assert all(distance * room > 100 for distance in distances)  # pixels: a label takes 85

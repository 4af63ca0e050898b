"""Timestamps: every spelling that is read, and that none is guessed."""

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kronos.data.columns import Source
from kronos.data.reading.clock import parse_timestamps
from kronos.errors import DataError

SOURCE = Source("bars.csv")
SCALES = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def fault_of(cells):
    with pytest.raises(DataError) as caught:
        parse_timestamps(cells, SOURCE)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "2024-06-18 11:15:00",
        "2024-06-18 11:15",
        "2024-06-18T11:15:00",
        "2024/06/18 11:15",
        " 2024/6/18 11:15 ",
        "2024.06.18 11:15",
        "2024.6.18 11:15:00",
        "2024年6月18日 11:15",
        "2024年06月18日11:15:00",
        "2024年6月18日 11时15分",
        "２０２４－０６－１８ １１：１５",
        "20240618 11:15",
        "20240618111500000",
        "2024-06-18 11:15:00.000",
        "202406181115",
        "20240618111500",
    ],
)
def test_spellings_of_one_minute(text):
    index = parse_timestamps([text], SOURCE)
    assert index[0] == pd.Timestamp("2024-06-18 11:15")
    assert index.dtype == "datetime64[ns]"
    assert index.name == "timestamps"


def test_days_without_time_may_stand_among_bars_with_one():
    index = parse_timestamps(["2024-06-18", "2024-06-18 00:05:00"], SOURCE)
    assert (index[1] - index[0]) == pd.Timedelta(minutes=5)
    assert parse_timestamps(["20240618"], SOURCE)[0] == pd.Timestamp("2024-06-18")


def test_an_offset_is_kept():
    index = parse_timestamps(["2024-06-18T11:15:00+08:00"], SOURCE)
    assert index[0] == pd.Timestamp("2024-06-18 03:15", tz="UTC")
    assert index[0].hour == 11


def test_mixed_offsets_name_the_row():
    cells = ["2024-03-08T00:00:00-05:00", "2024-03-09T00:00:00-05:00", "2024-03-11T00:00:00-04:00"]
    assert fault_of(cells) == (
        "bars.csv: column timestamps, row 3: '2024-03-11T00:00:00-04:00' has another UTC offset "
        "than '2024-03-08T00:00:00-05:00'; write all in one zone, such as UTC, or convert them "
        "with timezone='America/New_York' (--timezone)"
    )
    assert "row 2: '2024-03-11' has another" in fault_of([cells[0], "2024-03-11"])
    assert "row 1: 'soon' is not a timestamp" in fault_of(["soon", cells[0], cells[2]])


@pytest.mark.parametrize(
    "text",
    ["", "NaT", "soon", "now", "today", "18/06/2024", "06/18/2024", "2024-13-01", "2024-02-30",
     "2024-06-18 24:61", "June 18 2024", "0001-01-01", "9999-01-01"],
)  # fmt: skip
@pytest.mark.parametrize("row", [1, 3])
def test_P16_unreadable_timestamp_names_the_row(text, row):
    cells = ["2024-06-18", "2024-06-19", "2024-06-20"]
    cells[row - 1] = text
    message = fault_of(cells)
    assert f"bars.csv: column timestamps, row {row}: {text!r} is not a timestamp" in message
    assert "write timestamps like 2024-06-18 11:15:00" in message


@pytest.mark.parametrize("unit", SCALES)
def test_T11_epochs_are_read_in_their_unit(unit):
    seconds = 1_718_709_300
    index = parse_timestamps([str((seconds + 300 * k) * SCALES[unit]) for k in range(3)], SOURCE)
    assert index[0] == pd.Timestamp("2024-06-18 11:15", tz="UTC")
    assert index[2] == pd.Timestamp("2024-06-18 11:25", tz="UTC")
    assert index.dtype == "datetime64[ns, UTC]"


@settings(max_examples=200)
@given(st.datetimes(pd.Timestamp("1990-01-01").to_pydatetime(),
                    pd.Timestamp("2032-12-31 23:59:59").to_pydatetime()),
       st.sampled_from(list(SCALES)))  # fmt: skip
def test_T11_every_epoch_of_the_span_comes_back(moment, unit):
    moment = pd.Timestamp(moment.replace(microsecond=0), tz="UTC")
    count = int(moment.timestamp()) * SCALES[unit]
    assert parse_timestamps([str(count)], SOURCE)[0] == moment


def test_T11_whole_numbers_with_a_point_are_epochs_too():
    assert parse_timestamps(["1718709300.0"], SOURCE)[0] == pd.Timestamp(
        1718709300, unit="s", tz="UTC"
    )


@pytest.mark.parametrize("text", [
    "0", "1", "45461", "631151999", "1988150400", "2024061811", "1988150400000", "-1718709300",
    "1718709300.5", "1.7187093e+18", "2024", "2024.06", "99999999999999999999999", "1_718_709_300"
])  # fmt: skip
def test_T11_numbers_that_are_no_epoch_are_refused_not_1970(text):
    message = fault_of([text, text])
    assert f"row 1: {text!r}" in message
    assert "write timestamps like 2024-06-18 11:15:00, or as epoch s, ms, us or ns" in message


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["1718709300", "1718709600000"], "row 2: '1718709600000' is no epoch time"),
        (["1718709300", "0"], "row 2: '0' is no epoch time from 1990 to 2032 in s"),
        (["1718709300", "2024-06-18"], "row 2: '2024-06-18' is no epoch time"),
        (["2024-06-18", "1718709300"], "row 2: '1718709300' is not a timestamp"),
        (["20240618", "20240631"], "row 2: '20240631' is not a timestamp"),
        (["20240618", "202406191115"], "row 2: '202406191115' is not a timestamp"),
        (["202406181115", "2024061811"], "row 2: '2024061811' is not a timestamp"),
    ],
)
def test_every_row_follows_the_spelling_of_the_first(cells, words):
    assert words in fault_of(cells)

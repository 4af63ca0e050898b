"""Cells, delimiters and encodings: whatever spells a number reads alike, the rest is named."""

import gzip
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kronos.data import read_bars
from kronos.data.columns import FEATURES
from kronos.data.reading import numbers as numbers_module
from kronos.data.reading.numbers import MISSING, MISSING_SPELLINGS, is_missing, read_number
from kronos.errors import DataError

HEADER = "date,open,high,low,close,volume,amount"
ROW = "2024-01-0{day},2,3,1,2,{volume},{amount}"


def write(folder, *lines, name="bars.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes("\n".join([*lines, ""]).encode(encoding))
    return path


def fault_of(path, **options):
    with pytest.raises(DataError) as caught:
        read_bars(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(f"{path.parent}/", "")


def volume_of(folder, *cells):
    rows = [ROW.format(day=day, volume=cell, amount=1) for day, cell in enumerate(cells, start=1)]
    return read_bars(write(folder, HEADER, *rows))["volume"].tolist()


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ('"1,234"', 1234.0),
        ('"1,234,567.5"', 1234567.5),
        ('"１，２３４．５"', 1234.5),
        ("１２３", 123.0),
        (" 12 ", 12.0),
        ("+12", 12.0),
        ("1e3", 1000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("1.5万", 15_000.0),
        ("1.23亿", 123_000_000.0),
        ("1.1亿", 110_000_000.0),
        ("2万亿", 2e12),
        ("3.25K", 3250.0),
        ("3.25M", 3_250_000.0),
        ("1.1b", 1_100_000_000.0),
        ('"1,234.5万"', 12_345_000.0),
    ],
)
def test_D3_spellings_of_a_number(tmp_path, cell, number):
    assert volume_of(tmp_path, cell, "7") == [number, 7.0]
    assert volume_of(tmp_path, "7", cell) == [7.0, number]


@pytest.mark.parametrize(
    "cell",
    ["12%", "１２％", "$12", "¥12", "12元", "1_000", '"12,5"', '"1,23"', '"1,2345"', '",123"',
     '"1,234,"', "0x10", "1 000", "1.2.3", "1e", "一百", "1.5千万", '"-1,234"', "12手", "1d5", "."],
)  # fmt: skip
def test_D3_cells_that_are_no_number_are_named(tmp_path, cell):
    rows = [ROW.format(day=1, volume=5, amount=1), ROW.format(day=2, volume=cell, amount=1)]
    message = fault_of(write(tmp_path, HEADER, *rows))
    shown = cell.strip('"')
    assert message == (
        f"bars.csv: column volume, row 2 (line 3): {shown!r} is not a number; "
        "correct the cell or remove the row"
    )


@pytest.mark.parametrize("cell", ["1.5万", "2亿", "3K", "3M"])
def test_D3_a_price_has_no_unit(tmp_path, cell):
    message = fault_of(write(tmp_path, HEADER, f"2024-01-01,2,{cell},1,2,5,6"))
    assert f"column high, row 1 (line 2): {cell!r} is not a number" in message


def test_D3_a_comma_that_may_be_a_decimal_one_is_not_guessed(tmp_path):
    """Where commas divide no columns, 1,234 may be 1.234."""
    lines = [line.replace(",", ";") for line in (HEADER, "2024-01-01,2,3,1,2,V,6")]
    path = write(tmp_path, lines[0], lines[1].replace("V", "1,234"))
    message = fault_of(path)
    assert "'1,234' is not a number (a decimal comma, or thousands?)" in message
    path = write(tmp_path, lines[0], lines[1].replace("V", "1,234").replace(";6", ";12,5"))
    assert "column volume" in fault_of(path)
    path = write(
        tmp_path,
        lines[0],
        lines[1].replace("V", "1,234"),
        lines[1].replace("V", "1,234,567").replace("-01;", "-02;"),
    )
    assert read_bars(path)["volume"].tolist() == [1234.0, 1234567.0]


@pytest.mark.parametrize("word", MISSING)
def test_T9_spellings_of_a_missing_cell(tmp_path, word):
    for cell in {word, word.upper(), word.capitalize()}:
        assert is_missing(f" {cell} ")
        assert cell in MISSING_SPELLINGS
        rows = [ROW.format(day=1, volume=5, amount=1), ROW.format(day=2, volume=cell, amount=1)]
        path = write(tmp_path, HEADER, *rows)
        assert "column volume, row 2 (line 3): " in fault_of(path)
        assert read_bars(path, fill="ffill")["volume"].tolist() == [5.0, 5.0]
        assert len(read_bars(path, fill="drop")) == 1


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["", " ", "\t"]))
def test_every_float_reads_back(number, blank):
    assert read_number(f"{blank}{number!r}{blank}") == number


@given(st.integers(0, 10**15), st.integers(0, 4))
def test_D3_every_number_with_thousands_reads_back(whole, places):
    text = f"{whole:,}" + (f".{'5' * places}" if places else "")
    expected = float(text.replace(",", ""))
    assert read_number(text) == expected
    wide = text.translate({ord(c): ord(c) + 0xFEE0 for c in "0123456789,."})
    assert read_number(wide) == expected


@given(st.text(max_size=8))
def test_a_cell_is_a_number_or_none_and_never_fails(text):
    number = read_number(text, quantity=True)
    assert number is None or math.isnan(number) == is_missing(text)


def test_only_odd_cells_are_read_one_by_one(tmp_path, monkeypatch):
    calls = []

    def counted(text, **rules):
        calls.append(text)
        return read_number(text, **rules)

    monkeypatch.setattr(numbers_module, "read_number", counted)
    rows = [ROW.format(day=day, volume=day, amount='"1,234"') for day in range(1, 6)]
    read_bars(write(tmp_path, HEADER, *rows))
    assert calls == ["1,234"]


# ---- one table, written in any way


@st.composite
def tables(draw):
    """Sound bars with text that needs quotes, in any order of columns."""
    count = draw(st.integers(1, 8))
    number = st.floats(0.01, 1e6).map(lambda value: float(f"{value:.6g}"))
    rows = []
    for _ in range(count):
        a, b = draw(number), draw(number)
        low, high = min(a, b), max(a, b)
        rows.append([low, high, low, high, draw(number), draw(number)])
    frame = pd.DataFrame(rows, columns=list(FEATURES))
    start = draw(st.datetimes(pd.Timestamp("1990-01-01"), pd.Timestamp("2200-01-01")))
    start = pd.Timestamp(start).floor("s")
    frame.insert(0, "timestamps", [start + pd.Timedelta(minutes=5) * at for at in range(count)])
    notes = st.text(alphabet='ab,;|"\n 中', max_size=5)
    frame["note"] = [draw(notes) for _ in range(count)]
    return frame[list(draw(st.permutations(list(frame.columns))))]


CHINESE = {
    "timestamps": "时间", "open": "开盘", "high": "最高", "low": "最低", "close": "收盘",
    "volume": "成交量", "amount": "成交额", "note": "备注",
}  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    frame=tables(),
    delimiter=st.sampled_from(",\t;|"),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "gbk", "gb18030", "utf-16"]),
    end=st.sampled_from(["\n", "\r\n"]),
    packed=st.booleans(),
    chinese=st.booleans(),
    quoted=st.booleans(),
)
def test_D3_any_way_of_writing_reads_back_equal(
    tmp_path_factory, frame, delimiter, encoding, end, packed, chinese, quoted
):
    text = (frame.rename(columns=CHINESE) if chinese else frame).to_csv(
        sep=delimiter, index=False, lineterminator=end, quoting=1 if quoted else 0
    )
    path = tmp_path_factory.getbasetemp() / ("any.csv.gz" if packed else "any.csv")
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data, 1) if packed else data)
    bars = read_bars(path)
    expected = frame.set_index("timestamps")[list(FEATURES)]
    np.testing.assert_array_equal(bars.to_numpy(), expected.to_numpy())
    assert bars.index.tolist() == expected.index.tolist()


@settings(max_examples=80, deadline=None)
@given(
    frame=tables(),
    data=st.data(),
    delimiter=st.sampled_from(",\t;|"),
    encoding=st.sampled_from(["utf-8", "gbk", "utf-16"]),
    text=st.sampled_from(["x", "5%", "inf"]),
)
def test_a_planted_fault_is_found_in_its_line(
    tmp_path_factory, frame, data, delimiter, encoding, text
):
    row = data.draw(st.integers(0, len(frame) - 1))
    column = data.draw(st.sampled_from(FEATURES))
    bad = frame.astype(object)
    bad.loc[row, column] = text
    written = bad.to_csv(sep=delimiter, index=False, lineterminator="\n")
    above = bad.iloc[: row + 1].to_csv(sep=delimiter, index=False, lineterminator="\n")
    path = tmp_path_factory.getbasetemp() / "planted_any.csv"
    path.write_bytes(written.encode(encoding))
    message = fault_of(path)
    assert f"column {column}, row {row + 1} (line {above.count(chr(10))}): {text!r}" in message


def test_only_a_carriage_return_ends_the_lines(tmp_path):
    path = tmp_path / "bars.csv"
    path.write_bytes("\r".join([HEADER, ROW.format(day=1, volume=5, amount=6)]).encode())
    assert read_bars(path).iloc[0].tolist() == [2, 3, 1, 2, 5, 6]


def test_a_quoted_cell_may_hold_the_delimiter(tmp_path):
    path = write(tmp_path, '"a,b",' + HEADER, '"x,y",' + ROW.format(day=1, volume=5, amount=6))
    assert read_bars(path).iloc[0].tolist() == [2, 3, 1, 2, 5, 6]


# ---- timestamps of files


@pytest.mark.parametrize(
    ("date", "time"),
    [
        ("2024.01.31", "09:30"), ("2024-01-31", "09:30:00"), ("2024/1/31", "9:30"),
        ("20240131", "093000"), ("20240131", "93000"), ("20240131", "0930"), ("20240131", "930"),
        ("2024年1月31日", "09:30:00.000"), ("2024-01-31", "０９：３０"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("names", [("date", "time"), ("日期", "时间"), ("<DATE>", "<TIME>")])
def test_a_date_and_a_time_of_day_are_one_timestamp(tmp_path, date, time, names):
    header = ",".join([*names, "open", "high", "low", "close"])
    bars = read_bars(write(tmp_path, header, f"{date},{time},1,2,1,2"))
    assert bars.index[0] == pd.Timestamp("2024-01-31 09:30")


@pytest.mark.parametrize("time", ["2500", "24:00", "09:60", "soon", "1234567"])
def test_a_time_of_day_that_is_none_is_named_with_its_date(tmp_path, time):
    path = write(
        tmp_path,
        "date,time,open,high,low,close",
        "2024-01-31,0930,1,2,1,2",
        f"2024-01-31,{time},1,2,1,2",
    )
    message = fault_of(path)
    assert f"column timestamps, row 2 (line 3): '2024-01-31 {time}' is not a date and" in message


def test_hours_of_one_digit_as_spreadsheets_write_them(tmp_path):
    path = write(
        tmp_path, "time,open,high,low,close", "2024/1/31 9:30,1,2,1,2", "2024/1/31 10:00,1,2,1,2"
    )
    assert read_bars(path).index.tolist() == [
        pd.Timestamp("2024-01-31 09:30"),
        pd.Timestamp("2024-01-31 10:00"),
    ]


@pytest.mark.parametrize(
    ("cells", "zone", "words"),
    [
        (["2024-03-10 01:30", "2024-03-10 02:30"], "America/New_York", "is no time in America"),
        (["2024-11-03 00:30", "2024-11-03 01:30"], "America/New_York", "comes twice in America"),
    ],
)
def test_wall_times_that_a_zone_skips_or_repeats_are_named(tmp_path, cells, zone, words):
    rows = [f"{cell},1,2,1,2" for cell in cells]
    path = write(tmp_path, "time,open,high,low,close", *rows)
    assert read_bars(path).index.tz is None
    message = fault_of(path, timezone=zone)
    assert f"row 2 (line 3): {cells[1]!r} {words}" in message


def test_zones_are_set_and_converted(tmp_path):
    naive = write(tmp_path, "time,open,high,low,close", "2024-01-31 09:30,1,2,1,2")
    bars = read_bars(naive, timezone="Asia/Shanghai")
    assert str(bars.index[0]) == "2024-01-31 09:30:00+08:00"
    epoch = write(tmp_path, "time,open,high,low,close", "1706664600,1,2,1,2")
    pd.testing.assert_frame_equal(read_bars(epoch, timezone="Asia/Shanghai"), bars)
    offset = write(tmp_path, "time,open,high,low,close", "2024-01-30T20:30:00-05:00,1,2,1,2")
    pd.testing.assert_frame_equal(read_bars(offset, timezone="Asia/Shanghai"), bars)
    assert str(read_bars(offset).index[0]) == "2024-01-30 20:30:00-05:00"


def test_times_with_and_without_offset_do_not_mix_even_with_a_zone(tmp_path):
    rows = ["2024-03-08T00:00:00-05:00,1,2,1,2", "2024-03-11T00:00:00,1,2,1,2"]
    path = write(tmp_path, "time,open,high,low,close", *rows)
    message = fault_of(path, timezone="America/New_York")
    assert "row 2 (line 3): '2024-03-11T00:00:00' has another UTC offset" in message

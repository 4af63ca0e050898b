"""Reading CSV files: what is read, and the one line said about what is not."""

import gzip

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kronos.data import read_bars
from kronos.data.reading import table as table_module
from kronos.errors import DataError

HEADER = "timestamps,open,high,low,close,volume,amount"
ROWS = [
    "2024-06-18 11:15:00,11.27,11.28,11.26,11.27,379.0,427161.0",
    "2024-06-18 11:20:00,11.27,11.28,11.27,11.27,277.0,312192.0",
    "2024-06-18 11:25:00,11.27,11.27,11.26,11.27,380.0,427954.0",
]


def write(folder, *lines, name="bars.csv"):
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    return path


def fault_of(path, **options):
    """The one-line message that reading `path` raises, without the folder."""
    with pytest.raises(DataError) as caught:
        read_bars(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{path.parent}/", "")


def with_cell(column, text, row=2):
    """The rows of the module with one cell replaced (row from 1)."""
    cells = ROWS[row - 1].split(",")
    cells[HEADER.split(",").index(column)] = text
    return [*ROWS[: row - 1], ",".join(cells), *ROWS[row:]]


def test_plain_file(tmp_path):
    bars = read_bars(write(tmp_path, HEADER, *ROWS))
    assert list(bars.columns) == ["open", "high", "low", "close", "volume", "amount"]
    assert (bars.dtypes == np.float64).all()
    assert isinstance(bars.index, pd.DatetimeIndex)
    assert bars.index.name == "timestamps"
    assert bars.index.dtype == np.dtype("datetime64[ns]")
    assert str(bars.index[1]) == "2024-06-18 11:20:00"
    assert bars.iloc[1].tolist() == [11.27, 11.28, 11.27, 11.27, 277.0, 312192.0]


def test_gzip_file_reads_as_the_plain_one(tmp_path):
    plain = write(tmp_path, HEADER, *ROWS)
    packed = tmp_path / "bars.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    pd.testing.assert_frame_equal(read_bars(packed), read_bars(plain))


@pytest.mark.parametrize("name", ["timestamps", "Timestamp", "DATE", "datetime", "Time"])
def test_header_counts_without_case_and_in_any_order(tmp_path, name):
    path = write(
        tmp_path,
        f" Close ,LOW,high,Open,note,{name}",
        "3,1,4,2,first,2024-01-02",
        "3,2,3,2,,2024-01-03",
    )
    bars = read_bars(path)
    assert bars["open"].tolist() == [2.0, 2.0]
    assert bars["low"].tolist() == [1.0, 2.0]
    assert bars["high"].tolist() == [4.0, 3.0]
    assert bars["close"].tolist() == [3.0, 3.0]


def test_P8_missing_volume_is_exactly_zero(tmp_path):
    bars = read_bars(write(tmp_path, "date,open,high,low,close", "2024-01-02,1,2,1,2"))
    assert bars[["volume", "amount"]].to_numpy().tolist() == [[0.0, 0.0]]


def test_missing_amount_is_volume_times_the_mean_price(tmp_path):
    bars = read_bars(write(tmp_path, "date,open,high,low,close,volume", "2024-01-02,2,5,1,4,10"))
    assert bars["amount"].tolist() == [10 * (2 + 5 + 1 + 4) / 4]


def test_P9_amount_is_kept_where_volume_is_missing(tmp_path):
    bars = read_bars(write(tmp_path, "date,open,high,low,close,amount", "2024-01-02,1,2,1,2,77"))
    assert bars["amount"].tolist() == [77.0]
    assert bars["volume"].tolist() == [0.0]


def test_D3_byte_order_mark_and_full_width_digits_are_read(tmp_path):
    path = tmp_path / "bars.csv"
    path.write_text(f"{HEADER}\n2024-01-02,１２.5,13,12,12.5,1,1\n", encoding="utf-8-sig")
    assert read_bars(path)["open"].tolist() == [12.5]


def test_D3_byte_order_mark_of_a_file_pasted_behind_another_is_told(tmp_path):
    message = fault_of(write(tmp_path, HEADER, ROWS[0], "\ufeff" + HEADER, ROWS[1]))
    assert "column open, row 2 (line 3): 'open' is not a number" in message
    message = fault_of(write(tmp_path, HEADER, ROWS[0], "\ufeff" + ROWS[1]))
    assert r"row 2 (line 3): '\ufeff2024-06-18 11:20:00' is not a timestamp" in message


def test_windows_line_ends_blank_lines_and_quotes_are_read(tmp_path):
    path = tmp_path / "bars.csv"
    path.write_bytes(f'{HEADER}\r\n\r\n"2024-01-02","1",2,1,2,3,4\r\n   \r\n'.encode())
    assert read_bars(path).iloc[0].tolist() == [1.0, 2.0, 1.0, 2.0, 3.0, 4.0]


# ---- files that are none


def test_absent_file(tmp_path):
    assert fault_of(tmp_path / "none.csv") == (
        "cannot read none.csv: No such file or directory; give a readable .csv, .csv.gz or "
        ".parquet file"
    )


def test_folder_without_bars(tmp_path):
    (tmp_path / "notes.md").write_text("bars follow")
    message = fault_of(tmp_path / ".")
    assert message.startswith("no files of bars in the folder")
    assert "looked for .csv, .tsv, .txt" in message


def test_empty_file_and_file_without_rows(tmp_path):
    empty = tmp_path / "bars.csv"
    empty.write_bytes(b"")
    assert fault_of(empty).startswith("bars.csv: the file is empty;")
    assert fault_of(write(tmp_path, HEADER)).startswith("bars.csv: a header but no rows;")


def test_damaged_gzip(tmp_path):
    packed = gzip.compress("\n".join([HEADER, *ROWS]).encode())
    path = tmp_path / "bars.csv.gz"
    path.write_bytes(packed[:-9])
    assert "cannot read bars.csv.gz" in fault_of(path)
    path.write_bytes(b"timestamps,open")
    assert "Not a gzipped file" in fault_of(path)
    path.write_bytes(packed[:12] + b"\xff\xff" + packed[14:])
    assert "cannot read bars.csv.gz" in fault_of(path)


def test_D3_bytes_of_no_encoding_name_the_line(tmp_path):
    path = tmp_path / "bars.csv"
    path.write_bytes("\n".join([f"{HEADER},note", f"{ROWS[0]},été,"]).encode("latin-1"))
    assert fault_of(path) == (
        "bars.csv: byte 0xe9 at line 2 is not UTF-8, nor is the file GB18030; save the file as "
        "UTF-8 text (spreadsheets: 'CSV UTF-8')"
    )
    path.write_bytes(b"\xef\xbb\xbf" + f"{HEADER}\n{ROWS[0]}\n".encode() + b"\xff")
    assert fault_of(path).startswith("bars.csv: byte 0xff at line 3 is not UTF-8; save")


def test_a_spreadsheet_is_no_text(tmp_path):
    path = tmp_path / "bars.csv"
    path.write_bytes(b"PK\x03\x04" + bytes(30))
    assert fault_of(path) == "bars.csv: a spreadsheet, not text; save it as CSV UTF-8"


def test_columns_that_nothing_separates(tmp_path):
    path = write(tmp_path, HEADER.replace(",", "/"), *(row.replace(",", "/") for row in ROWS))
    message = fault_of(path)
    assert "no column timestamps, open, high, low, close" in message
    assert "the columns there are 'timestamps/open/" in message
    assert message.endswith("columns={'timestamps': ...} (--columns)")


def test_unbalanced_quote_is_no_csv(tmp_path):
    message = fault_of(write(tmp_path, HEADER, ROWS[0], '"' + ROWS[1]))
    assert message.startswith("bars.csv: not a CSV file at line 3 (")


# ---- headers


def test_missing_column_says_which_are_there(tmp_path):
    message = fault_of(write(tmp_path, "date,open,High,close", "2024-01-02,1,2,2"))
    assert message.startswith(
        "bars.csv: no column low; the columns there are 'date', 'open', 'High', 'close'; rename"
    )


def test_D3_chinese_headers_are_read(tmp_path):
    path = write(tmp_path, "时间,开盘,最高,最低,收盘,换手率", "2024-01-02,1,3,0.5,2,9")
    assert read_bars(path).iloc[0].tolist() == [1.0, 3.0, 0.5, 2.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("date,open,high,low,close,Close", "2 columns for close ('close', 'Close'); keep one"),
        ("date,open,high,low,close,time", "2 columns for timestamps ('date', 'time'); keep one"),
    ],
)
def test_column_that_stands_there_twice(tmp_path, header, words):
    assert words in fault_of(write(tmp_path, header, "2024-01-02,1,2,1,2,2"))


# ---- cells


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("abc", "'abc' is not a number"),
        ("12%", "'12%' is not a number"),
        ("1_000", "'1_000' is not a number"),
        ("x" * 60, "'" + "x" * 40 + "…' is not a number"),
    ],
)
def test_cell_that_is_no_number_is_quoted(tmp_path, text, words):
    message = fault_of(write(tmp_path, HEADER, *with_cell("low", text)))
    assert message == (
        f"bars.csv: column low, row 2 (line 3): {words}; correct the cell or remove the row"
    )


@pytest.mark.parametrize("text", ["nan", "NaN", "-nan"])
@pytest.mark.parametrize("row", [1, 2])
def test_T9_nan_names_column_and_row(tmp_path, text, row):
    message = fault_of(write(tmp_path, HEADER, *with_cell("close", text, row)))
    assert f"column close, row {row} (line {row + 1}): '{text}' is not a number (NaN)" in message


@pytest.mark.parametrize("text", ["inf", "-inf", "Infinity", "1e999"])
@pytest.mark.parametrize("column", ["open", "volume", "amount"])
def test_T10_inf_names_column_and_row(tmp_path, text, column):
    message = fault_of(write(tmp_path, HEADER, *with_cell(column, text)))
    assert f"column {column}, row 2 (line 3): '{text}' is infinite" in message


@pytest.mark.parametrize("text", ["", "  ", "NULL", "N/A", "-", "--", "None"])
def test_T9_missing_cell_names_the_ways_out(tmp_path, text):
    message = fault_of(write(tmp_path, HEADER, *with_cell("low", text)))
    words = f"{text!r} is not a number (missing)" if text.strip() else "the cell is empty"
    assert message == (
        f"bars.csv: column low, row 2 (line 3): {words}; fill it or leave the bar out with "
        "fill='ffill' or 'drop' (--fill)"
    )


@pytest.mark.parametrize("row", [1, 2, 3])
@pytest.mark.parametrize(("text", "cells"), [("1,234.5", 8), (None, 6)])
def test_D3_row_with_too_many_or_too_few_cells(tmp_path, row, text, cells):
    rows = with_cell("volume", text, row) if text else list(ROWS)
    if text is None:
        rows[row - 1] = rows[row - 1].rpartition(",")[0]
    message = fault_of(write(tmp_path, HEADER, *rows))
    assert f"row {row} (line {row + 1}) has {cells} cells, the header 7" in message


def test_lines_are_those_of_the_file(tmp_path):
    """Blank lines and quoted line breaks move the line, not the row."""
    path = write(
        tmp_path,
        "date,open,high,low,close,note",
        "",
        '2024-01-02,1,2,1,2,"two',
        'lines"',
        "2024-01-03,1,x,1,2,-",
    )
    assert "column high, row 2 (line 5): 'x' is not a number" in fault_of(path)


def test_first_faulty_row_wins_then_the_leftmost_column(tmp_path):
    rows = [ROWS[0], ROWS[1].replace("312192.0", "x"), ROWS[2].replace("2024", "never")]
    rows[1] = rows[1].replace("277.0", "y")
    assert "column volume, row 2 (line 3): 'y'" in fault_of(write(tmp_path, HEADER, *rows))


@pytest.mark.parametrize("block", [70, 130, 200])
@pytest.mark.parametrize("note", ["", ',"two\nlines"'])
def test_blocks_change_neither_values_nor_faults(tmp_path, monkeypatch, block, note):
    header = HEADER + (",note" if note else "")
    whole = read_bars(write(tmp_path, header, *(row + note for row in ROWS)))
    rows = [row + note for row in with_cell("low", "x", row=3)]
    bad = write(tmp_path, header, *rows, name="bad.csv")
    message = fault_of(bad)
    monkeypatch.setattr(table_module, "_BLOCK", block)
    pd.testing.assert_frame_equal(read_bars(tmp_path / "bars.csv"), whole)
    assert fault_of(bad) == message
    assert f"row 3 (line {7 if note else 4})" in message


# ---- rules of bars


def test_D1_duplicate_timestamps_name_the_first(tmp_path):
    rows = [*ROWS, ROWS[1], ROWS[0]]
    assert fault_of(write(tmp_path, HEADER, *rows)) == (
        "bars.csv: column timestamps, row 4 (line 5): '2024-06-18 11:20:00' repeats row 2 (line 3) "
        "(2 repeated in 5 bars); keep one bar for each timestamp with dedupe='first' or 'last' "
        "(--dedupe)"
    )


def test_D1_unsorted_rows_name_the_first(tmp_path):
    assert fault_of(write(tmp_path, HEADER, ROWS[0], ROWS[2], ROWS[1])) == (
        "bars.csv: column timestamps, row 3 (line 4): '2024-06-18 11:20:00' is earlier than "
        "'2024-06-18 11:25:00' before it; sort the rows by time with sort=True (--sort)"
    )


@pytest.mark.parametrize(
    ("column", "text"), [("high", "11.25"), ("low", "11.275"), ("close", "12"), ("open", "11.2")]
)
def test_D2_high_and_low_around_open_and_close(tmp_path, column, text):
    rows = with_cell(column, text, row=2)
    rows[2] = rows[2].replace("11.26", "11.5")
    message = fault_of(write(tmp_path, HEADER, *rows))
    assert (
        "high and low do not contain open and close in 2 of 3 bars, first in row 2 (line 3): open"
        in message
    )
    assert f"{column} {float(text):.9g}" in message
    assert message.endswith("widen high and low with repair=True (--repair)")


@pytest.mark.parametrize("column", ["open", "high", "low", "close"])
@pytest.mark.parametrize("text", ["0", "-1.5"])
def test_D2_zero_or_negative_price_names_count_and_row(tmp_path, column, text):
    message = fault_of(write(tmp_path, HEADER, *with_cell(column, text, row=3)))
    assert message == (
        f"bars.csv: column {column} is zero or negative in 1 of 3 bars, first in row 3 (line 4): "
        f"{text}; correct or remove them"
    )


@pytest.mark.parametrize("column", ["volume", "amount"])
def test_negative_volume_is_refused_and_zero_is_not(tmp_path, column):
    read_bars(write(tmp_path, HEADER, *with_cell(column, "0")))
    message = fault_of(write(tmp_path, HEADER, *with_cell(column, "-0.5")))
    assert f"column {column} is negative in 1 of 3 bars, first in row 2 (line 3): -0.5" in message


def test_amount_that_overflows_is_refused(tmp_path):
    path = write(
        tmp_path, "date,open,high,low,close,volume", "2024-01-02,1e200,1e200,1e200,1e200,1e200"
    )
    assert "column amount is not finite in 1 of 1 bars, first in row 1 (line 2)" in fault_of(path)


def test_D2_repair_on_request_widens_and_derives_from_the_widened(tmp_path):
    path = write(tmp_path, "date,open,high,low,close,volume", "2024-01-02,10,9,11,12,2")
    assert "do not contain" in fault_of(path)
    assert read_bars(path, repair=True).iloc[0].tolist() == [10, 12, 10, 12, 2, 2 * 44 / 4]


def test_faults_come_in_one_order(tmp_path):
    """Each fault mended uncovers the next, though that stands in an earlier row."""
    sound = [f"2024-01-0{day},2,3,1,2,5,6" for day in range(1, 9)]
    planted = [
        (8, "2024-01-08,2,3,1,2,5,x", "'x' is not a number"),
        (7, "soon,2,3,1,2,5,6", "'soon' is not a timestamp"),
        (6, "2024-01-05,2,3,1,2,5,6", "repeats row 5"),
        (5, "2023-01-05,2,3,1,2,5,6", "is earlier than"),
        (4, "2024-01-04,2,3,-1,2,5,6", "column low is zero or negative"),
        (3, "2024-01-03,2,3,1,2,-5,6", "column volume is negative"),
        (2, "2024-01-02,2,3,1,2,5,-6", "column amount is negative"),
        (1, "2024-01-01,2,1.5,1,2,5,6", "do not contain open and close"),
    ]
    for stage, (_, _, words) in enumerate(planted):
        rows = list(sound)
        for row, line, _ in planted[stage:]:
            if row == 5 and stage < 3:
                continue  # row 6 repeats the sound row 5
            rows[row - 1] = line
        assert words in fault_of(write(tmp_path, HEADER, *rows))
    read_bars(write(tmp_path, HEADER, *sound))


FAULTS = {
    "abc": "is not a number",
    "": "is empty",
    "--": "(missing)",
    "nan": "(NaN)",
    "-inf": "is infinite",
    "-3": "negative",
}


@settings(max_examples=60)
@given(
    n=st.integers(1, 12),
    data=st.data(),
    column=st.sampled_from(["open", "high", "low", "close", "volume", "amount"]),
    text=st.sampled_from(list(FAULTS)),
    blanks=st.integers(0, 3),
)
def test_a_planted_fault_is_found_in_its_row(tmp_path_factory, n, data, column, text, blanks):
    row = data.draw(st.integers(1, n))
    cells = ["2024-01-01", "2", "3", "1", "2", "5", "6"]
    lines = [",".join([f"2024-01-{day:02}", *cells[1:]]) for day in range(1, n + 1)]
    planted = lines[row - 1].split(",")
    planted[HEADER.split(",").index(column)] = text
    lines[row - 1] = ",".join(planted)
    path = write(tmp_path_factory.getbasetemp(), HEADER, *[""] * blanks, *lines, name="planted.csv")
    message = fault_of(path)
    assert f"column {column}" in message
    assert f"row {row} (line {row + 1 + blanks})" in message
    assert FAULTS[text] in message

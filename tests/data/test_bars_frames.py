"""validate_bars and repair_bars on frames, and both against a row-by-row restatement."""

import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kronos.data import read_bars, repair_bars, validate_bars
from kronos.errors import DataError
from kronos.samples import ibm_daily


def frame_of(n=4):
    return pd.DataFrame(
        {
            "open": np.full(n, 2.0),
            "high": np.full(n, 3.0),
            "low": np.full(n, 1.0),
            "close": np.full(n, 2.5),
            "volume": np.arange(n, dtype=np.int64),
        },
        index=pd.date_range("2024-01-01", periods=n, freq="D"),
    )


def fault_of(frame, **options):
    with pytest.raises(DataError) as caught:
        validate_bars(frame, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_was_read_validates_to_itself():
    bars = read_bars(ibm_daily())
    again = validate_bars(bars)
    pd.testing.assert_frame_equal(again, bars)
    assert again is not bars


def test_input_is_left_alone_and_completed():
    frame = frame_of()
    before = frame.copy()
    bars = validate_bars(frame)
    pd.testing.assert_frame_equal(frame, before)
    assert list(bars.columns) == ["open", "high", "low", "close", "volume", "amount"]
    assert bars["amount"].tolist() == [0.0, 2.125, 4.25, 6.375]
    assert bars.index.name == "timestamps"


@pytest.mark.parametrize(
    "stamps",
    [
        pd.Series(pd.date_range("2024-01-01", periods=4)),
        pd.Series(pd.date_range("2024-01-01", periods=4)).astype("datetime64[s]"),
        pd.Series([f"2024-01-0{day}" for day in range(1, 5)]),
        pd.Series([datetime.date(2024, 1, day) for day in range(1, 5)]),
    ],
)
def test_timestamps_may_be_a_column(stamps):
    frame = frame_of().reset_index(drop=True).assign(Date=stamps)
    assert (validate_bars(frame).index == pd.date_range("2024-01-01", periods=4)).all()


def test_T11_epochs_in_a_column_are_instants():
    frame = frame_of(2).reset_index(drop=True).assign(time=[1718709300, 1718709600])
    assert validate_bars(frame).index[1] == pd.Timestamp("2024-06-18 11:20", tz="UTC")


def test_a_zone_of_the_index_is_kept():
    frame = frame_of()
    frame.index = frame.index.tz_localize("Asia/Shanghai")
    assert str(validate_bars(frame).index.tz) == "Asia/Shanghai"


@pytest.mark.parametrize("where", ["index", "column"])
def test_P16_nat_names_the_row(where):
    frame = frame_of()
    stamps = frame.index.to_series(index=range(4))
    stamps[2] = pd.NaT
    if where == "index":
        frame.index = pd.DatetimeIndex(stamps)
    else:
        frame = frame.reset_index(drop=True).assign(timestamps=stamps)
    assert "bars: column timestamps, row 3: 'NaT' is not a timestamp" in fault_of(frame)


@pytest.mark.parametrize(
    ("value", "words"),
    [(np.nan, "'nan' is not a number (NaN)"), (np.inf, "'inf' is infinite")],
)
def test_P2_number_that_is_not_finite_names_column_and_row(value, words):
    frame = frame_of().astype({"volume": "float64"})
    frame.loc[frame.index[1], "volume"] = value
    assert f"IBM: column volume, row 2: {words}" in fault_of(frame, source="IBM")


@pytest.mark.parametrize(("cell", "words"), [("x", "'x' is not a number"), (None, "'None' is not")])
def test_object_cells_are_numbers_or_named(cell, words):
    frame = frame_of().astype({"close": "object"})
    frame["close"] = pd.Series(["2.5", 2.5, 2, " 2.5 "], index=frame.index, dtype="object")
    assert validate_bars(frame)["close"].tolist() == [2.5, 2.5, 2.0, 2.5]
    frame.iloc[3, frame.columns.get_loc("close")] = cell
    assert f"column close, row 4: {words}" in fault_of(frame)


def test_nullable_columns_are_read_and_their_gaps_named():
    frame = frame_of().astype({"open": "Float64", "volume": "Int64"})
    assert validate_bars(frame)["volume"].tolist() == [0.0, 1.0, 2.0, 3.0]
    frame.iloc[1, 0] = pd.NA
    assert "column open, row 2: '<NA>' is not a number" in fault_of(frame)


def test_frames_without_what_is_needed():
    assert "the frame has no bars" in fault_of(frame_of(0))
    assert "no column low;" in fault_of(frame_of().drop(columns="low"))
    assert "no column timestamps;" in fault_of(frame_of().reset_index(drop=True))


def test_D1_rules_hold_for_frames_too():
    frame = frame_of()
    assert "row 2: '2024-01-01 00:00:00' repeats row 1" in fault_of(frame.iloc[[0, 0, 1]])
    assert "row 2: '2024-01-01 00:00:00' is earlier" in fault_of(frame.iloc[[1, 0, 2]])


# ---- repair


def test_D2_repair_widens_only_what_must_be():
    frame = frame_of().assign(note="kept")
    frame.iloc[1, 1] = 2.2  # high below close
    frame.iloc[2, 2] = 2.1  # low above open
    repaired, changed = repair_bars(frame)
    assert changed == 2
    assert repaired["high"].tolist() == [3.0, 2.5, 3.0, 3.0]
    assert repaired["low"].tolist() == [1.0, 1.0, 2.0, 1.0]
    assert frame.iloc[1, 1] == 2.2, "the given frame is left alone"
    pd.testing.assert_frame_equal(
        repaired.drop(columns=["high", "low"]), frame.drop(columns=["high", "low"])
    )
    validate_bars(repaired)


def test_repair_of_sound_bars_changes_nothing():
    frame = frame_of()
    repaired, changed = repair_bars(frame)
    assert changed == 0
    pd.testing.assert_frame_equal(repaired, frame)


def test_repair_fills_no_gap():
    frame = frame_of()
    frame.iloc[2, 1] = np.nan
    with pytest.raises(DataError, match="column high, row 3: 'nan' is not a number"):
        repair_bars(frame)


prices = st.floats(0.01, 1e6)


@settings(max_examples=100)
@given(st.lists(st.tuples(prices, prices, prices, prices), min_size=1, max_size=8))
def test_ranges_are_judged_and_repaired_as_one_bar_at_a_time(rows):
    frame = pd.DataFrame(rows, columns=["open", "high", "low", "close"])
    frame.index = pd.date_range("2024-01-01", periods=len(rows))
    bad = [
        row
        for row, (opens, high, low, close) in enumerate(rows, start=1)
        if high < low or not low <= opens <= high or not low <= close <= high
    ]
    if bad:
        message = fault_of(frame)
        assert f"in {len(bad)} of {len(rows)} bars, first in row {bad[0]}:" in message
    else:
        validate_bars(frame)
    repaired, changed = repair_bars(frame)
    assert changed == len(bad)
    assert repaired["high"].tolist() == [max(o, h, c) for o, h, _, c in rows]
    assert repaired["low"].tolist() == [min(o, low, c) for o, _, low, c in rows]
    validate_bars(repaired)

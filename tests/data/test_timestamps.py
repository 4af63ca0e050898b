"""Timestamps in memory."""

from datetime import date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kronos.data.timestamps import as_timestamps, stamp_columns
from kronos.errors import DataError

TIMES = pd.date_range("2024-06-16 23:55", periods=3, freq="5min")


@given(st.lists(st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)), max_size=5))
@settings(max_examples=50)
def test_the_five_columns(times: list[datetime]) -> None:
    columns = stamp_columns(times)
    assert columns.dtype == np.int64
    assert columns.shape == (len(times), 5)
    assert columns.tolist() == [[t.minute, t.hour, t.weekday(), t.day, t.month] for t in times]


@pytest.mark.parametrize(
    "given_as",
    [
        TIMES,
        pd.Series(TIMES, index=[9, 8, 7]),
        pd.Series(TIMES).astype(object),
        pd.Series(TIMES).astype(str),
        list(TIMES),
        TIMES.to_numpy(),
        list(TIMES.to_numpy()),
        [str(time) for time in TIMES],
        [time.to_pydatetime() for time in TIMES],
        ["2024/06/16 23:55", "2024-06-17", TIMES[2]],
        (time for time in TIMES),
    ],
)
def test_P3_kinds_of_timestamps(given_as: Any) -> None:
    assert stamp_columns(given_as).tolist() == [
        [55, 23, 6, 16, 6],
        [0, 0, 0, 17, 6],
        [5, 0, 0, 17, 6],
    ]


def test_names_and_zones_are_kept() -> None:
    aware = pd.Series(TIMES.tz_localize("Asia/Shanghai"), name="when")
    index = as_timestamps(aware)
    assert index.name == "when"
    assert str(index.tz) == "Asia/Shanghai"
    assert stamp_columns(aware)[0].tolist() == [55, 23, 6, 16, 6]  # the wall clock, unconverted
    assert as_timestamps([date(2024, 6, 16)])[0] == pd.Timestamp("2024-06-16")
    assert len(as_timestamps([])) == 0


@pytest.mark.parametrize("kind", [list, pd.Series, pd.DatetimeIndex])
def test_P16_nat_is_named(kind: Any) -> None:
    with pytest.raises(DataError, match="row 2: no timestamp"):
        stamp_columns(kind([TIMES[0], pd.NaT, TIMES[2]]))


@pytest.mark.parametrize(
    ("cells", "rule"),
    [
        ([TIMES[0], 5], "row 2: 5 is no timestamp"),
        (np.arange(3), "row 1"),
        ([TIMES[0], "now"], "row 2: 'now' is no timestamp"),
        ([TIMES[0], "2024-13-01"], "row 2: '2024-13-01' is no timestamp"),
        (["18/06/2024"], "row 1: '18/06/2024' is no timestamp"),
        ("2024-06-18", "must be a list of timestamps, got '2024-06-18'"),
        (5, "must be a list of timestamps, got 5"),
        ([[1]], "row 1"),
        ([TIMES[0], TIMES[1].tz_localize("UTC")], "row 2: .* another time zone than row 1"),
        ([TIMES[0].tz_localize("UTC"), TIMES[1]], "row 2: .* another time zone than row 1"),
        (["2024-06-18T00:00+08:00", "2024-06-18T00:00Z"], "row 2: .* another time zone"),
        (
            [datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=1))), TIMES[0]],
            "row 2: .* another time zone",
        ),
    ],
)
def test_what_is_no_timestamp(cells: Any, rule: str) -> None:
    with pytest.raises(DataError, match=f"x_timestamp.*{rule}" if "row" in rule else rule):
        as_timestamps(cells, "x_timestamp")

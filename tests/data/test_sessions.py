"""Bars to come keep the nights, lunch breaks, weekends and clock of a history."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kronos.data.sessions import future_timestamps
from kronos.errors import ConfigError, DataError


def _session_bars(first_day, days, *spans, freq="5min", **named):
    """Bars of `days` business days; each span is the first and last time of day."""
    stamps = [
        stamp
        for day in pd.bdate_range(first_day, periods=days)
        for start, end in spans
        for stamp in pd.date_range(f"{day.date()} {start}", f"{day.date()} {end}", freq=freq)
    ]
    return pd.DatetimeIndex(stamps, **named)


SHANGHAI = (("09:35", "11:30"), ("13:05", "15:00"))


def test_five_minute_bars_keep_lunch_break_nights_and_weekends():
    bars = _session_bars("2024-06-03", 25, *SHANGHAI)  # 48 bars a day, Monday to Friday
    for known in (15 * 48, 15 * 48 + 20, 15 * 48 - 1, 12 * 48 + 24):
        future = future_timestamps(bars[:known], 5 * 48)
        assert future.equals(bars[known : known + 5 * 48])


def test_daily_bars_of_business_days_leave_weekends_free():
    days = pd.bdate_range("2024-01-01", periods=80)
    assert future_timestamps(days[:60], 20).equals(days[60:])


def test_a_market_that_never_closes_goes_on_every_hour():
    hours = pd.date_range("2024-01-01", periods=24 * 30, freq="h")
    assert future_timestamps(hours[: 24 * 20 + 7], 200).equals(hours[24 * 20 + 7 :][:200])


@pytest.mark.parametrize("freq", ["W-FRI", "14D", "36h"])
def test_bars_further_apart_than_a_day_go_on_at_their_spacing(freq):
    bars = pd.date_range("2024-01-05", periods=60, freq=freq)
    assert future_timestamps(bars[:30], 30).equals(bars[30:])


def test_the_commonest_spacing_counts():
    weeks = pd.DatetimeIndex(["2024-01-05", "2024-01-12", "2024-01-26", "2024-02-02"])
    assert future_timestamps(weeks, 1)[0] == pd.Timestamp("2024-02-09")


@pytest.mark.parametrize("freq", ["1min", "h", "D", "90min"])
@pytest.mark.parametrize("known", [2, 3, 10])
def test_a_short_history_goes_on_at_its_spacing(freq, known):
    bars = pd.date_range("2024-03-01 09:30", periods=known + 30, freq=freq)
    assert future_timestamps(bars[:known], 30).equals(bars[known:])


def test_two_weeks_have_shown_the_sessions_and_less_have_not():
    bars = _session_bars("2024-06-03", 20, ("10:00", "15:00"), freq="h")
    night = future_timestamps(bars[: 11 * 6], 1)[0]  # Monday 3rd 10:00 to Monday 17th 15:00
    assert night == pd.Timestamp("2024-06-18 10:00")
    assert future_timestamps(bars[: 10 * 6 + 1], 6)[-1] == night  # two weeks to the hour
    assert future_timestamps(bars[: 10 * 6], 1)[0] == pd.Timestamp("2024-06-14 16:00")


def test_daily_bars_on_a_UTC_clock_stay_one_a_day_after_summer_time():
    closes = pd.bdate_range("2024-01-02", periods=80) + pd.Timedelta(hours=16)
    utc = closes.tz_localize("America/New_York").tz_convert("UTC")  # 21:00, from 11 March 20:00
    for known in (52, 70):
        assert future_timestamps(utc[:known], 10).equals(utc[known : known + 10])


def test_sessions_on_a_UTC_clock_are_those_of_the_last_days():
    bars = _session_bars("2024-02-01", 60, ("09:30", "16:00"), freq="30min")
    utc = bars.tz_localize("America/New_York").tz_convert("UTC")
    known = 50 * 14  # five weeks before summer time, two of them after 10 March
    assert future_timestamps(utc[:known], 100).equals(utc[known : known + 100])


def test_a_suspended_share_keeps_its_sessions_on_the_day_it_comes_back():
    bars = _session_bars("2024-06-03", 60, *SHANGHAI)
    back = 40 * 48
    history = bars[: 20 * 48].append(bars[back : back + 3])
    assert future_timestamps(history, 100).equals(bars[back + 3 : back + 103])


BERLIN = "Europe/Berlin"  # 2024: 02:00 to 03:00 skipped on 31 March, repeated on 27 October


@pytest.mark.parametrize("first", ["2024-03-11", "2024-10-07"])
def test_sessions_in_a_zone_keep_their_wall_clock_over_a_change(first):
    bars = _session_bars(first, 30, ("09:00", "17:00"), freq="h").tz_localize(BERLIN)
    known = 12 * 9  # the second Tuesday; the clock changes on the third Sunday
    future = future_timestamps(bars[:known], 100)
    assert future.equals(bars[known : known + 100])
    assert str(future.tz) == BERLIN
    assert future[0].utcoffset() != future[-1].utcoffset()


@pytest.mark.parametrize("first", ["2024-03-01", "2024-10-01"])
@pytest.mark.parametrize("freq", ["D", "7D", "2D"])
def test_days_in_a_zone_begin_at_midnight_on_both_sides_of_a_change(first, freq):
    days = pd.date_range(first, periods=40, freq=freq, tz=BERLIN)
    for known in (3, 20):
        assert future_timestamps(days[:known], 20).equals(days[known : known + 20])


def test_an_hour_that_the_clock_skips_has_no_bars_and_a_repeated_one_has_them_once():
    spring = pd.date_range("2024-03-10", periods=24 * 30, freq="h", tz=BERLIN)
    assert future_timestamps(spring[: 24 * 20], 48).equals(spring[24 * 20 : 24 * 22])
    autumn = pd.date_range("2024-10-06", periods=24 * 30, freq="h", tz=BERLIN)
    future = future_timestamps(autumn[: 24 * 20], 48)
    twice = autumn[(autumn.date == pd.Timestamp("2024-10-27").date()) & (autumn.hour == 2)][1]
    assert future.equals(autumn[24 * 20 : 24 * 20 + 49].drop(twice))


def test_a_history_that_ends_within_the_repeated_hour_goes_on_after_it():
    hours = pd.date_range("2024-10-06", periods=24 * 30, freq="h", tz=BERLIN)
    second = int(hours.get_loc(pd.Timestamp("2024-10-27 01:00", tz="UTC").tz_convert(BERLIN)))
    assert hours[second].hour == 2
    for known in (second, second + 1):
        assert future_timestamps(hours[:known], 24)[-1] > hours[known - 1]
    assert future_timestamps(hours[: second + 1], 24).equals(hours[second + 1 :][:24])
    both = hours[second - 1 : second + 1]  # 02:00 and 02:00
    assert future_timestamps(both, 2).equals(hours[second + 1 : second + 3])


ZONES = [None, "UTC", BERLIN, "America/New_York", "Asia/Shanghai", "Australia/Lord_Howe"]


@given(
    start=st.datetimes(pd.Timestamp("1990-01-01"), pd.Timestamp("2030-01-01")),
    gaps=st.lists(
        st.sampled_from([1, 5, 5, 30, 60, 60, 95, 720, 1440, 1440, 4320, 10080]), min_size=2
    ),
    repeats=st.integers(1, 30),
    count=st.integers(1, 40),
    zone=st.sampled_from(ZONES),
)
def test_any_history_has_a_future_that_ascends_from_its_last_bar(start, gaps, repeats, count, zone):
    elapsed = pd.to_timedelta(pd.Series(gaps * repeats).cumsum(), unit="min")
    instants = pd.DatetimeIndex(pd.Timestamp(start).floor("min") + elapsed)
    history = instants if zone is None else instants.tz_localize("UTC").tz_convert(zone)
    future = future_timestamps(history, count)
    assert len(future) == count
    assert future[0] > history[-1]
    assert future.is_monotonic_increasing
    assert future.is_unique
    assert str(future.tz) == str(history.tz)


@pytest.mark.parametrize("count", [0, -1])
def test_no_bars_to_come_are_refused(count):
    with pytest.raises(ConfigError, match=f"at least 1, got {count}"):
        future_timestamps(pd.date_range("2024", periods=5), count)


@pytest.mark.parametrize("known", [0, 1])
def test_a_spacing_takes_two_bars(known):
    with pytest.raises(DataError, match=rf"{known} bar\(s\)"):
        future_timestamps(pd.date_range("2024", periods=5)[:known], 1)

"""Bars to come keep the nights, lunch breaks, weekends and clock of a history.

D4: weekends and lunch breaks are told from the history, or from a calendar.
"""

from datetime import date, datetime

import numpy as np
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
HONG_KONG = (("09:30", "11:55"), ("13:00", "15:55"))


def _goes_on(bars, first, last, count):
    """The bars from `first` to `last` have the `count` next ones as their future."""
    known = bars.get_loc(pd.Timestamp(last)) + 1
    history = bars[bars.get_loc(pd.Timestamp(first)) : known]
    expected = bars[known : known + count]
    assert len(expected) == count
    return list(future_timestamps(history, count)) == list(expected)


@pytest.mark.parametrize("last", ["2024-06-18 10:20", "2024-06-19 11:30", "2024-06-21 15:00"])
def test_D4_400_five_minute_bars_of_Shanghai_know_its_lunch_break_nights_and_weekends(last):
    bars = _session_bars("2024-06-03", 40, *SHANGHAI)
    known = bars.get_loc(pd.Timestamp(last)) + 1
    history = bars[known - 400 : known]  # 8.3 trading days
    assert future_timestamps(history, 15 * 48).equals(bars[known : known + 15 * 48])


@pytest.mark.parametrize("last", ["2024-06-18 09:35", "2024-06-18 11:30", "2024-06-18 13:05"])
def test_D4_a_day_and_a_half_know_the_night_and_the_lunch_break(last):
    bars = _session_bars("2024-06-03", 20, *SHANGHAI)
    assert _goes_on(bars, "2024-06-17 09:35", last, 240)


def test_D4_hours_that_a_history_does_not_reach_count_as_open():
    bars = _session_bars("2024-06-03", 20, *SHANGHAI)
    morning = future_timestamps(bars[3 * 48 :][:40], 200)  # Thursday 09:35 to 14:20
    night = pd.date_range("2024-06-06 14:25", "2024-06-07 09:30", freq="5min")
    day = bars[4 * 48 :][:39]
    assert list(morning) == [*night, *day][:200]
    two_days = future_timestamps(bars[4 * 48 - 9 : 4 * 48 + 20], 200)  # from 14:20 to 11:10
    noon = pd.date_range("2024-06-07 11:15", "2024-06-07 14:15", freq="5min")
    monday = pd.date_range("2024-06-10 09:35", "2024-06-10 15:00", freq="5min")
    assert list(two_days)[: 37 + 9 + 66] == [*noon, *bars[5 * 48 - 9 : 5 * 48], *monday]


def test_D4_four_days_of_an_exchange_skip_a_weekend_they_have_not_seen():
    bars = _session_bars("2024-06-03", 20, *SHANGHAI)
    assert _goes_on(bars, "2024-06-03 09:35", "2024-06-06 15:00", 5 * 48)
    hourly = _session_bars("2024-06-03", 20, ("10:30", "15:30"), freq="h")
    assert _goes_on(hourly, "2024-06-04 10:30", "2024-06-06 15:30", 60)
    assert _goes_on(hourly, "2024-06-06 14:30", "2024-06-07 11:30", 60)  # two bars are to be met
    minutes = pd.date_range("2024-06-03", periods=288 * 4, freq="5min")
    pause = minutes[minutes.hour != 17]  # of a future's day, an hour
    assert pd.Timestamp("2024-06-08 10:00") not in future_timestamps(pause[: 264 * 3], 264 * 4)


def test_D4_a_holiday_does_not_close_its_weekday():
    bars = _session_bars("2024-06-24", 25, *HONG_KONG)
    bars = bars[bars.normalize() != pd.Timestamp("2024-07-01")]  # a Monday
    assert _goes_on(bars, "2024-06-27 09:30", "2024-07-03 11:55", 10 * 66)
    days = pd.bdate_range("2024-06-25", "2024-07-31").drop(pd.Timestamp("2024-07-01"))
    assert future_timestamps(days[:5], 20).equals(days[5:25])


def test_D4_two_absences_close_a_weekday():
    week = pd.offsets.CustomBusinessDay(weekmask="Sun Mon Tue Wed Thu")
    days = pd.date_range("2024-06-02", periods=40, freq=week)
    assert future_timestamps(days[:15], 20).equals(days[15:35])
    fridays = future_timestamps(days[:10], 7)  # one absence each: Saturday is closed, Friday not
    assert [day.day_name() for day in fridays[:3]] == ["Friday", "Sunday", "Monday"]


@pytest.mark.parametrize("first", ["2024-06-06 20:00", "2024-06-09 20:00"])  # Thursday, Sunday
@pytest.mark.parametrize("known", [10, 5 * 24, 5 * 24 + 7])
@pytest.mark.parametrize("lacking", [[], [30], [30, 31]])
def test_D4_a_market_round_the_clock_goes_on_all_night_and_all_weekend(first, known, lacking):
    hours = pd.date_range(first, periods=24 * 30, freq="h")
    history = hours[:known].delete(lacking if known > 24 else [])
    assert future_timestamps(history, 24 * 10).equals(hours[known : known + 24 * 10])


def test_D4_a_few_bars_that_lack_do_not_close_the_weekend():
    minutes = pd.date_range("2024-06-07 10:00", periods=24 * 60 * 5, freq="5min")  # a Friday
    future = future_timestamps(minutes[:100].delete([40, 41]), 288 * 3)
    assert {stamp.day_of_week for stamp in future} == {4, 5, 6, 0}
    assert pd.Timestamp("2024-06-08 13:20") not in future
    assert pd.Timestamp("2024-06-08 13:15") in future


FOREX = pd.date_range("2024-06-02", "2024-08-01", freq="h")  # from Sunday 22:00 to Friday 21:00
FOREX = FOREX[(FOREX - pd.Timestamp("2024-06-02 22:00")) % pd.Timedelta("7D") < pd.Timedelta("5D")]


@pytest.mark.parametrize("last", ["2024-06-24 13:00", "2024-06-28 21:00", "2024-06-30 22:00"])
def test_D4_Forex_closes_from_Friday_to_Sunday_evening(last):
    assert _goes_on(FOREX, "2024-06-07 03:00", last, 300)


def test_D4_a_market_of_five_whole_days_closes_at_weekends():
    hours = pd.date_range("2024-06-03", "2024-08-01", freq="h")
    assert _goes_on(hours[hours.day_of_week < 5], "2024-06-03 00:00", "2024-06-21 16:00", 300)


@pytest.mark.parametrize("last", ["2024-06-20 14:00", "2024-06-21 23:00", "2024-06-22 01:30"])
def test_D4_a_night_session_ends_on_Saturday_and_does_not_begin_on_Monday(last):
    nights = _session_bars("2024-06-03", 30, ("18:00", "23:30"), freq="30min")
    nights += pd.Timedelta(hours=3)
    days = _session_bars("2024-06-03", 30, ("09:00", "14:30"), freq="30min")
    bars = nights.union(days)
    assert _goes_on(bars, "2024-06-04 09:00", last, 300)
    known = bars.get_loc(pd.Timestamp("2024-06-11 14:30")) + 1
    future = future_timestamps(bars[known - 80 : known], 85)  # one Saturday was enough
    assert list(future[:84]) == list(bars[known : known + 84])  # the last is Saturday 02:30
    assert future[84].day_name() == "Monday"


def test_D4_a_special_Saturday_opens_no_other():
    bars = _session_bars("2024-06-03", 40, *SHANGHAI)
    saturday = bars[:48] + pd.Timedelta(days=19)  # 2024-06-22
    known = 25 * 48
    history = bars[:known].union(saturday)
    assert future_timestamps(history, 480).equals(bars[known : known + 480])
    days = bars.normalize().unique()
    history = days[:25].union(saturday[:1].normalize())
    assert future_timestamps(history, 15).equals(days[25:])


def test_D4_a_weekend_that_was_seen_open_stays_open():
    week = pd.offsets.CustomBusinessDay(weekmask="Mon Tue Wed Thu Fri Sat")
    days = pd.date_range("2024-06-03", periods=40, freq=week)
    bars = pd.DatetimeIndex([day + pd.Timedelta(hours=hour) for day in days for hour in (9, 10)])
    assert future_timestamps(bars[8:14], 2)[0] == pd.Timestamp("2024-06-11 09:00")
    assert future_timestamps(bars[8:22], 40).equals(bars[22:62])  # Friday to Friday


def test_D4_ten_daily_bars_know_the_weekend():
    days = pd.bdate_range("2024-06-03", periods=40)
    for known in (6, 10, 13):
        assert future_timestamps(days[:known], 20).equals(days[known : known + 20])
    closes = days + pd.Timedelta(hours=15)
    history = closes[:13].union(days[10:11])  # one of them has a second bar
    assert future_timestamps(history, 20).equals(closes[13:33])


@pytest.mark.parametrize("freq", ["7h", "95min"])
def test_bars_without_fixed_times_of_day_keep_their_spacing(freq):
    bars = pd.date_range("2024-06-03 01:00", periods=200, freq=freq)
    assert future_timestamps(bars[:80].delete([20, 50]), 40).equals(bars[80:120])


def test_sessions_may_restart_the_spacing():
    hourly = pd.DatetimeIndex(
        [
            day + pd.Timedelta(time)
            for day in pd.bdate_range("2024-06-03", periods=20)
            for time in ("10:30:00", "11:30:00", "14:00:00", "15:00:00")
        ]
    )
    assert _goes_on(hourly, "2024-06-04 11:30", "2024-06-05 15:00", 40)
    bars = _session_bars("2024-06-03", 20, ("09:30", "15:59"), freq="65min")
    assert _goes_on(bars, "2024-06-04 10:35", "2024-06-06 14:55", 40)
    halves = _session_bars("2024-06-03", 20, ("11:30", "15:00"), freq="210min")
    assert _goes_on(halves, "2024-06-04 15:00", "2024-06-06 15:00", 10)
    assert _goes_on(halves, "2024-06-04 15:00", "2024-06-06 11:30", 3)  # 20:30 hours are commonest


DAYS = pd.bdate_range("2024-06-03", "2024-12-31").drop(pd.Timestamp("2024-06-10"))
HOLIDAY = {"holidays": ["2024-06-10"]}
CALENDARS = {
    "custom": pd.offsets.CustomBusinessDay(**HOLIDAY),
    "numpy": np.busdaycalendar(**HOLIDAY),
    "index": DAYS.as_unit("ns"),
    "zone": DAYS.tz_localize("Asia/Shanghai"),
    "series": pd.Series(DAYS),
    "array": DAYS.to_numpy().astype("M8[D]"),
    "dates": [day.date() for day in DAYS],
    "texts": [f"{day:%Y-%m-%d}" for day in DAYS][::-1],
    "closes": [datetime(day.year, day.month, day.day, 15) for day in DAYS for _ in range(2)],
    "sets": {day.date() for day in DAYS},
}


@pytest.mark.parametrize("calendar", CALENDARS.values(), ids=CALENDARS)
def test_D4_a_calendar_knows_the_holidays(calendar):
    bars = _session_bars("2024-06-03", 60, *SHANGHAI)
    bars = bars[bars.normalize() != pd.Timestamp("2024-06-10")]
    for known in (3 * 48 + 5, 4 * 48 + 24, 5 * 48):
        future = future_timestamps(bars[:known], 480, calendar=calendar)
        assert future.equals(bars[known : known + 480])
        assert future.dtype == bars.dtype
    closes = DAYS.tz_localize("Asia/Shanghai") + pd.Timedelta(hours=15)
    assert future_timestamps(closes[:3], 20, calendar).equals(closes[3:23])


def test_D4_a_calendar_stands_in_place_of_the_weekdays_seen():
    days = pd.bdate_range("2024-06-03", periods=10)
    assert future_timestamps(days, 2, pd.offsets.BusinessDay())[0] == pd.Timestamp("2024-06-17")
    saturdays = np.busdaycalendar(weekmask="Sat")
    expected = pd.DatetimeIndex(["2024-06-15", "2024-06-22"])
    assert future_timestamps(days, 2, saturdays).equals(expected)
    hours = pd.date_range("2024-06-13 20:00", periods=10, freq="h")  # to Friday 05:00
    future = future_timestamps(hours, 25, pd.offsets.BusinessDay())
    assert future[17:19].equals(pd.DatetimeIndex(["2024-06-14 23:00", "2024-06-17 00:00"]))


def test_D4_a_calendar_that_ends_says_where():
    days = pd.bdate_range("2024-06-03", "2024-06-28")
    bars = _session_bars("2024-06-03", 10, *SHANGHAI)
    assert len(future_timestamps(bars[:450], 30 + 10 * 48, days)) == 510
    with pytest.raises(DataError, match="510 of 511 bars: its last day is 2024-06-28; give one"):
        future_timestamps(bars[:450], 511, days)
    with pytest.raises(DataError, match="0 of 1 bars: its last day is 2024-06-28"):
        future_timestamps(pd.bdate_range("2024-07-01", periods=3), 1, days)
    with pytest.raises(DataError, match="0 of 1 bars: it lists no day"):
        future_timestamps(bars, 1, [])


def test_D4_a_calendar_that_closes_for_good_is_refused():
    holidays = pd.date_range("2024-06-18", "2036-01-01").to_numpy().astype("M8[D]")
    closed = np.busdaycalendar(holidays=holidays)
    bars = _session_bars("2024-06-03", 10, *SHANGHAI)
    for calendar in (closed, pd.offsets.CustomBusinessDay(calendar=closed)):
        assert len(future_timestamps(bars, 48, calendar)) == 48
        with pytest.raises(DataError, match="48 of 49 bars: then it is closed for ten years"):
            future_timestamps(bars, 49, calendar)
    pause = np.busdaycalendar(holidays=holidays[holidays < np.datetime64("2034-05-31")])
    assert future_timestamps(bars, 49, pause)[-1] == pd.Timestamp("2034-05-31 09:35")


@pytest.mark.parametrize(
    ("calendar", "given"),
    [
        (5, "got 5"),
        ("XSHG", "got 'XSHG'"),
        (pd.offsets.Day(), "got <Day>"),
        ([date(2024, 6, 3), "today"], "row 2: 'today'"),
        ([20240603], "row 1: 20240603"),
        ([pd.NaT], r"row 1: no timestamp"),
    ],
)
def test_D4_what_is_no_calendar_is_refused(calendar, given):
    days = pd.bdate_range("2024-06-03", periods=10)
    with pytest.raises(ConfigError, match=f"calendar.*{given}.*BusinessDay.*busdaycalendar"):
        future_timestamps(days, 1, calendar)


@pytest.mark.parametrize("freq", ["W-FRI", "36h"])
def test_D4_a_calendar_serves_bars_of_a_day_or_less(freq):
    bars = pd.date_range("2024-01-05", periods=30, freq=freq)
    with pytest.raises(ConfigError, match=r"a day or less.* days .*apart; leave the calendar out"):
        future_timestamps(bars, 1, pd.offsets.BusinessDay())


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


@pytest.mark.parametrize("freq", ["1min", "h", "D", "90min", "95min", "7h"])
@pytest.mark.parametrize("known", [2, 3, 10])
def test_a_short_history_goes_on_at_its_spacing(freq, known):
    bars = pd.date_range("2024-03-01 09:30", periods=known + 30, freq=freq)
    assert future_timestamps(bars[:known], 30).equals(bars[known:])


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


@pytest.mark.parametrize("first", ["2024-03-01", "2024-03-30", "2024-10-01", "2024-10-26"])
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
    few = pd.date_range("2024-03-31", periods=60, freq="h", tz=BERLIN)
    assert future_timestamps(few[:5], 48).equals(few[5:53])  # 00:00 to 05:00, and on at 02:00


def test_a_history_that_ends_within_the_repeated_hour_goes_on_after_it():
    hours = pd.date_range("2024-10-06", periods=24 * 30, freq="h", tz=BERLIN)
    second = int(hours.get_loc(pd.Timestamp("2024-10-27 01:00", tz="UTC").tz_convert(BERLIN)))
    assert hours[second].hour == 2
    for known in (second, second + 1):
        assert future_timestamps(hours[:known], 24)[-1] > hours[known - 1]
    assert future_timestamps(hours[: second + 1], 24).equals(hours[second + 1 :][:24])
    both = hours[second - 1 : second + 1]  # 02:00 and 02:00
    assert future_timestamps(both, 2).equals(hours[second + 1 : second + 3])
    halves = pd.date_range("2024-10-27", periods=40, freq="30min", tz=BERLIN)
    assert future_timestamps(halves[:7], 9).equals(halves[8:17])  # 02:30 was before the last bar


ZONES = [None, "UTC", BERLIN, "America/New_York", "Asia/Shanghai", "Australia/Lord_Howe"]
ZONES.append("America/St_Johns")  # its clock went back over midnight until 2011


STARTS = st.datetimes(pd.Timestamp("1990-01-01"), pd.Timestamp("2030-01-01"))
UP_TO_A_DAY = [1, 5, 5, 30, 60, 60, 95, 720, 1440, 1440]  # minutes


def _history(start, gaps, zone):
    elapsed = pd.to_timedelta(pd.Series(gaps).cumsum(), unit="min")
    instants = pd.DatetimeIndex(pd.Timestamp(start).floor("min") + elapsed)
    return instants if zone is None else instants.tz_localize("UTC").tz_convert(zone)


def _assert_is_a_future(future, history, count):
    assert len(future) == count
    assert future[0] > history[-1]
    assert future.is_monotonic_increasing
    assert future.is_unique
    assert future.dtype == history.dtype


@given(
    start=STARTS,
    gaps=st.lists(st.sampled_from([*UP_TO_A_DAY, 4320, 10080]), min_size=2),
    repeats=st.integers(1, 30),
    count=st.integers(1, 40),
    zone=st.sampled_from(ZONES),
)
def test_any_history_has_a_future_that_ascends_from_its_last_bar(start, gaps, repeats, count, zone):
    history = _history(start, gaps * repeats, zone)
    _assert_is_a_future(future_timestamps(history, count), history, count)


OPEN_DAYS = pd.bdate_range("1990-01-01", "2040-01-01")[::3]


@given(
    start=STARTS,
    gaps=st.lists(st.sampled_from(UP_TO_A_DAY), min_size=2),
    repeats=st.integers(1, 30),
    count=st.integers(1, 40),
    zone=st.sampled_from(ZONES),
    calendar=st.sampled_from(
        [OPEN_DAYS, pd.offsets.BusinessDay(), np.busdaycalendar(weekmask="Sun")]
    ),
)
def test_D4_any_history_has_a_future_on_the_days_of_a_calendar(
    start, gaps, repeats, count, zone, calendar
):
    history = _history(start, gaps * repeats, zone)
    future = future_timestamps(history, count, calendar)
    _assert_is_a_future(future, history, count)
    if calendar is OPEN_DAYS:
        assert future.tz_localize(None).normalize().isin(OPEN_DAYS).all()
    else:
        is_sunday = isinstance(calendar, np.busdaycalendar)
        assert set(future.day_of_week) <= ({6} if is_sunday else set(range(5)))


@pytest.mark.parametrize("count", [0, -1])
def test_no_bars_to_come_are_refused(count):
    with pytest.raises(ConfigError, match=f"at least 1, got {count}"):
        future_timestamps(pd.date_range("2024", periods=5), count)


@pytest.mark.parametrize("known", [0, 1])
def test_a_spacing_takes_two_bars(known):
    with pytest.raises(DataError, match=rf"{known} bar\(s\)"):
        future_timestamps(pd.date_range("2024", periods=5)[:known], 1)


@pytest.mark.parametrize("third", ["2024-06-04", "2024-06-03", "2024-05-31"])
def test_a_history_ascends(third):
    days = pd.DatetimeIndex(["2024-06-03", "2024-06-04", third, "2024-06-06", "2024-06-05"])
    with pytest.raises(DataError, match=f"history, row 3: {third} .* not come after 2024-06-04"):
        future_timestamps(days, 1)


def test_a_history_has_no_gaps_without_a_time():
    with pytest.raises(DataError, match="history, row 2: no timestamp"):
        future_timestamps(pd.DatetimeIndex(["2024-06-03", None, "2024-06-05"]), 1)

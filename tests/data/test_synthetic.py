"""A made-up market is of bars that pass every rule, and behaves as markets do (Cont 2001)."""

import hashlib
from itertools import groupby, pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kronos.data import synthetic
from kronos.data.bars import validate_bars
from kronos.data.market import Market
from kronos.data.sessions import future_timestamps
from kronos.data.synthetic import markov_states, synthetic_bars, synthetic_market
from kronos.errors import ConfigError

ARRAYS = ("offsets", "times", "features", "stamps")
SPACINGS = ["1s", "1min", "5min", "7min", "1h", "2h", "1D"]


@settings(max_examples=30)
@given(
    bars=st.lists(st.integers(1, 120), min_size=1, max_size=4),
    seed=st.integers(0, 2**70),
    spacing=st.sampled_from(SPACINGS),
    tick=st.sampled_from([None, 1e-9, 0.01, 0.05, 0.3, 5, 1000]),
)
def test_every_market_is_what_its_own_frames_would_make(bars, seed, spacing, tick):
    market = synthetic_market(len(bars), bars, seed=seed, spacing=spacing, tick=tick)
    again = Market.from_frames({name: market.frame(name) for name in market.symbols})  # validates
    assert np.diff(market.offsets).tolist() == bars
    assert (market.symbols, market.zone) == (again.symbols, None)
    for name in ARRAYS:
        ours, theirs = getattr(market, name), getattr(again, name)
        assert ours.dtype == theirs.dtype
        assert np.array_equal(ours, theirs), name
        assert not ours.flags.writeable, name


@given(
    symbol=st.integers(0, 3),
    others=st.integers(0, 3),
    counts=st.tuples(st.integers(1, 60), st.integers(0, 60)),
    start=st.sampled_from(["2024-01-02", "1999-12-31"]),
)
@settings(max_examples=30)
def test_a_symbol_is_the_same_among_others_on_other_days_and_with_more_bars(
    symbol, others, counts, start
):
    fewer, more = counts[0], sum(counts)
    one = synthetic_market(symbol + 1, fewer, seed=9)
    many = synthetic_market(symbol + 1 + others, more, seed=9, start=start)
    name = one.symbols[symbol]
    ours, theirs = one.frame(name).to_numpy(), many.frame(name).to_numpy()
    assert np.array_equal(ours, theirs[:fewer])


def test_symbols_and_seeds_differ_and_one_symbol_is_the_first_of_many():
    market = synthetic_market(50, 3, seed=1)
    assert len(set(market.features[:, 0])) == 150
    assert not np.isin(market.features[:, 0], synthetic_market(50, 3, seed=2).features[:, 0]).any()
    pd.testing.assert_frame_equal(synthetic_bars(3, seed=1), market.frame("S00000"))


def test_the_bars_are_the_same_on_every_machine():
    features = synthetic_market(3, 1000, seed=7).features
    assert features[0].tolist() == FIRST_BAR
    assert hashlib.sha256(features.tobytes()).hexdigest() == DIGEST


@pytest.mark.parametrize(
    ("spacing", "morning", "afternoon"),
    [
        ("5min", ("09:30", "11:25"), ("13:00", "14:55")),
        ("1min", ("09:30", "11:29"), ("13:00", "14:59")),
        ("50min", ("09:30", "10:20"), ("13:00", "13:50")),
        ("2h", ("09:30", "09:30"), ("13:00", "13:00")),
    ],
)
def test_bars_fill_two_sessions_from_monday_to_friday(spacing, morning, afternoon):
    expected = [
        stamp
        for day in pd.bdate_range("2024-02-28", periods=12)  # a Wednesday
        for first, last in (morning, afternoon)
        for stamp in pd.date_range(f"{day.date()} {first}", f"{day.date()} {last}", freq=spacing)
    ]
    index = synthetic_bars(len(expected), spacing=spacing, start="2024-02-28").index
    assert list(index) == expected
    assert index.name == "timestamps"


@pytest.mark.parametrize("day", range(1, 8))
def test_daily_bars_have_the_weekdays_from_any_day_on(day):
    start = f"2024-01-0{day}"  # Monday to Sunday
    index = synthetic_bars(700, spacing="1D", start=start).index
    assert list(index) == list(pd.bdate_range(start, periods=700))


def test_what_follows_a_history_is_what_the_market_goes_on_with():
    index = pd.DatetimeIndex(synthetic_bars(1200).index)
    assert list(future_timestamps(index[:700], 500)) == list(index[700:])


@pytest.fixture(scope="module")
def daily():
    """Log returns (60, 1999) of 60 symbols."""
    closes = synthetic_market(60, 2000, seed=3, spacing="1D").features[:, 3].reshape(60, 2000)
    return np.diff(np.log(closes), axis=1)


@pytest.fixture(scope="module")
def five_minutes():
    """Bars (60, 100, 48, 6): symbols, days, bars of a day."""
    return synthetic_market(60, 4800, seed=3).features.reshape(60, 100, 48, 6)


def _autocorrelation(rows, lag):
    centred = rows - rows.mean(axis=1, keepdims=True)
    together = (centred[:, :-lag] * centred[:, lag:]).mean(axis=1)
    return float((together / (centred**2).mean(axis=1)).mean())


def test_returns_have_heavy_tails(daily):
    scores = (daily - daily.mean(axis=1, keepdims=True)) / daily.std(axis=1, keepdims=True)
    kurtosis = (scores**4).mean(axis=1)  # 3 for a normal distribution, 0.1 its deviation here
    assert kurtosis.min() > 4
    assert np.median(kurtosis) > 6


def test_returns_have_no_memory_and_their_size_has_a_long_one(daily):
    shuffled = np.random.default_rng(0).permuted(np.abs(daily), axis=1)
    for lag in (1, 2, 5, 20):
        assert abs(_autocorrelation(daily, lag)) < 0.02, lag  # 0.003 is one deviation of the mean
        assert abs(_autocorrelation(shuffled, lag)) < 0.02, lag
        assert _autocorrelation(np.abs(daily), lag) > 0.1, lag


def test_a_year_moves_as_those_of_stocks_do(daily):
    yearly = daily.std(axis=1) * np.sqrt(250)
    assert 0.12 < yearly.min() < yearly.max() < 0.6


def test_volume_and_volatility_are_high_at_both_ends_of_the_day(five_minutes):
    body = np.abs(np.log(five_minutes[..., 3] / five_minutes[..., 0])).mean(axis=(0, 1))  # 48
    volume = (five_minutes[..., 4] / five_minutes[..., 4].mean(axis=(1, 2), keepdims=True)).mean(
        axis=(0, 1)
    )
    for by_time in (body, volume):
        first, middle, last = by_time[:6].mean(), by_time[18:30].mean(), by_time[-6:].mean()
        assert min(first, last) > 1.5 * middle
        assert first == pytest.approx(last, rel=0.1)


def test_volume_goes_with_the_size_of_moves(daily):
    volumes = synthetic_market(60, 2000, seed=3, spacing="1D").features[:, 4].reshape(60, 2000)
    together = [
        np.corrcoef(np.abs(moves), volume[1:])[0, 1]
        for moves, volume in zip(daily, volumes, strict=True)
    ]
    assert 0.3 < np.min(together) < np.max(together) < 0.9


def test_the_night_gaps_more_than_noon_and_noon_more_than_any_other_time(five_minutes):
    flat = five_minutes.reshape(60, -1, 6)
    gaps = np.abs(np.log(flat[:, 1:, 0] / flat[:, :-1, 3]))  # gap i is before bar i + 1
    time = (np.arange(gaps.shape[1]) + 1) % 48
    night, noon = gaps[:, time == 0].mean(), gaps[:, time == 24].mean()
    other = gaps[:, (time != 0) & (time != 24)].mean()
    assert night > 1.5 * noon > 6 * other > 0


def _one_by_one(draws, state):
    calm, turbulent = synthetic.NormalDist().inv_cdf(1 / 400), synthetic.NormalDist().inv_cdf(0.01)
    for draw in draws:
        if draw < (turbulent if state else calm):
            state = 1 - state
        yield state


@given(draws=st.lists(st.sampled_from([-3.0, -2.5, 0.0]), min_size=1), first=st.integers(0, 1))
def test_states_are_those_of_a_walk_through_the_chain(draws, first):
    assert markov_states(np.array(draws), first).tolist() == list(_one_by_one(draws, first))


def test_calm_lasts_400_bars_and_turbulence_100():
    draws = np.random.default_rng(5).standard_normal(2_000_000)
    states = markov_states(draws, 0)
    lengths = {0: [], 1: []}
    for state, run in groupby(states.tolist()):
        lengths[state].append(sum(1 for _ in run))
    assert np.mean(lengths[0]) == pytest.approx(400, rel=0.08)  # 4000 of each: 1.6 % a deviation
    assert np.mean(lengths[1]) == pytest.approx(100, rel=0.08)


def test_symbols_begin_in_either_state():
    first = synthetic_market(400, 40, seed=2, spacing="1D").features.reshape(400, 40, 6)
    spread = np.log(first[..., 3] / first[..., 0]).std(axis=1)
    assert 0.1 < (spread > 0.016).mean() < 0.35  # a fifth in the long run


@pytest.mark.parametrize("tick", [0.001, 0.01, 0.05, 0.25, 0.3, 1, 5])
def test_prices_stand_on_the_grid_and_above_nothing(tick):
    prices = synthetic_market(8, 200, tick=tick).features[:, :4]
    steps = prices / tick
    assert np.abs(steps - np.rint(steps)).max() < 1e-6
    assert prices.min() >= tick
    assert np.unique(np.rint(steps)).size > 5


def test_prices_on_the_grid_are_the_nearest_numbers_to_their_decimals():
    prices = synthetic_bars(500, tick=0.01).iloc[:, :4].to_numpy()
    assert all(price == float(f"{price:.2f}") for price in prices.ravel().tolist())
    assert np.abs(prices - synthetic_bars(500).iloc[:, :4].to_numpy()).max() < 0.00501


@pytest.mark.parametrize("tick", [None, 0.01])
@pytest.mark.parametrize("spacing", ["1s", "5min", "1D"])
def test_volumes_are_lots_and_amounts_are_paid_between_low_and_high(spacing, tick):
    bars = synthetic_bars(800, spacing=spacing, tick=tick)
    assert (bars["volume"] % 100 == 0).all()
    assert bars["volume"].min() >= 100
    paid = bars["amount"] / bars["volume"]
    mean = bars[["open", "high", "low", "close"]].mean(axis=1)
    assert (paid >= bars["low"] * (1 - 1e-15)).all()
    assert (paid <= bars["high"] * (1 + 1e-15)).all()
    assert np.abs(paid / mean - 1).max() < 0.02


def test_200_years_of_days_stay_bars():
    validate_bars(synthetic_bars(50_000, spacing="1D", start="1800-01-01", seed=4))


def test_no_bar_moves_more_than_a_fifth():
    features = synthetic_market(100, 2000, seed=6, spacing="1D").features
    assert np.abs(features[:, 3] / features[:, 0] - 1).max() == pytest.approx(0.2)


def test_numbers_of_bars_differ_where_they_are_given():
    market = synthetic_market(3, (5, 1, 3))
    assert [len(market.frame(name)) for name in market.symbols] == [5, 1, 3]
    assert all(np.diff(market.times[a:b]).min(initial=1) > 0 for a, b in pairwise(market.offsets))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"symbols": 0}, r"symbols must be at least 1, got 0"),
        ({"bars": 0}, r"at least 1 bar, got 0"),
        ({"bars": [3, -2]}, r"at least 1 bar, got -2"),
        ({"bars": [3, 4, 5]}, r"3 numbers for 2 symbols"),
        ({"seed": -1}, r"seed must be at least 0, got -1"),
        ({"spacing": "3h"}, r"spacing must be .* got '3h'"),
        ({"spacing": "0min"}, r"spacing must be .* got '0min'"),
        ({"spacing": "2D"}, r"spacing must be .* got '2D'"),
        ({"spacing": "often"}, r"spacing must be .* got 'often'; write 5min"),
        ({"spacing": "NaT"}, r"spacing must be .* got 'NaT'"),
        ({"start": "soon"}, r"start must be a date .* got 'soon'; write it like"),
        ({"start": "2024-02-30"}, r"start must be a date .* got '2024-02-30'"),
        ({"start": "2024-01-02 09:30"}, r"start must be a date .* got '2024-01-02 09:30'"),
        ({"start": "2300-01-01"}, r"start must be a date .* got '2300-01-01'"),
        ({"start": "2262-03-01"}, r"400 bars of 1 days .* from 2262-03-01 on reach beyond 2262"),
        ({"bars": 10**18}, r"1000000000000000000 bars .* reach beyond 2262-04-11; take fewer"),
        ({"tick": 0.0}, r"tick must be .* got 0$"),
        ({"tick": -0.01}, r"tick must be .* got -0.01"),
        ({"tick": float("nan")}, r"tick must be .* got nan"),
        ({"tick": float("inf")}, r"tick must be .* got inf"),
    ],
)
def test_settings_against_the_rules_are_named_with_their_value(setting, message):
    with pytest.raises(ConfigError, match=message):
        synthetic_market(**{"symbols": 2, "bars": 400, "spacing": "1D", **setting})


FIRST_BAR = [
    17.883541996660682,
    17.908967438805725,
    17.865817875966567,
    17.901500980299428,
    16700.0,
    298748.00787143805,
]
DIGEST = "077434578da5a92028b7cde8322e58cbb79cf9612497be4262a0e9b5716fcc3b"

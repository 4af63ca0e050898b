"""Each shock does to bars what its formula says, and more of it with more strength."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kronos.data.bars import validate_bars
from kronos.data.scenarios import SCENARIOS, apply_scenario
from kronos.data.synthetic import synthetic_bars

SPAN = slice(150, 225)  # of 300 bars, unless something else is asked for
PRICES = ["open", "high", "low", "close"]


def _flat(count, volume=0.0):
    index = pd.date_range("2024-01-02", periods=count, freq="D", name="timestamps")
    columns = dict.fromkeys(PRICES, 10.0) | {"volume": volume, "amount": volume * 10}
    return pd.DataFrame(columns, index=index)


def _log_return(bars, span=SPAN):
    """Of the span, from the close before."""
    return float(np.log(bars["close"].iloc[span.stop - 1] / bars["close"].iloc[span.start - 1]))


def _returns(bars, span=SPAN):
    closes = np.log(bars["close"].to_numpy())
    return np.diff(closes)[span.start - 1 : span.stop - 1]


def _gaps(bars, span=SPAN):
    before = bars["close"].to_numpy()[span.start - 1 : span.stop - 1]
    return np.log(bars["open"].to_numpy()[span] / before)


def _upper(bars):
    return np.log(bars["high"] / bars[["open", "close"]].max(axis=1)).to_numpy()


def _lower(bars):
    return np.log(bars[["open", "close"]].min(axis=1) / bars["low"]).to_numpy()


@pytest.mark.parametrize("spacing", ["5min", "1D"])
@pytest.mark.parametrize("strength", [0.3, 1, 2.5])
def test_high_volatility_multiplies_moves_and_volume_and_keeps_the_return(spacing, strength):
    bars = synthetic_bars(300, seed=11, spacing=spacing)
    shocked = apply_scenario(bars, "high_volatility", strength=strength)
    assert _log_return(shocked) == pytest.approx(_log_return(bars), abs=1e-12)
    factor = 1 + 2 * strength
    assert _returns(shocked).std() == pytest.approx(factor * _returns(bars).std())
    assert _gaps(shocked) == pytest.approx(factor * _gaps(bars), abs=1e-12)
    assert (shocked["volume"][SPAN] / bars["volume"][SPAN]).to_numpy() == pytest.approx(factor)
    for wick in (_upper, _lower):
        assert wick(shocked)[SPAN] == pytest.approx(factor * wick(bars)[SPAN], abs=1e-12)


def test_a_liquidity_drought_dries_volume_up_and_widens_ranges_and_gaps():
    bars = synthetic_bars(3000, seed=12)
    span = slice(0 + 100, 2100)
    shocked = apply_scenario(bars, "liquidity_drought", start=100, length=2000)
    inside, real = shocked[span], bars[span]
    idle = (inside["volume"] == 0).to_numpy()
    assert idle.mean() == pytest.approx(1 / 5, abs=0.03)
    assert (inside["volume"] / real["volume"])[~idle].to_numpy() == pytest.approx(1 / 5)
    assert (inside["high"] == inside["low"])[idle].all()
    assert (inside["close"] == shocked["close"].shift()[span])[idle].all()
    ranges = [np.log(frame["high"] / frame["low"])[~idle].mean() for frame in (inside, real)]
    assert 1.3 * ranges[1] < ranges[0] < 3 * ranges[1]
    assert np.abs(_gaps(shocked, span)).mean() > 1.5 * np.abs(_gaps(bars, span)).mean()


def test_a_liquidity_drought_trades_on_both_sides_of_the_real_path_and_ends_on_it():
    bars = synthetic_bars(300, seed=13)
    shocked = apply_scenario(bars, "liquidity_drought", strength=2)
    inside, real = shocked[SPAN], bars[SPAN]
    traded = (inside["volume"] > 0).to_numpy()
    half = np.log(real["high"] / real["low"]).mean()
    aside = np.log(inside["close"] / real["close"])[traded].to_numpy()
    assert np.abs(aside[:-1]) == pytest.approx(half, rel=1e-6)
    assert {*np.sign(aside[:-1])} == {-1, 1}
    opens = np.log(inside["open"] / real["open"])[traded].to_numpy()
    assert np.abs(opens) == pytest.approx(half, rel=1e-6)
    pd.testing.assert_frame_equal(shocked[225:], bars[225:], rtol=1e-12)


@pytest.mark.parametrize("spacing", ["5min", "1D"])
@pytest.mark.parametrize("strength", [0.5, 1, 2])
def test_a_black_swan_falls_by_its_formula_and_regains_a_third(spacing, strength):
    bars = synthetic_bars(300, seed=14, spacing=spacing)
    shocked = apply_scenario(bars, "black_swan", strength=strength)
    fall = strength * (0.1 + 6 * _returns(bars).std())
    gap, crash = slice(150, 151), slice(150, 158)
    assert _gaps(shocked, gap) == pytest.approx(_gaps(bars, gap) - 0.4 * fall)
    assert _log_return(shocked, crash) == pytest.approx(_log_return(bars, crash) - fall)
    assert _log_return(shocked) == pytest.approx(_log_return(bars) - fall * 2 / 3)
    volume = (shocked["volume"] / bars["volume"])[SPAN].to_numpy()
    assert volume == pytest.approx(1 + 9 * strength * np.exp(-np.arange(75) / 18.75))


def test_a_black_swan_shakes_prices_ever_less():
    bars = synthetic_bars(4000, seed=15)
    shocked = apply_scenario(bars, "black_swan", start=1000, length=2000)
    parts = [slice(start, start + 450) for start in (1200, 1650, 2100, 2550)]
    spread = [_returns(shocked, part).std() / _returns(bars, part).std() for part in parts]
    assert spread[0] > 1.5 * spread[1] > 1.5
    assert spread == sorted(spread, reverse=True)
    fall = 0.1 + 6 * _returns(bars, slice(1000, 3000)).std()
    fading = np.exp(-np.arange(1800) / 500).mean()
    for wick in (_upper, _lower):
        longer = (wick(shocked) - wick(bars))[1200:3000]
        assert longer.mean() == pytest.approx(0.05 * fall * fading, rel=0.2)


@pytest.mark.parametrize("strength", [0.5, 1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_reversed_trend_has_the_return_of_its_formula(strength, seed):
    bars = synthetic_bars(300, seed=seed)
    shocked = apply_scenario(bars, "trend_reversal", strength=strength)
    total = _log_return(bars)
    assert _log_return(shocked) == pytest.approx((1 - 2 * strength) * total)
    added = _returns(shocked) - _returns(bars)
    assert added == pytest.approx(-2 * strength * total / 75)
    pd.testing.assert_series_equal(shocked["volume"], bars["volume"])


def _depth(bars):
    """Of the span's lowest close, below the close before."""
    return float(1 - bars["close"][SPAN].min() / bars["close"].iloc[SPAN.start - 1])


EFFECTS = [
    ("high_volatility", lambda shocked, bars: _returns(shocked).std()),
    ("high_volatility", lambda shocked, bars: shocked["volume"].sum()),
    ("liquidity_drought", lambda shocked, bars: -shocked["volume"].sum()),
    ("liquidity_drought", lambda shocked, bars: (shocked["volume"] == 0).sum()),
    ("liquidity_drought", lambda shocked, bars: np.abs(_gaps(shocked)).mean()),
    ("black_swan", lambda shocked, bars: _depth(shocked)),
    ("black_swan", lambda shocked, bars: shocked["volume"].sum()),
    ("black_swan", lambda shocked, bars: _returns(shocked).std()),
    ("trend_reversal", lambda shocked, bars: abs(_log_return(shocked) - _log_return(bars))),
    ("halted_trading", lambda shocked, bars: (shocked["volume"] == 0).sum()),
]


def test_every_scenario_has_an_effect_that_is_measured():
    assert {name for name, _ in EFFECTS} == {*SCENARIOS}


@pytest.mark.parametrize(("name", "effect"), EFFECTS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spacing", ["5min", "1D"])
def test_what_a_shock_does_grows_with_its_strength(name, effect, seed, spacing):
    bars = synthetic_bars(300, seed=seed, spacing=spacing)
    sizes = [
        effect(apply_scenario(bars, name, strength=strength, seed=seed), bars)
        for strength in (0, 0.25, 0.5, 1, 2)
    ]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == len(sizes)


@pytest.mark.parametrize("volume", [0.0, 500.0])
@pytest.mark.parametrize("name", SCENARIOS)
def test_flat_bars_stay_so_unless_a_black_swan_comes(name, volume):
    bars = _flat(80, volume)
    shocked = apply_scenario(bars, name, strength=3)
    pd.testing.assert_frame_equal(validate_bars(shocked), shocked)
    moved = (shocked[PRICES] != 10).to_numpy().any()
    assert moved == (name == "black_swan")
    assert (shocked["volume"].sum() == 0) == (volume == 0)
    if name == "black_swan":
        assert _returns(shocked, slice(45, 60)).std() > 0.005


@settings(max_examples=30)
@given(st.lists(st.floats(1, 10), min_size=2, max_size=20), st.floats(0.1, 3))
@pytest.mark.parametrize("name", ["high_volatility", "trend_reversal", "liquidity_drought"])
def test_bars_of_one_price_keep_one_price(name, prices, strength):
    bars = _flat(len(prices), 5.0)
    bars[PRICES] = np.array([prices] * 4).T
    shocked = apply_scenario(bars, name, strength=strength, start=1, length=len(prices) - 1)
    assert (shocked["high"] == shocked["low"]).all()

"""Shocked bars are bars, the same ones outside the shock, and shocked as the formulas say."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kronos.data.bars import validate_bars
from kronos.data.scenarios import SCENARIOS, apply_scenario
from kronos.data.synthetic import synthetic_bars
from kronos.errors import ConfigError, DataError

NAMES = list(SCENARIOS)
OF_CHANCE = ["liquidity_drought", "black_swan"]
COLUMNS = ["open", "high", "low", "close", "volume", "amount"]
names = st.sampled_from(NAMES)
seeds = st.integers(0, 2**40)


@st.composite
def series(draw, most=20):
    """Any bars, jumping from price to price, some flat and some without volume."""
    price = st.floats(1, 1000)
    bar = st.tuples(
        st.lists(price, min_size=4, max_size=4).map(sorted),
        st.booleans(),
        st.sampled_from(["range", "range", "flat"]),
        st.one_of(st.just(0.0), st.floats(0, 1e9)),
        st.one_of(st.just(0.0), st.floats(0, 1e12)),
    )
    rows = []
    for (low, one, two, high), rises, kind, volume, amount in draw(
        st.lists(bar, min_size=1, max_size=most)
    ):
        prices = (one, high, low, two) if rises else (two, high, low, one)
        rows.append((*(prices if kind == "range" else (one,) * 4), volume, amount))
    index = pd.date_range("2024-01-02", periods=len(rows), freq="5min", name="timestamps")
    return validate_bars(pd.DataFrame(rows, index=index, columns=COLUMNS))


@st.composite
def spans(draw, bars):
    start = draw(st.integers(0, len(bars) - 1))
    return start, draw(st.integers(1, len(bars) - start))


@given(st.data(), series(), names, st.floats(0, 4), seeds)
def test_whatever_is_shocked_gives_bars_and_leaves_those_before(data, bars, name, strength, seed):
    start, length = data.draw(spans(bars))
    given_bars = bars.copy()
    shocked = apply_scenario(bars, name, strength=strength, seed=seed, start=start, length=length)
    pd.testing.assert_frame_equal(bars, given_bars, check_exact=True)
    pd.testing.assert_frame_equal(validate_bars(shocked), shocked, check_exact=True)
    assert shocked.index.equals(bars.index)
    pd.testing.assert_frame_equal(shocked[:start], bars[:start], check_exact=True)
    again = apply_scenario(bars, name, strength=strength, seed=seed, start=start, length=length)
    pd.testing.assert_frame_equal(again, shocked, check_exact=True)
    assert not np.shares_memory(shocked.to_numpy(), bars.to_numpy())


@settings(max_examples=60)
@given(series(), names, seeds)
def test_strength_0_gives_the_very_bars(bars, name, seed):
    shocked = apply_scenario(bars, name, strength=0, seed=seed)
    pd.testing.assert_frame_equal(shocked, bars, check_exact=True)
    shocked.iloc[0, 0] = -1.0
    assert bars.iloc[0, 0] > 0


@settings(max_examples=60)
@given(st.data(), series(), st.sampled_from(NAMES[:4]), st.floats(0.01, 4), seeds)
def test_behind_the_shock_all_goes_on_from_its_level(data, bars, name, strength, seed):
    start, length = data.draw(spans(bars))
    shocked = apply_scenario(bars, name, strength=strength, seed=seed, start=start, length=length)
    end = start + length
    level = shocked["close"].iloc[end - 1] / bars["close"].iloc[end - 1]
    behind = bars.iloc[end:] * ([level] * 4 + [1, level])
    pd.testing.assert_frame_equal(shocked.iloc[end:], behind, rtol=1e-12)


@settings(max_examples=60)
@given(st.data(), series(), st.floats(0.01, 4))
def test_a_halt_is_flat_and_empty_and_then_the_real_path_goes_on(data, bars, strength):
    start, length = data.draw(spans(bars))
    shocked = apply_scenario(bars, "halted_trading", strength=strength, start=start, length=length)
    end = start + int(np.ceil(strength * length))
    price = bars["close"].iloc[start - 1] if start else bars["open"].iloc[0]
    assert (shocked.iloc[start:end, :4] == price).all(axis=None)
    assert (shocked.iloc[start:end, 4:] == 0).all(axis=None)
    assert end > start
    pd.testing.assert_frame_equal(shocked.iloc[end:], bars.iloc[end:], check_exact=True)


@settings(max_examples=60)
@given(st.data(), series(), names, st.floats(0.01, 4), seeds)
def test_what_a_share_cost_beside_the_mean_price_stays(data, bars, name, strength, seed):
    start, length = data.draw(spans(bars))
    shocked = apply_scenario(bars, name, strength=strength, seed=seed, start=start, length=length)
    traded = (shocked["volume"] > 1e-200) & (bars["amount"] > 1e-200)
    beside = [
        frame["amount"] / (frame["volume"] * frame.iloc[:, :4].mean(axis=1))
        for frame in (shocked[traded], bars[traded])
    ]
    pd.testing.assert_series_equal(*beside, rtol=1e-9)
    assert (shocked["volume"][bars["volume"] == 0] == 0).all()


@settings(max_examples=60)
@given(series(), names, st.floats(0, 1e308), seeds)
def test_any_strength_gives_bars_or_is_refused_with_its_number(bars, name, strength, seed):
    try:
        shocked = apply_scenario(bars, name, strength=strength, seed=seed)
    except ConfigError as error:
        refusal = str(error)
    else:
        validate_bars(shocked)
        return
    assert f"strength {strength:g} of {name}" in refusal


@pytest.mark.parametrize("name", [name for name in NAMES if name != "halted_trading"])
def test_a_strength_beyond_the_floats_is_refused(name):
    bars = synthetic_bars(60, spacing="1D")
    strength = 1e308 if name == "liquidity_drought" else 1e7
    with pytest.raises(
        ConfigError, match=rf"strength {strength:g} of {name} .* smaller one".replace("+", r"\+")
    ):
        apply_scenario(bars, name, strength=strength)


def test_a_halt_of_any_strength_lasts_to_the_last_bar_at_most():
    shocked = apply_scenario(synthetic_bars(60), "halted_trading", strength=1e308)
    assert (shocked["volume"] == 0).sum() == 30


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_series_of_a_few_bars_are_shocked_too(name, count):
    bars = synthetic_bars(count)
    shocked = apply_scenario(bars, name)
    pd.testing.assert_frame_equal(validate_bars(shocked), shocked)
    assert not shocked.equals(bars) or name == "high_volatility"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("span", "first", "count"),
    [
        ({}, 150, 75),
        ({"start": 10}, 10, 75),
        ({"start": 280}, 280, 20),
        ({"length": 40}, 150, 40),
        ({"length": 290}, 10, 290),
        ({"start": np.int64(7), "length": np.int64(3)}, 7, 3),
    ],
)
def test_a_shock_takes_the_middle_quarter_where_nothing_else_is_asked(name, span, first, count):
    bars = synthetic_bars(300)
    column = "close" if name == "trend_reversal" else "volume"
    shocked = apply_scenario(bars, name, **span)
    changed = np.flatnonzero(np.abs(shocked[column] / bars[column] - 1) > 1e-9)
    last = len(bars) - 1 if column == "close" else first + count - 1
    assert (changed[0], changed[-1]) == (first, last)


@pytest.mark.parametrize("name", NAMES)
def test_another_seed_is_another_shock_where_chance_plays_a_part(name):
    bars = synthetic_bars(300)
    one, two = (apply_scenario(bars, name, seed=seed) for seed in (0, 1))
    assert one.equals(two) == (name not in OF_CHANCE)


@pytest.mark.parametrize("name", NAMES)
def test_a_little_strength_does_little(name):
    bars = synthetic_bars(300, seed=16)
    shocked = apply_scenario(bars, name, strength=1e-9)
    still = shocked.index != bars.index[150] if name == "halted_trading" else slice(None)
    pd.testing.assert_frame_equal(shocked[still], bars[still], rtol=1e-6)


def test_bars_keep_their_zone():
    bars = synthetic_bars(40).tz_localize("Asia/Shanghai")
    assert apply_scenario(bars, "black_swan").index.equals(bars.index)


def test_every_scenario_says_in_a_line_what_it_does():
    for scenario in SCENARIOS.values():
        assert 10 < len(scenario.summary) < 90
        assert "\n" not in scenario.summary


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"name": "flood"}, "no scenario 'flood'; there are " + ", ".join(NAMES)),
        ({"strength": float("nan")}, r"strength must be .* got nan"),
        ({"strength": float("inf")}, r"strength must be .* got inf"),
        ({"strength": -0.5}, r"strength must be .* got -0\.5"),
        ({"seed": -3}, r"seed must be at least 0, got -3"),
        ({"start": -1}, r"start must be from 0 to 39, the last bar; got -1"),
        ({"start": 40}, r"start must be from 0 to 39, the last bar; got 40"),
        ({"length": 0}, r"length must be from 1 to 20, the bars from bar 20 on; got 0"),
        ({"length": 41}, r"length must be from 1 to 40, the bars from bar 0 on; got 41"),
        ({"start": 35, "length": 6}, r"length must be from 1 to 5, .* bar 35 on; got 6"),
    ],
)
def test_settings_against_the_rules_are_named_with_their_value(setting, message):
    with pytest.raises(ConfigError, match=message):
        apply_scenario(synthetic_bars(40), **{"name": "black_swan", **setting})


def test_bars_against_the_rules_are_refused_before_a_shock():
    bars = synthetic_bars(40)
    bars.iloc[3, 2] = 0.0
    with pytest.raises(DataError, match=r"low is zero or negative in 1 of 40 bars"):
        apply_scenario(bars, "black_swan", strength=0)

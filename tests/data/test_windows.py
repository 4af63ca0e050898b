"""Windows: the gather against a slow restatement, and what normalisation may look at."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markets import market_of

from kronos.data import Market, Windows, WindowStarts
from kronos.errors import ConfigError, DataError


def with_features(market, features):
    return Market(
        market.symbols, market.offsets, market.times, features, market.stamps, market.zone
    )


def flat_market(features):
    count = len(features)
    stamps = np.zeros((count, 5), np.uint8)
    return Market(("A",), np.array([0, count]), np.arange(count), features, stamps, None)


def slow_item(market, window, horizon, start, clip):
    """One sample restated bar by bar in Python floats."""
    length = window + horizon + 1
    out = np.empty((length, 6), dtype=np.float32)
    for column in range(6):
        values = [float(market.features[start + bar, column]) for bar in range(length)]
        mean = sum(values[:window]) / window
        variance = sum((value - mean) ** 2 for value in values[:window]) / window
        for bar, value in enumerate(values):
            score = (value - mean) / (variance**0.5 + 1e-5)
            out[bar, column] = min(max(score, -clip), clip)
    return out


def slow_starts(lengths, sample_length):
    """Every bar that a window may begin at, found bar by bar."""
    symbol_of = [symbol for symbol, length in enumerate(lengths) for _ in range(length)]
    return [
        start
        for start in range(len(symbol_of) - sample_length + 1)
        if len(set(symbol_of[start : start + sample_length])) == 1
    ]


@settings(max_examples=60)
@given(
    window=st.integers(1, 9),
    horizon=st.integers(1, 5),
    extras=st.lists(st.integers(-3, 12), min_size=1, max_size=4).filter(lambda x: max(x) >= 0),
    seed=st.integers(0, 5),
    clip=st.sampled_from([5.0, 0.7]),
    data=st.data(),
)
def test_gather_equals_one_item_at_a_time(window, horizon, extras, seed, clip, data):
    length = window + horizon + 1
    market = market_of(*(max(1, length + extra) for extra in extras), seed=seed)
    windows = Windows(market, window, horizon, clip=clip)
    assert len(windows) == sum(extra + 1 for extra in extras if extra >= 0)
    numbers = data.draw(st.lists(st.integers(0, len(windows) - 1), min_size=1, max_size=6))
    starts = windows.starts.at(numbers)
    batch = windows.batch(starts)
    assert batch.features.shape == (len(numbers), length, 6)
    assert batch.features.dtype == np.float32
    assert batch.stamps.dtype == np.int64
    assert batch.features.flags.c_contiguous
    assert batch.stamps.flags.c_contiguous
    for place, start in enumerate(starts.tolist()):
        expected = slow_item(market, window, horizon, start, clip)
        np.testing.assert_allclose(batch.features[place], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(batch.stamps[place], market.stamps[start : start + length])


@settings(max_examples=150)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(1, 5), st.integers(1, 4))
def test_T12_no_window_crosses_two_symbols(lengths, window, horizon):
    length = window + horizon + 1
    expected = slow_starts(lengths, length)
    market = market_of(*lengths)
    if not expected:
        with pytest.raises(DataError, match=rf"one sample takes {length} bars"):
            Windows(market, window, horizon)
        return
    windows = Windows(market, window, horizon)
    assert windows.starts.every().tolist() == expected
    assert windows.too_short == sum(one < length for one in lengths)
    assert windows.batch(windows.starts.every()).features.shape == (len(expected), length, 6)
    for start in set(range(-2, len(market) + 2)) - set(expected):
        with pytest.raises(IndexError, match=rf"no window of {length} bars begins at bar {start} "):
            windows.batch([start])


def test_T1_statistics_come_from_the_lookback_alone():
    market = market_of(40)
    changed = market.features.copy()
    changed[20:] *= 1.37
    before = Windows(market, 20, 5).batch([0]).features[0]
    after = Windows(with_features(market, changed), 20, 5).batch([0]).features[0]
    np.testing.assert_array_equal(before[:20], after[:20])
    assert not np.array_equal(before[20:], after[20:])
    assert before[:20].mean(axis=0) == pytest.approx(np.zeros(6), abs=1e-6)
    assert before[:20].std(axis=0) == pytest.approx(np.ones(6), abs=1e-4)


@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 11), st.integers(0, 5), st.data())
def test_T1_no_target_moves_a_sample_before_it(window, horizon, start, seed, data):
    """Whatever becomes of a bar behind the lookback, no other bar of the sample notices."""
    market = market_of(start + window + horizon + 1, seed=seed)
    bar = data.draw(st.integers(window, window + horizon))
    changed = market.features.copy()
    changed[start + bar] = 1e6
    before = Windows(market, window, horizon).batch([start]).features[0]
    after = Windows(with_features(market, changed), window, horizon).batch([start]).features[0]
    others = np.arange(window + horizon + 1) != bar
    np.testing.assert_array_equal(before[others], after[others])
    assert (after[bar] == 5.0).all()


def test_T1_the_bars_given_are_left_as_they_are():
    market = market_of(40)
    before = market.features.copy()
    Windows(market, 20, 5).batch([3])
    np.testing.assert_array_equal(market.features, before)


def test_T15_exactly_one_window_is_one_sample():
    windows = Windows(market_of(26), window=20, horizon=5)
    assert len(windows) == 1
    assert windows.batch([0]).features.shape == (1, 26, 6)


def test_T15_one_bar_less_names_both_numbers():
    with pytest.raises(DataError) as caught:
        Windows(market_of(25, 7), window=20, horizon=5)
    assert str(caught.value) == (
        "one sample takes 26 bars (window 20 + horizon 5 + 1), got 25; "
        "give more bars, or a smaller window or horizon"
    )


def test_P6_flat_bars_are_exactly_zero():
    flat = flat_market(np.full((406, 6), 50000.1))
    assert (Windows(flat, window=400, horizon=5).batch([0]).features == 0.0).all()


def test_a_move_after_a_flat_lookback_is_clipped_not_infinite():
    features = np.full((26, 6), 50000.1)
    features[20:, 3] += 1.0
    features[20:, 4] -= 1.0
    scaled = Windows(flat_market(features), 20, 5).batch([0])
    assert (scaled.features[0, 20:, 3] == 5.0).all()
    assert (scaled.features[0, 20:, 4] == -5.0).all()


def test_statistics_are_in_float64():
    """In float32 a cent's move on a price of 50,000 would be lost in its rounding."""
    features = np.full((26, 6), 50000.0)
    features[1::2] += 1e-3
    scaled = Windows(flat_market(features), 20, 5).batch([0]).features[0]
    expected = 0.0005 / (0.0005 + 1e-5)
    np.testing.assert_allclose(np.abs(scaled), expected, rtol=1e-6)


def test_no_windows_are_a_batch_of_none():
    batch = Windows(market_of(40), 20, 5).batch(np.empty(0, np.int64))
    assert batch.features.shape == (0, 26, 6)
    assert batch.stamps.shape == (0, 26, 5)


def test_dropped_features_and_stamps_are_zero_and_the_others_as_before():
    market = market_of(40)
    whole = Windows(market, 20, 5).batch([3])
    less = Windows(
        market, 20, 5, features=["close", "open"], time_features=["hour", "month"]
    ).batch([3])
    for place, name in enumerate(["open", "high", "low", "close", "volume", "amount"]):
        expected = whole.features[..., place] if name in ("open", "close") else 0.0
        np.testing.assert_array_equal(less.features[..., place], expected)
    for place, name in enumerate(["minute", "hour", "weekday", "day", "month"]):
        expected = whole.stamps[..., place] if name in ("hour", "month") else 0
        np.testing.assert_array_equal(less.stamps[..., place], expected)
    assert market.stamps.any(axis=0).all(), "the market's own stamps are left alone"


@pytest.mark.parametrize(
    ("window", "horizon", "options", "words"),
    [
        (0, 5, {}, "window must be at least 1, got 0"),
        (5, 0, {}, "horizon must be at least 1, got 0"),
        (5, 5, {"clip": 0.0}, "clip must be greater than 0, got 0.0"),
        (5, 5, {"clip": float("nan")}, "clip must be greater than 0, got nan"),
        (5, 5, {"features": ["close", "vol"]}, "features are some of open, high, low, close, volume, amount; got vol"),  # noqa: E501
        (5, 5, {"features": []}, "features must keep at least one, got none"),
        (5, 5, {"time_features": ["year"]}, "time_features are some of minute, hour, weekday, day, month; got year"),  # noqa: E501
    ],
)  # fmt: skip
def test_settings_out_of_range(window, horizon, options, words):
    with pytest.raises(ConfigError) as caught:
        Windows(market_of(40), window, horizon, **options)
    assert str(caught.value) == words


# ---- the bars that windows begin at

runs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=6).map(
    lambda pairs: [
        range(start, start + length)
        for start, length in zip(
            np.cumsum([gap for gap, _ in pairs]) + np.cumsum([0, *(n for _, n in pairs)])[:-1],
            [n for _, n in pairs],
            strict=True,
        )
    ]
)


@settings(max_examples=150)
@given(runs)
def test_starts_are_those_of_the_runs_in_order(runs):
    starts = WindowStarts(runs)
    listed = [int(start) for run in runs for start in run]
    assert len(starts) == len(listed)
    assert starts.every().tolist() == listed
    assert starts.at(list(reversed(range(len(listed))))).tolist() == listed[::-1]
    assert starts.numbers(starts.every()).tolist() == list(range(len(listed)))
    for number in (-1, len(listed)):
        with pytest.raises(IndexError, match=rf"window {number} is outside 0\.\."):
            starts.at([number])
    copy = pickle.loads(pickle.dumps(starts))
    assert copy.every().tolist() == listed


def test_spread_takes_the_ends_and_never_repeats():
    starts = WindowStarts([range(10, 15), range(20, 25)])
    assert starts.spread(3).tolist() == [10, 14, 24]
    assert starts.spread(100).tolist() == starts.every().tolist()
    assert starts.spread(1).tolist() == [10]


def test_the_key_is_of_bars_and_settings():
    market = market_of(40, 30)
    key = Windows(market, 20, 5).key()
    assert Windows(market_of(40, 30), 20, 5).key() == key
    assert Windows(market, 20, 5, time_features=["hour"]).key() == key, "no feature depends on it"
    features = market.features.copy()
    features[69, 5] += 1e-9
    others = [
        Windows(market_of(30, 40), 20, 5),
        Windows(market, 21, 5),
        Windows(market, 20, 6),
        Windows(market, 20, 5, clip=4.0),
        Windows(market, 20, 5, features=["close"]),
        Windows(with_features(market, features), 20, 5),
    ]
    assert len({key, *(other.key() for other in others)}) == 7

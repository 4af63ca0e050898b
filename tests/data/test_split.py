"""The split in time, as properties over all windows of all symbols."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markets import market_of

from kronos.data import Market, Windows, split_by_time
from kronos.errors import ConfigError

SPACING = 300 * 10**9  # of `market_of`'s bars


def listed_at(market, delays, zone=None):
    """The market with each symbol's bars so many bars later."""
    times = np.concatenate(
        [
            market.times[first:end] + delay * SPACING
            for first, end, delay in zip(
                market.offsets[:-1], market.offsets[1:], delays, strict=True
            )
        ]
    )
    return Market(market.symbols, market.offsets, times, market.features, market.stamps, zone)


@st.composite
def _markets(draw):
    """Windows of up to four symbols that begin and end at different times."""
    lengths = draw(st.lists(st.integers(1, 30), min_size=1, max_size=4))
    delays = draw(st.lists(st.integers(0, 12), min_size=len(lengths), max_size=len(lengths)))
    window, horizon = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    lengths[0] = max(lengths[0], window + horizon + 1)
    return Windows(listed_at(market_of(*lengths), delays), window, horizon)


def by_the_rule(windows, instant):
    """The starts to train and to validate on, judged window by window."""
    market, train, validation = windows.market, [], []
    symbol = market.symbol_of(np.arange(len(market)))
    every = windows.starts.every().tolist()
    for start in every:
        if market.times[start + windows.window] >= instant:
            validation.append(start)
    for start in every:
        bars = range(start, start + windows.sample_length)
        same = [other for other in validation if symbol[other] == symbol[start]]
        free = bars[-1] < same[0] if same else market.times[bars[-1]] < instant
        if free:
            train.append(start)
    return train, validation


@settings(max_examples=250)
@given(_markets(), st.integers(-2, 45))
def test_each_window_is_where_the_rule_puts_it(windows, at):
    boundary = pd.Timestamp(at * SPACING)
    train, validation = by_the_rule(windows, at * SPACING)
    if train and validation:
        split = split_by_time(windows, boundary=boundary)
        assert split.train.every().tolist() == train
        assert split.validation.every().tolist() == validation
        assert split.boundary == boundary
    else:
        side = "train" if not train else "validate"
        with pytest.raises(ConfigError, match=rf"no window to {side} on"):
            split_by_time(windows, boundary=boundary)


@settings(max_examples=150)
@given(_markets(), st.floats(0.05, 0.95))
def test_validation_sees_no_row_of_training(windows, share):
    try:
        split = split_by_time(windows, validation_share=share)
    except ConfigError:
        return
    length = windows.sample_length
    trained = {
        bar for start in split.train.every().tolist() for bar in range(start, start + length)
    }
    seen = {
        bar for start in split.validation.every().tolist() for bar in range(start, start + length)
    }
    assert not trained & seen
    times = windows.market.times
    targets = {start + windows.window for start in split.validation.every().tolist()}
    assert max(times[bar] for bar in trained) < min(times[bar] for bar in targets)


def test_the_embargo_is_window_plus_horizon():
    windows = Windows(market_of(100), 10, 3)
    split = split_by_time(windows, validation_share=0.29)
    assert split.train.every().tolist() == list(range(48))
    assert split.validation.every().tolist() == list(range(61, 87))
    assert 61 - 47 - 1 == 10 + 3
    assert split.boundary == pd.Timestamp(71 * SPACING)


@settings(max_examples=150)
@given(_markets(), st.floats(0.05, 0.95))
def test_the_share_is_that_of_all_bars(windows, share):
    """The latest time with at least the share of bars at or behind it."""
    times, asked = windows.market.times, round(len(windows.market) * share)
    try:
        boundary = split_by_time(windows, validation_share=share).boundary.value
    except ConfigError:
        return
    assert boundary in times
    assert (times >= boundary).sum() >= asked
    assert (times > boundary).sum() < asked


def test_T4_too_few_rows_name_the_numbers():
    windows = Windows(market_of(100), 10, 3)
    with pytest.raises(ConfigError) as caught:
        split_by_time(windows, boundary=pd.Timestamp(98 * SPACING))
    assert str(caught.value).startswith(
        "no window to validate on: one takes 14 bars (window 10 + horizon 3 + 1) of one symbol, "
        "and of 100 bars split at 1970-01-01 08:10:00 it may use at most 12; move the boundary"
    )


def test_a_market_in_a_zone_is_split_on_its_clock():
    market = listed_at(market_of(100), [0], zone="Asia/Shanghai")
    windows = Windows(market, 10, 3)
    split = split_by_time(windows, boundary="1970-01-01 13:55:00+08:00")
    assert split.validation.every()[0] == 71 - 10
    assert str(split.boundary) == "1970-01-01 13:55:00+08:00"
    assert split_by_time(windows, validation_share=0.29).boundary == split.boundary
    with pytest.raises(ConfigError, match=r"are in the zone Asia/Shanghai; got 1970-01-01 13:55"):
        split_by_time(windows, boundary="1970-01-01 13:55:00")
    with pytest.raises(ConfigError, match=r"have no time zone; got 1970-01-01 13:55:00\+08:00"):
        split_by_time(Windows(market_of(100), 10, 3), boundary="1970-01-01 13:55:00+08:00")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "give either validation_share or boundary"),
        ({"validation_share": 0.2, "boundary": "1970-01-01"}, "give either validation_share or"),
        ({"validation_share": 0.0}, "validation_share must be between 0 and 1, got 0.0"),
        ({"validation_share": 1.0}, "validation_share must be between 0 and 1, got 1.0"),
        ({"validation_share": 0.001}, "no window to validate on"),
        ({"boundary": "1960-01-01"}, "no window to train on"),
    ],
)
def test_split_settings_out_of_range(options, words):
    with pytest.raises(ConfigError) as caught:
        split_by_time(Windows(market_of(100), 10, 3), **options)
    assert words in str(caught.value)

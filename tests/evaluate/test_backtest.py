"""The backtest by hand, against empyrical, and that it never looks ahead."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kronos.errors import ConfigError, DataError
from kronos.evaluate import backtest, cumulative_return, max_drawdown, separate_periods, sharpe

RETURNS = st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=30)


def run(last, actual, forecast, starts=None, horizon=5, **options):
    starts = np.arange(len(last)) * horizon if starts is None else starts
    options = {"periods_per_year": 50.0, "cost_bps": 0.0, **options}
    return backtest(starts, last, actual, forecast, horizon=horizon, **options)


def test_long_if_the_forecast_is_above_the_last_close_else_flat():
    result = run([100.0, 110.0, 99.0], [110.0, 99.0, 108.9], [101.0, 109.0, 99.0])
    assert result.positions.tolist() == [1, 0, 0]
    assert result.returns == pytest.approx([0.1, 0, 0])
    assert result.equity == pytest.approx([1, 1.1, 1.1, 1.1])
    assert result.cumulative_return == pytest.approx(0.1)
    assert result.max_drawdown == 0.0
    assert result.trades == 2


def test_short_on_request():
    result = run([100.0, 110.0], [110.0, 99.0], [101.0, 109.0], allow_short=True)
    assert result.positions.tolist() == [1, -1]
    assert result.returns == pytest.approx([0.1, 0.1])
    assert result.cumulative_return == pytest.approx(0.21)
    assert result.trades == 4, "in, out, short, out"


def test_cost_is_paid_going_in_and_out_not_for_staying():
    closes = np.full(3, 100.0)
    default = backtest([0, 5, 10], closes, closes, closes + 1, horizon=5, periods_per_year=50)
    assert default.trades == 2
    assert default.returns == pytest.approx([-0.001, 0, -0.001]), "10 bps is 0.1 %"
    assert run(closes, closes, closes + 1, cost_bps=30).returns == pytest.approx(
        [-0.003, 0, -0.003]
    )


def test_cost_of_turning_and_of_pausing():
    closes = np.full(4, 100.0)
    turning = run(closes, closes, [101, 99, 101, 101], cost_bps=10, allow_short=True)
    assert turning.returns == pytest.approx([-0.001, -0.002, -0.002, -0.001])
    assert turning.trades == 6
    pausing = run(closes, closes, [101, 99, 101, 101], cost_bps=10)
    assert pausing.returns == pytest.approx([-0.001, -0.001, -0.001, -0.001])
    assert pausing.trades == 4


def test_a_gap_between_periods_closes_the_position():
    closes = np.full(3, 100.0)
    result = run(closes, closes, closes + 1, starts=[0, 5, 11], cost_bps=10)
    assert result.returns == pytest.approx([-0.001, -0.001, -0.002])
    assert result.trades == 4


def test_drawdown_counts_from_the_start_and_from_later_heights():
    assert max_drawdown([-0.1]) == pytest.approx(-0.1)
    assert max_drawdown([0.1, -0.2, 0.5]) == pytest.approx(-0.2)
    assert max_drawdown([0.1, -0.2, 0.1, -0.3]) == pytest.approx(0.8 * 1.1 * 0.7 - 1)
    assert max_drawdown([0.1, 0.0, 0.2]) == 0.0


def test_a_short_that_loses_more_than_there_is_ends_at_nothing():
    result = run([100.0, 300.0], [300.0, 100.0], [90.0, 290.0], allow_short=True)
    assert result.returns.tolist()[0] == -1.0
    assert result.equity.tolist() == [1.0, 0.0, 0.0]
    assert result.cumulative_return == result.max_drawdown == -1.0


def test_sharpe_by_hand_and_where_there_is_no_risk():
    assert sharpe([0.01, 0.03], 50) == pytest.approx(0.02 / (0.02 / np.sqrt(2)) * np.sqrt(50))
    assert sharpe([0.05], 50) == 0.0
    assert sharpe([0.0, 0.0, 0.0], 50) == 0.0
    assert sharpe([0.1, 0.1, 0.1], 50) == 0.0
    growth = 100 * 1.01 ** np.arange(200)
    assert sharpe(growth[1:] / growth[:-1] - 1, 252) == 0.0, "steady growth, up to rounding"


def test_nothing_traded_is_all_zeros():
    result = run([100.0, 90.0], [90.0, 80.0], [90.0, 80.0], cost_bps=10)
    assert (result.cumulative_return, result.max_drawdown, result.sharpe) == (0.0, 0.0, 0.0)
    assert result.trades == 0


@settings(max_examples=150)
@given(RETURNS, st.floats(1, 400))
def test_figures_are_those_of_empyrical(returns, periods_per_year):
    empyrical = pytest.importorskip("empyrical")
    series = np.array(returns)
    expected = float(empyrical.cum_returns_final(series))
    assert cumulative_return(series) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert max_drawdown(series) == pytest.approx(
        float(empyrical.max_drawdown(series)), rel=1e-9, abs=1e-12
    )
    if series.std() > 1e-9:
        oracle = empyrical.sharpe_ratio(series, annualization=periods_per_year)
        assert sharpe(series, periods_per_year) == pytest.approx(float(oracle), rel=1e-6)


def test_a_whole_backtest_is_that_of_empyrical():
    empyrical = pytest.importorskip("empyrical")
    rng = np.random.default_rng(3)
    close = 100 * np.exp(np.cumsum(rng.normal(0, 0.02, 61)))
    forecast = close[:-1] * np.exp(rng.normal(0, 0.02, 60))
    result = run(close[:-1], close[1:], forecast, horizon=1, cost_bps=10, periods_per_year=252)
    assert result.max_drawdown == pytest.approx(empyrical.max_drawdown(result.returns))
    assert result.sharpe == pytest.approx(empyrical.sharpe_ratio(result.returns))
    assert result.cumulative_return == pytest.approx(empyrical.cum_returns_final(result.returns))


closes = st.floats(1, 100)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(4, 9), closes, closes, closes), min_size=1, max_size=10),
       st.booleans(), st.floats(0, 100))  # fmt: skip
def test_one_account_restated_trade_by_trade(rows, allow_short, cost_bps):
    horizon, cost = 4, cost_bps / 10_000
    starts = np.cumsum([step for step, *_ in rows])
    last, actual, forecast = np.array([prices for _, *prices in rows]).T
    equity, held, trades = 1.0, 0, 0
    for period in range(len(rows)):
        wish = 1 if forecast[period] > last[period] else 0
        if allow_short and forecast[period] < last[period]:
            wish = -1
        paid = abs(wish - held)
        follows = period + 1 < len(rows) and starts[period + 1] - starts[period] == horizon
        paid += 0 if follows else abs(wish)
        held = wish if follows else 0
        trades += paid
        gain = wish * (actual[period] / last[period] - 1) - paid * cost
        equity *= 1 + max(gain, -1.0)
    result = run(
        last, actual, forecast, starts, horizon, allow_short=allow_short, cost_bps=cost_bps
    )
    assert result.trades == trades
    assert result.equity[-1] == pytest.approx(equity)
    assert result.cumulative_return == pytest.approx(equity - 1)
    assert -1 <= result.max_drawdown <= 0


def test_positions_do_not_depend_on_what_came():
    rng = np.random.default_rng(0)
    last, forecast = rng.uniform(90, 110, (2, 20))
    first = run(last, rng.uniform(90, 110, 20), forecast, allow_short=True)
    second = run(last, rng.uniform(90, 110, 20), forecast, allow_short=True)
    np.testing.assert_array_equal(first.positions, second.positions)
    assert first.cumulative_return != second.cumulative_return


def test_result_is_frozen():
    with pytest.raises(AttributeError):
        run([1.0], [1.0], [1.0]).sharpe = 9.0


@settings(max_examples=100)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(1, 12))
def test_separate_periods_are_the_earliest_that_do_not_overlap(steps, horizon):
    starts = np.cumsum(steps)
    taken = separate_periods(starts, horizon)
    assert taken[0] == 0
    assert (np.diff(starts[taken]) >= horizon).all()
    for position in set(range(len(starts))) - set(taken.tolist()):
        before = taken[taken < position][-1]
        assert starts[position] - starts[before] < horizon, "left out only where it overlaps"


@pytest.mark.parametrize(
    ("starts", "words"),
    [
        ([0, 4], "periods overlap: 0 and 4 are closer than the horizon of 5 bars"),
        ([5, 0], "starts must ascend"),
        ([0, 0], "starts must ascend"),
    ],
)
def test_periods_that_overlap_or_run_backwards(starts, words):
    with pytest.raises(DataError, match=words):
        run([1.0, 1.0], [1.0, 1.0], [1.0, 1.0], starts=starts)


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("last", [100.0, 0.0], "last_close must be positive, got 0"),
        ("actual", [100.0, -1.0], "actual_close must be positive, got -1"),
        ("forecast", [100.0, np.nan], "forecast_close: 1 of 2 values are not finite"),
        ("forecast", [100.0], r"forecast_close has shape \(1,\), starts \(2,\)"),
    ],
)
def test_closes_that_cannot_be_traded(name, values, words):
    given = {key: [100.0, 100.0] for key in ("last", "actual", "forecast")} | {name: values}
    with pytest.raises(DataError, match=words):
        run(**given, starts=[0, 5])


def test_a_forecast_below_zero_is_a_forecast():
    assert run([100.0], [90.0], [-5.0], allow_short=True).positions.tolist() == [-1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"horizon": 0, "starts": [0]}, "horizon must be at least 1, got 0"),
        ({"periods_per_year": 0.0}, "periods_per_year must be positive, got 0.0"),
        ({"periods_per_year": np.nan}, "periods_per_year must be positive, got nan"),
        ({"cost_bps": -1.0}, "cost_bps must be from 0 to 10000"),
        ({"cost_bps": np.nan}, "cost_bps must be from 0 to 10000"),
    ],
)
def test_settings_out_of_range(options, words):
    with pytest.raises(ConfigError, match=words):
        run([1.0], [1.0], [1.0], **options)

"""Timing in turns, the interval, the verdict."""

import time
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_kronos.throughput import (
    FIRST_ROUNDS,
    MOST_ROUNDS,
    StepsPerHour,
    Throughput,
    bootstrap_interval,
    judge_slowdown,
)
from pytest_kronos.verdicts import Ledger, Record, Verdict


def _throughput(costs):
    return Throughput(
        device="cpu", step_seconds=(1.0,) * len(costs), relative_costs=tuple(costs), warmup_rounds=2
    )


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=60))
def test_the_interval_holds_the_median_and_lies_within_the_data(costs):
    low, high = bootstrap_interval(costs)
    middle = _throughput(costs).relative_step_cost
    assert min(costs) <= low <= high <= max(costs)
    assert low - 1e-9 <= middle <= high + 1e-9


@pytest.mark.parametrize(
    ("costs", "verdict"),
    [
        ([1.0] * 12, Verdict.PASS),
        ([2.0] * 12, Verdict.PASS),
        ([0.8] * 12, Verdict.PASS),
        ([2.5] * 12, Verdict.REGRESSION),
        ([1.0, 4.0] * 6, Verdict.INCONCLUSIVE),
        ([0.4] * 12, Verdict.IMPROVEMENT),
        ([1.0] * 10 + [9.0, 9.0], Verdict.PASS),
    ],
)
def test_H40_a_regression_only_where_the_whole_interval_is_over_the_limit(costs, verdict):
    assert judge_slowdown(_throughput(costs), 1.0, 2.0).verdict is verdict


@pytest.mark.parametrize("golden", [0.0, -1.0, float("nan")])
def test_H8_a_golden_cost_that_is_no_cost_fails(golden):
    assert judge_slowdown(_throughput([1.0] * 12), golden, 2.0).verdict is Verdict.REGRESSION


def test_all_is_judged_relative_to_the_golden():
    finding = judge_slowdown(_throughput([1.0] * 12), 0.4, 2.0)
    assert finding.verdict is Verdict.REGRESSION
    assert finding.text.startswith("2.50 x the golden's time per step (2.50 to 2.50; 3,600 steps")
    assert judge_slowdown(_throughput([1.0] * 12), 0.6, 2.0).verdict is Verdict.PASS


def test_the_interval_is_that_of_the_confidence_and_always_the_same():
    """By the normal approximation the median of 60 has ranks 20 to 41 at 99 %, 27 to 34 at 50 %."""
    costs = [float(cost) for cost in range(1, 61)]
    low, high = bootstrap_interval(costs)
    assert (low, high) == (pytest.approx(20.5, abs=2), pytest.approx(40.5, abs=2))
    assert bootstrap_interval(costs) == (low, high)


def test_steps_per_hour_and_cost_come_from_the_median_step():
    throughput = Throughput(
        device="cpu", step_seconds=(1.0, 2.0, 9.0), relative_costs=(1.0, 3.0, 9.0), warmup_rounds=0
    )
    assert (throughput.steps_per_hour, throughput.relative_step_cost) == (1800, 3.0)


def test_H41_the_warm_up_does_not_count():
    calls = []
    throughput = StepsPerHour()(lambda: calls.append(time.sleep(0.001)), warmup=3)
    assert len(calls) == 3 + FIRST_ROUNDS
    assert len(throughput.step_seconds) == len(throughput.relative_costs) == FIRST_ROUNDS
    assert throughput.warmup_rounds == 3


def test_the_reference_runs_before_each_step_alike_in_device_and_precision(monkeypatch):
    order, made = [], []

    def reference(device, precision):
        made.append((device, precision))
        return lambda: order.append("reference")

    monkeypatch.setattr("kronos.measure.ReferenceWorkload", reference)
    monkeypatch.setattr("kronos.measure.default_device", lambda: "elsewhere")
    StepsPerHour()(lambda: order.append("step"), device="cpu", precision="bf16", warmup=3)
    assert made == [("cpu", "bf16")]
    turns = [name for name, _ in groupby(order)]  # the reference repeats in its turn
    assert turns == ["reference", "step"] * (3 + FIRST_ROUNDS)


def test_more_rounds_while_undecided_up_to_the_most():
    throughput = StepsPerHour().measure(lambda: None, decided=lambda throughput: False)
    assert len(throughput.step_seconds) == MOST_ROUNDS


def test_deciding_ends_in_time(monkeypatch):
    monkeypatch.setattr("pytest_kronos.throughput.MOST_SECONDS", 0.0)
    throughput = StepsPerHour().measure(lambda: None, decided=lambda throughput: False)
    assert len(throughput.step_seconds) == FIRST_ROUNDS


def test_what_was_timed_is_noted():
    ledger = Ledger("mine")
    throughput = StepsPerHour(ledger=ledger)(lambda: None)
    StepsPerHour(ledger=ledger)(lambda: None, label="labelled")
    record, labelled = map(Record.from_dict, ledger.unreported())
    assert (record.case, labelled.case) == ("mine", "labelled")
    assert record.steps_per_hour == throughput.steps_per_hour
    assert record.device == throughput.device
    assert record.verdict is Verdict.PASS


SPEED = """
    import time

    def test_speed(steps_per_hour):
        throughput = steps_per_hour(lambda: time.sleep(0.002))
        assert 3600 / 0.1 < throughput.steps_per_hour < 3600 / 0.002
        assert throughput.relative_step_cost > 0
"""


def test_the_fixture_uses_pytest_benchmark(pytester, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # it would switch itself off
    pytester.makepyfile(SPEED)
    result = pytester.runpytest("--benchmark-json=timing.json")
    result.assert_outcomes(passed=1)
    text = (pytester.path / "timing.json").read_text()
    assert "relative_step_cost" in text
    assert f'"rounds": {FIRST_ROUNDS}' in text
    result.stdout.fnmatch_lines(["*kronos: memory, steps per hour, accuracy*", "*test_speed*pass*"])


@pytest.mark.parametrize("options", [["-p", "no:benchmark"], ["--benchmark-disable"]])
def test_the_fixture_measures_without_pytest_benchmark_too(pytester, options):
    pytester.makepyfile(SPEED)
    result = pytester.runpytest(*options)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*test_speed*pass*"])


def test_several_steps_in_one_test(pytester):
    pytester.makepyfile(
        """
    def test_speed(steps_per_hour):
        for _ in range(2):
            assert steps_per_hour(lambda: None).steps_per_hour > 0
    """
    )
    pytester.runpytest().assert_outcomes(passed=1)


def test_a_test_that_fails_before_it_times_is_told_as_it_is(pytester):
    pytester.makepyfile(
        """
    def test_speed(steps_per_hour):
        raise ValueError("mine")
    """
    )
    pytester.runpytest("-W", "error").assert_outcomes(failed=1)

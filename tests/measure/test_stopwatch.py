"""The stopwatch and turns of two calls."""

import time
from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from kronos.errors import MeasurementError
from kronos.measure import PairedStopwatch, ReferenceWorkload, Stopwatch, time_steps
from kronos.measure.stopwatch import StepTimes


def test_timed_gives_the_result_and_the_seconds():
    result, seconds = Stopwatch().timed(lambda: time.sleep(0.01) or "done")
    assert result == "done"
    assert 0.01 <= seconds < 1


def test_a_card_is_waited_for_before_and_after(monkeypatch):
    order = []
    card = SimpleNamespace(synchronize=lambda: order.append("wait"))
    clock = SimpleNamespace(perf_counter=lambda: order.append("clock") or len(order))
    monkeypatch.setattr("kronos.measure.stopwatch.card_of", {"cuda": card}.get)
    monkeypatch.setattr("kronos.measure.stopwatch.time", clock)
    expected = ["wait", "clock", "call", "wait", "clock"]
    Stopwatch("cuda").time(lambda: order.append("call"))
    assert order == expected
    time_steps(lambda: order.append("call"), device="cuda", warmup=0, rounds=1)
    PairedStopwatch(lambda: order.append("call"), lambda: None, device="cuda").time_step()
    assert order == expected * 3


def test_steps_per_hour_are_of_the_middle_step():
    times = StepTimes(seconds=(1.0, 2.0, 9.0), warmup=(100.0,))
    assert (times.median, times.steps_per_hour) == (2.0, 1800.0)


def test_warm_up_is_timed_apart():
    pauses = iter([0.05, 0.001, 0.001, 0.001])
    times = time_steps(lambda: time.sleep(next(pauses)), warmup=1, rounds=3)
    assert len(times.warmup) == 1
    assert times.warmup[0] > times.median
    assert times.steps_per_hour == pytest.approx(3600 / times.median)


def test_no_rounds_are_refused():
    with pytest.raises(MeasurementError, match="at least 1 round"):
        time_steps(lambda: None, rounds=0)


class _FakeStopwatch:
    """Says what it is told that a call takes."""

    def __init__(self, seconds):
        self.seconds = seconds

    def time(self, call):
        call()
        return self.seconds[call]


@pytest.mark.parametrize(
    ("step", "reference", "repeats"), [(0.4, 0.02, 10), (0.02, 0.4, 1), (9.0, 1e-9, 20), (1, 0, 20)]
)
def test_a_turn_of_the_reference_lasts_about_half_a_step(step, reference, repeats):
    runs = []
    pairs = PairedStopwatch(lambda: None, lambda: runs.append(1))
    pairs._stopwatch = _FakeStopwatch({pairs._step: step, pairs._reference: reference})
    pairs.warm_up(1)
    assert pairs.repeats == repeats
    runs.clear()
    pairs.time_reference()
    assert len(runs) == repeats
    assert pairs.reference_seconds == [pytest.approx(reference)]


def test_turns_alternate_and_pair():
    order = []
    pairs = PairedStopwatch(lambda: order.append("step"), lambda: order.append("reference"))
    pairs.warm_up(1)
    pairs.repeats = 1
    for _ in range(2):
        pairs.time_reference()
        pairs.time_step()
    assert order == ["reference", "step"] * 3
    assert len(pairs.relative_costs()) == 2
    ratio = pairs.step_seconds[0] / pairs.reference_seconds[0]
    assert pairs.relative_costs()[0] == ratio


def test_the_reference_workload_is_the_same_every_time_and_leaves_the_random_state():
    state = torch.get_rng_state()
    one, other = ReferenceWorkload(), ReferenceWorkload()
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(one._input, other._input)
    before = [weight.detach().clone() for weight in one._weights]
    one()
    assert all(weight.grad is None for weight in one._weights)
    for weight, was in zip(one._weights, before, strict=True):
        assert torch.allclose(weight, was, atol=1e-9)


def _loss(monkeypatch, **arguments):
    losses = []
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "backward", lambda loss: losses.append(loss.item()))
        ReferenceWorkload(**arguments)()
    return losses[0]


def test_the_reference_workload_computes_what_it_always_did(monkeypatch):
    exact = _loss(monkeypatch)
    assert exact == pytest.approx(1.8831216, rel=1e-5)
    mixed = _loss(monkeypatch, precision="bf16")
    assert mixed != exact
    assert mixed == pytest.approx(exact, rel=0.02)


def test_the_reference_workload_updates_each_weight_once():
    work = ReferenceWorkload()
    before = [weight._version for weight in work._weights]
    work()
    assert [weight._version for weight in work._weights] == [one + 1 for one in before]


def test_the_reference_workload_is_frozen():
    """Its cost is the unit of every golden; a change of what it computes must show here."""
    work = ReferenceWorkload()
    assert [tuple(weight.shape) for weight in work._weights] == [
        (128, 384),
        (128, 256),
        (256, 128),
    ] * 4
    with FlopCounterMode(display=False) as counter:
        work()
    assert counter.get_total_flops() == 2_717_908_992

"""Memory against a limit: the judgement, the record, and what a watch does on a card."""

import weakref
from contextlib import contextmanager

import pytest
import torch

from kronos.capacity import MemoryEstimate, StepTrace, estimate_memory
from kronos.errors import ConfigError
from kronos.hardware import CATALOGUE, DEFAULT_CONTEXT
from kronos.measure import MemoryReading, StorageEvents, device_profile
from pytest_kronos.budget import (
    GpuBudget,
    MemoryWatch,
    Promise,
    note_overrun,
    note_usage,
    tighter,
)
from pytest_kronos.usage import Usage, judge_budget, judge_growth, usage_of, usage_of_estimate
from pytest_kronos.verdicts import Ledger, Record, Verdict


def _usage(**changes):
    values = {
        "source": "estimated",
        "card": "a CUDA card",
        "peak_allocated": 60,
        "peak_reserved": 70,
        "context": 30,
        "breakdown": {"activations": 50, "parameters": 20},
        "where": " (backward, aten.mm)",
    }
    return Usage(**(values | changes))


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [(99, Verdict.REGRESSION), (100, Verdict.PASS), (101, Verdict.PASS), (None, Verdict.PASS)],
)
def test_the_limit_itself_fits(limit, verdict):
    assert judge_budget(_usage(), limit).verdict is verdict


def test_a_failure_names_limit_footprint_excess_and_what_fills_the_peak():
    text = judge_budget(_usage(), 90).text
    for part in (
        "limit 90 B",
        "footprint 100 B (estimated, a CUDA card)",
        "excess 10 B",
        "activations 50 B",
        "CUDA context 30 B",
        "backward, aten.mm",
    ):
        assert part in text


@pytest.mark.parametrize(
    "changes",
    [
        {"peak_allocated": 0},
        {"context": None},
        {"peak_reserved": None},
        {"breakdown": {}},
        {"breakdown": {"activations": 0}},
    ],
)
def test_what_could_not_be_read_is_not_measured(changes):
    assert judge_budget(_usage(**changes), 10**9).verdict is Verdict.NOT_MEASURED


@pytest.mark.parametrize(
    ("golden", "verdict"),
    [
        (60, Verdict.PASS),
        (60 / 1.05 + 1e-9, Verdict.PASS),
        (60 / 1.05 - 1e-6, Verdict.REGRESSION),
        (61, Verdict.PASS),
        (70, Verdict.IMPROVEMENT),
        (0, Verdict.REGRESSION),
        (None, Verdict.REGRESSION),
        (float("nan"), Verdict.REGRESSION),
    ],
)
def test_growth_over_the_golden(golden, verdict):
    assert judge_growth(_usage(), golden, 0.05).verdict is verdict


def test_an_estimate_keeps_its_figures_and_its_source():
    estimate = MemoryEstimate(
        peak_allocated=60,
        peak_reserved=70,
        context=30,
        breakdown={"activations": 70},
        peak_phase="backward",
        peak_op="aten.mm",
        modules={},
        trace=StepTrace(StorageEvents()),
    )
    usage = usage_of_estimate(estimate, None)
    assert (usage.footprint, usage.source) == (100, "estimated")
    assert usage.where == " (backward, aten.mm)"


def test_tighter():
    assert tighter(None, None) is None
    assert tighter(None, 3) == 3
    assert tighter(5, 3) == 3


def test_the_peak_is_described_by_its_largest_parts():
    usage = _usage(breakdown={"inputs": 1, "activations": 50, "gradients": 3, "parameters": 20})
    parts = "activations 50 B, CUDA context 30 B, parameters 20 B, gradients 3 B"
    assert usage.describe_peak() == f"at the peak (backward, aten.mm): {parts}"


def test_what_makes_a_figure_unsure_is_told():
    assert judge_budget(_usage(remark="neighbours count"), None).text == (
        "footprint 100 B (estimated, a CUDA card); neighbours count, no budget"
    )


def test_a_reading_of_a_card_is_a_measurement():
    reading = MemoryReading(
        device="Fake 12GB",
        peak_allocated=60,
        rounded_allocated=60,
        peak_reserved=70,
        context=30,
        remark="unsure",
    )
    assert usage_of(reading, CATALOGUE["t4"]) == Usage(
        source="measured",
        card="Fake 12GB",
        peak_allocated=60,
        peak_reserved=70,
        context=30,
        breakdown={"reserved by the allocator": 70},
        where="",
        remark="unsure",
    )


def test_what_was_used_is_noted():
    record = Record(case="mine")
    note_usage(record, _usage(), Promise(limit=200))
    assert (record.device, record.card) == (device_profile(), "a CUDA card")
    assert (record.memory_source, record.footprint_bytes) == ("estimated", 100)
    assert (record.peak_allocated_bytes, record.peak_reserved_bytes) == (60, 70)
    assert (record.budget_bytes, record.breakdown) == (200, {"activations": 50, "parameters": 20})
    assert [finding.verdict for finding in record.findings] == [Verdict.PASS]


@pytest.mark.parametrize(("limit", "shown"), [(1024, "limit 1.00 KiB"), (None, "limit none")])
def test_an_overrun_is_noted_with_its_limit(limit, shown):
    record = Record(case="mine")
    note_overrun(record, torch.OutOfMemoryError("tried\n  too much"), limit)
    assert (record.budget_bytes, record.device) == (limit, device_profile())
    (finding,) = record.findings
    assert finding.verdict is Verdict.REGRESSION
    assert finding.text.startswith(f"{shown}, out of memory on ")
    assert finding.text.endswith(": tried too much")


def test_an_overrun_lets_go_of_the_tensors_that_did_not_fit():
    freed = []

    def overrun():
        kept = torch.zeros(8)
        freed.append(weakref.ref(kept))
        raise torch.OutOfMemoryError("CUDA out of memory")

    with MemoryWatch(Promise()) as watch:
        overrun()
    assert freed[0]() is None
    assert watch.overrun.__traceback__ is None


class _FakeCard:
    name = "Fake 12GB"

    def __init__(self):
        self.caps = []

    def start_peaks(self): ...

    def synchronize(self): ...

    def peak_allocated(self):
        return 60

    def peak_reserved(self):
        return 70

    def flushes(self):
        return 0

    def context(self):
        return 30, None

    @contextmanager
    def capped(self, budget):
        self.caps.append(budget)
        yield
        self.caps.append("off")


@pytest.mark.parametrize(("limit", "caps"), [(None, []), (99, [99, "off"])])
def test_on_a_card_the_limit_is_a_cap_until_the_end(monkeypatch, limit, caps):
    card = _FakeCard()
    monkeypatch.setattr("kronos.measure.default_device", lambda: "cuda")
    monkeypatch.setattr("kronos.measure.card_of", lambda device: card)
    with MemoryWatch(Promise(limit=limit, card=CATALOGUE["t4"])) as watch:
        assert card.caps == caps[:1]
    assert card.caps == caps
    assert (watch.usage().source, watch.usage().footprint) == ("measured", 100)


def test_an_estimate_is_for_the_card_that_is_planned_for_or_for_any():
    with MemoryWatch(Promise(card=CATALOGUE["h100"])) as watch:
        torch.zeros(8)
    hopper, other = watch.usage(), watch.usage_for_any_card()
    assert (hopper.card, other.card) == (CATALOGUE["h100"].name, "a CUDA card")
    assert hopper.peak_allocated - other.peak_allocated == 2 * (33_554_432 - 8_519_680)


def test_check_and_estimate_make_the_steps_that_are_asked_for():
    budget, calls = GpuBudget(Promise(card=CATALOGUE["h100"]), Ledger("mine")), []

    def build(device):
        weight = torch.zeros(8, 8, device=device)
        return lambda: calls.append(weight @ weight)

    budget.check(build, steps=4)
    assert len(calls) == 4
    estimate = budget.estimate(build, steps=2)
    assert len(calls) == 4 + 2
    assert estimate.breakdown["workspaces"] == 33_554_432  # nothing ran backward
    with pytest.raises(ConfigError, match="at least 1 step, got 0"):
        budget.check(build, steps=0)


def _estimated(steps):
    """An estimate of `steps`, each a list of the bytes that it takes and gives back in turn."""

    def build(device):
        def step():
            for size in steps:
                torch.zeros(size, dtype=torch.uint8, device=device)

        return step

    return usage_of_estimate(estimate_memory(build), None)


MIB = 2**20


@pytest.mark.parametrize(
    ("room", "strict", "verdict", "told"),
    [
        (64 * MIB, False, Verdict.PASS, "fits the limit of"),
        (64 * MIB, True, Verdict.PASS, "fits the limit of"),
        (64 * MIB - 1, False, Verdict.PASS, "only by flushing the cache"),
        (64 * MIB - 1, True, Verdict.REGRESSION, "--gpu-budget-strict forbids it"),
        (34 * MIB, False, Verdict.PASS, "times a step, which is slow"),
        (34 * MIB - 1, False, Verdict.REGRESSION, "out of memory in forward, aten.zeros, 1 B miss"),
        (-1, False, Verdict.REGRESSION, "the CUDA context alone takes more"),
    ],
)
def test_what_only_fits_by_flushing_passes_unless_strict(room, strict, verdict, told):
    """Two blocks in turn, of 30 and of 34 MiB: neither segment serves the other."""
    usage = _estimated([30 * MIB, 34 * MIB])
    finding = judge_budget(usage, DEFAULT_CONTEXT + room, strict=strict)
    assert (finding.verdict, told in finding.text) == (verdict, True), finding.text
    assert finding.notable is (verdict is Verdict.PASS and "flushing" in told + finding.text)


def test_a_card_that_flushed_is_told_too():
    measured = _usage(source="measured", flushes=3)
    finding = judge_budget(measured, 100)
    assert (finding.verdict, finding.notable) == (Verdict.PASS, True)
    assert "flushing the cache, 3 times in all" in finding.text
    assert judge_budget(measured, 100, strict=True).verdict is Verdict.REGRESSION
    assert judge_budget(measured, 99).verdict is Verdict.REGRESSION
    assert not judge_budget(_usage(source="measured", flushes=0), 100).notable


def test_what_cannot_be_traced_is_run_and_it_is_said():
    def build(device):
        weight = torch.ones(8, device=device)
        return lambda: calls.append(float(weight.sum()))

    ledger, calls = Ledger("mine"), []
    GpuBudget(Promise(limit=2**40), ledger).check(build, steps=2)
    (record,) = ledger.unreported()
    assert calls == [8.0, 8.0]
    assert "metered on the CPU, since it cannot be traced (aten._local" in str(record["findings"])


def test_a_step_s_own_error_stays_its_own():
    def build(device):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        GpuBudget(Promise(limit=1), Ledger("mine")).check(build)

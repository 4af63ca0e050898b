"""The first form of the estimate: the CPU's live storage, plus what a card adds."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kronos.capacity import as_build, estimate_from_cpu, estimate_memory
from kronos.errors import ConfigError, SizeError
from kronos.hardware import CATALOGUE, DEFAULT_CONTEXT
from kronos.measure import MemoryMeter

WORKSPACE = 8_519_680


def _build(width=64, rows=8, layers=2):
    def build(device):
        model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
        model.to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        batch = torch.randn(rows, width, device=device)

        def step():
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return build


@settings(max_examples=15)
@given(st.integers(1, 200), st.integers(1, 64), st.integers(1, 3))
def test_the_breakdown_sums_to_the_reserved_peak(width, rows, layers):
    estimate = estimate_memory(_build(width, rows, layers))
    assert sum(estimate.breakdown.values()) == estimate.peak_reserved
    assert min(estimate.breakdown.values()) >= 0
    assert estimate.footprint == DEFAULT_CONTEXT + estimate.peak_reserved
    assert estimate.peak_allocated <= estimate.peak_reserved
    assert estimate.peak_reserved % (2 * 1024**2) == 0


def test_the_parts_are_the_model_s():
    estimate = estimate_memory(_build(width=64, layers=2))
    weights = 2 * (64 * 64 * 4 + 512)  # a bias of 256 B takes 512
    assert estimate.breakdown["parameters"] == weights
    assert estimate.breakdown["optimizer states"] == 2 * weights + 4 * 512
    assert estimate.breakdown["workspaces"] == 2 * WORKSPACE
    assert estimate.peak_phase in ("forward", "backward", "optimizer")
    assert estimate.peak_op.startswith("aten.")
    sizes = list(estimate.breakdown.values())
    assert sizes == sorted(sizes, reverse=True)


def test_every_step_is_made():
    calls = []
    estimate_memory(lambda device: lambda: calls.append(torch.ones(3)), warmup=2, steps=3)
    assert len(calls) == 5


@given(st.integers(1, 40), st.integers(0, 40))
@settings(max_examples=15)
def test_more_rows_never_take_less(rows, more):
    small, large = estimate_memory(_build(rows=rows)), estimate_memory(_build(rows=rows + more))
    assert small.peak_allocated <= large.peak_allocated


def test_workspaces_and_context_are_the_card_s():
    hopper = estimate_memory(_build(), gpu="h100")
    assert hopper.breakdown["workspaces"] == 2 * 33_554_432
    assert estimate_memory(_build(), gpu=CATALOGUE["t4"]).breakdown["workspaces"] == 2 * WORKSPACE
    context = replace(CATALOGUE["t4"], context=7)
    assert estimate_memory(_build(), gpu=context).context == 7
    with pytest.raises(SizeError, match="h100"):
        estimate_memory(_build(), gpu="h1000")


def test_construction_alone_counts():
    """A model larger while it is built than while it runs shows its building peak."""

    def build(device):
        spike = torch.zeros(8 * 1024**2)
        del spike
        return lambda: torch.zeros(10) + 1

    assert estimate_memory(build).peak_allocated >= 32 * 1024**2


def test_nothing_run_takes_nothing():
    with MemoryMeter("cpu") as meter:
        pass
    estimate = estimate_from_cpu(meter.reading)
    assert (estimate.peak_allocated, estimate.peak_reserved) == (0, 0)


def test_no_steps_are_refused():
    with pytest.raises(ConfigError, match="at least one step"):
        estimate_memory(_build(), warmup=0, steps=0)


def test_a_step_already_built_counts_as_a_build():
    calls = []
    step = as_build(lambda: calls.append(1))("cpu")
    step()
    assert calls == [1]
    optional = as_build(lambda times=2: calls.append(times))("cpu")
    optional()
    assert calls == [1, 2]
    assert as_build(lambda: int)("cpu")() is int  # a class is a result like others


def test_a_build_may_take_its_device_by_position_only():
    def build(device, /):
        return lambda: device

    assert as_build(build)("cpu")() == "cpu"


def test_what_is_neither_step_nor_build_is_refused():
    with pytest.raises(ConfigError, match="let it take the device"):
        as_build(lambda: lambda: None)("cpu")()
    with pytest.raises(ConfigError, match="must return a step"):
        as_build(lambda device: None)("cpu")

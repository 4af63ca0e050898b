"""The estimate: its figures, its verdict under a budget, and what must hold for any model."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kronos.capacity import (
    AllocatorSettings,
    Fit,
    estimate_from_cpu,
    estimate_memory,
)
from kronos.errors import ConfigError, SizeError
from kronos.hardware import CATALOGUE, DEFAULT_CONTEXT, MIB
from kronos.measure import MemoryMeter

WORKSPACE = 8_519_680
GRANULE = 2 * MIB


def mlp_build(width=64, rows=8, layers=2, recompute=False):
    """A tower of linear layers under AdamW."""

    def build(device):
        tower = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU())
            for _ in range(layers)
        ).to(device)
        optimizer = torch.optim.AdamW(tower.parameters())
        batch = torch.randn(rows, width, device=device)

        def step():
            hidden = batch
            for layer in tower:
                if recompute:
                    hidden = torch.utils.checkpoint.checkpoint(layer, hidden, use_reentrant=False)
                else:
                    hidden = layer(hidden)
            hidden.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return build


SIZES = {"width": st.integers(1, 1500), "rows": st.integers(1, 3000), "layers": st.integers(1, 4)}


@settings(max_examples=15)
@given(**SIZES)
def test_the_breakdown_and_the_modules_sum(width, rows, layers):
    estimate = estimate_memory(mlp_build(width, rows, layers))
    assert sum(estimate.breakdown.values()) == estimate.peak_reserved
    assert min(estimate.breakdown.values()) >= 0
    alive = estimate.peak_reserved - estimate.breakdown["fragmentation"]
    assert sum(estimate.modules.values()) == alive <= estimate.peak_allocated
    assert estimate.footprint == DEFAULT_CONTEXT + estimate.peak_reserved
    assert estimate.peak_allocated <= estimate.peak_reserved
    assert estimate.peak_reserved % GRANULE == 0
    for parts in (estimate.breakdown, estimate.modules):
        assert list(parts.values()) == sorted(parts.values(), reverse=True)


# Blocks of up to 1 MiB are cut to size; a larger one may keep a tail of up to 1 MiB, which counts
# as allocated, so that a little more may take a little less. What is asked for never does.
UNCUT = {"width": st.integers(1, 256), "rows": st.integers(1, 900), "layers": st.integers(1, 4)}
MORE = {"more": st.integers(0, 100), "what": st.sampled_from(["width", "rows", "layers"])}


def _larger(sizes, what, more):
    return sizes | {what: sizes[what] + (more % 3 if what == "layers" else more)}


@settings(max_examples=12)
@given(sizes=st.fixed_dictionaries(SIZES), **MORE)
def test_a_larger_model_or_batch_never_asks_for_less(sizes, more, what):
    larger = _larger(sizes, what, more)
    small, large = (estimate_memory(mlp_build(**one)) for one in (sizes, larger))
    assert _requested(small) <= _requested(large)


@settings(max_examples=12)
@given(sizes=st.fixed_dictionaries(UNCUT), **MORE)
def test_a_larger_model_or_batch_never_takes_less(sizes, more, what):
    larger = _larger(sizes, what, more)
    small, large = (estimate_memory(mlp_build(**one)) for one in (sizes, larger))
    assert small.peak_allocated <= large.peak_allocated


@settings(max_examples=12)
@given(sizes=st.fixed_dictionaries(SIZES))
def test_checkpointing_never_asks_for_more(sizes):
    kept, recomputed = (mlp_build(**sizes, recompute=again) for again in (False, True))
    assert _requested(estimate_memory(recomputed)) <= _requested(estimate_memory(kept))


@settings(max_examples=12)
@given(sizes=st.fixed_dictionaries(UNCUT))
def test_checkpointing_never_takes_more(sizes):
    kept, recomputed = (mlp_build(**sizes, recompute=again) for again in (False, True))
    assert estimate_memory(recomputed).peak_allocated <= estimate_memory(kept).peak_allocated


def test_checkpointing_may_reserve_more():
    """The example of docs/memory.md."""
    kept, recomputed = (
        estimate_memory(mlp_build(1536, 512, 4, recompute=again)) for again in (False, True)
    )
    assert kept.peak_allocated == recomputed.peak_allocated == 212_197_376
    assert (kept.peak_reserved, recomputed.peak_reserved) == (242 * MIB, 262 * MIB)


@settings(max_examples=12)
@given(**SIZES, expandable=st.booleans())
def test_between_the_peaks_lies_the_smallest_capacity(width, rows, layers, expandable):
    estimate = estimate_memory(
        mlp_build(width, rows, layers), settings=AllocatorSettings(expandable_segments=expandable)
    )
    assert estimate.under(estimate.peak_reserved).fit is Fit.FITS
    assert estimate.under(estimate.peak_allocated - 1).fit is Fit.DOES_NOT_FIT
    smallest = estimate.smallest_capacity()
    assert estimate.peak_allocated <= smallest <= estimate.peak_reserved
    assert estimate.under(smallest).fit is not Fit.DOES_NOT_FIT
    assert estimate.under(smallest - GRANULE).fit is Fit.DOES_NOT_FIT


def _requested(estimate):
    return estimate.trace.events.peak().bytes


def test_the_parts_are_the_model_s():
    estimate = estimate_memory(mlp_build(width=64, layers=2))
    weights = 2 * (64 * 64 * 4 + 512)  # a bias of 256 B takes 512
    assert estimate.breakdown["parameters"] == weights
    assert estimate.breakdown["optimizer states"] == 2 * weights  # step counts are the host's
    assert estimate.breakdown["workspaces"] == 2 * WORKSPACE
    assert estimate.peak_phase in ("forward", "backward", "optimizer")
    assert estimate.peak_op.startswith("aten.")


def test_each_module_has_what_it_owns_and_made():
    estimate = estimate_memory(mlp_build(width=512, rows=4, layers=3))
    weights = 512 * 512 * 4 + 512 * 4
    assert estimate.peak_phase == "optimizer"
    for layer in range(3):
        owned = estimate.modules[f"Sequential.{0}"] if layer == 0 else None
        assert owned is None or owned >= 3 * 4 * weights / 4
    assert sum(estimate.modules.values()) < estimate.peak_reserved


def test_every_step_is_made():
    calls = []

    def build(device):
        return lambda: calls.append(torch.ones(3, device=device))

    estimate_memory(build, warmup=2, steps=3)
    assert len(calls) == 5


def test_workspaces_and_context_are_the_card_s():
    hopper = estimate_memory(mlp_build(), gpu="h100")
    assert hopper.breakdown["workspaces"] == 2 * 33_554_432
    t4 = estimate_memory(mlp_build(), gpu=CATALOGUE["t4"])
    assert t4.breakdown["workspaces"] == 2 * WORKSPACE
    context = replace(CATALOGUE["t4"], context=7)
    assert estimate_memory(mlp_build(), gpu=context).context == 7
    with pytest.raises(SizeError, match="h100"):
        estimate_memory(mlp_build(), gpu="h1000")


def test_construction_alone_counts():
    """A model larger while it is built than while it runs shows its building peak."""

    def build(device):
        spike = torch.zeros(8 * 1024**2, device=device)
        del spike
        return lambda: torch.zeros(10, device=device) + 1

    assert estimate_memory(build).peak_allocated >= 32 * MIB


def test_host_memory_is_not_the_card_s():
    def build(device):
        host = torch.zeros(8 * 1024**2)
        return lambda: host[:10].to(device) + 1

    assert estimate_memory(build).peak_allocated == 2 * 512


def test_a_capacity_is_judged():
    build = mlp_build(width=1024, rows=1024, layers=4)
    free = estimate_memory(build)
    assert free.outcome is None
    tight = estimate_memory(build, capacity=free.smallest_capacity() - GRANULE).outcome
    assert tight.fit is Fit.DOES_NOT_FIT
    assert 0 < tight.missing <= 20 * MIB
    assert tight.operation.startswith("aten.")
    assert tight.phase in ("forward", "backward", "optimizer")
    assert free.under(-5 * MIB).missing > free.under(0).missing > 0


def test_flushes_are_counted_by_the_step():
    """Two sizes in turn whose segments do not fit side by side: each flushes the other's."""

    def build(device):
        def step():
            torch.zeros(30 * MIB // 4, device=device)
            torch.zeros(34 * MIB // 4, device=device)

        return step

    estimate = estimate_memory(build, warmup=1, steps=3)
    assert estimate.peak_reserved == 64 * MIB
    assert estimate.under(64 * MIB).flushes_per_step == 0
    under = estimate.under(40 * MIB)
    assert under.fit is Fit.FLUSHES
    assert under.flushes_per_step == pytest.approx(2 / 3, abs=0.7)
    assert estimate.under(33 * MIB).fit is Fit.DOES_NOT_FIT


def test_expandable_segments_waste_less_and_can_be_asked_for():
    build = mlp_build(width=1400, rows=1100, layers=3)
    fixed = estimate_memory(build)
    expandable = estimate_memory(build, settings=AllocatorSettings(expandable_segments=True))
    assert expandable.peak_reserved < fixed.peak_reserved
    assert expandable.peak_allocated <= fixed.peak_allocated
    between = expandable.peak_reserved
    assert fixed.under(between, expandable_segments=True).fit is Fit.FITS


def test_a_step_run_on_the_cpu_is_an_estimate_too():
    with MemoryMeter("cpu") as meter:
        step = mlp_build(width=64)("cpu")
        for _ in range(3):
            step()
    estimate = estimate_from_cpu(meter.reading.events, CATALOGUE["h100"])
    assert estimate.breakdown["workspaces"] == 2 * 33_554_432
    assert estimate.breakdown["parameters"] == 2 * (64 * 64 * 4 + 512)
    assert sum(estimate.breakdown.values()) == estimate.peak_reserved
    assert estimate.outcome is None
    capped = estimate_from_cpu(meter.reading.events, capacity=1)
    assert capped.outcome.fit is Fit.DOES_NOT_FIT


def test_nothing_run_takes_nothing():
    with MemoryMeter("cpu") as meter:
        pass
    estimate = estimate_from_cpu(meter.reading.events)
    assert (estimate.peak_allocated, estimate.peak_reserved) == (0, 0)
    assert (estimate.peak_phase, estimate.peak_op) == ("", "")


def test_no_steps_are_refused():
    with pytest.raises(ConfigError, match="at least one step"):
        estimate_memory(mlp_build(), warmup=0, steps=0)


def test_a_timeline_adds_up_to_what_is_alive():
    estimate = estimate_memory(mlp_build(width=300, rows=100))
    timeline = estimate.timeline
    totals = [sum(row) for row in zip(*timeline.allocated.values(), strict=True)]
    assert len(totals) == len(estimate.trace.events) == len(timeline.phases)
    assert max(totals) == estimate.trace.events.peak().rounded_bytes
    assert min(totals) >= 0
    assert timeline.starts == estimate.trace.starts
    assert "fragmentation" not in timeline.allocated

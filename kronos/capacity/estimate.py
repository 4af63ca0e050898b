"""What a training step would take of a card, told on a machine that has none.

The traced step's storages go through the model of the caching allocator. What they reserve plus
the CUDA context is the footprint; whether it fits a budget is what the allocator would do under
it, which may be to give cached memory back and go on.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Final

from kronos.capacity.allocator import DEFAULTS, AllocatorSettings
from kronos.capacity.build import Build
from kronos.capacity.replay import Replay, replay_events, smallest_capacity
from kronos.capacity.timeline import Timeline, timeline_of
from kronos.capacity.trace import StepTrace, trace_step
from kronos.capacity.tracer import WORKSPACES
from kronos.hardware import DEFAULT_CONTEXT, DEFAULT_CUBLAS_WORKSPACE, Card, find_card
from kronos.measure import StorageEvents

FRAGMENTATION: Final = "fragmentation"
CONTEXT: Final = "CUDA context"


class Fit(StrEnum):
    """What becomes of a step under a budget, the best first."""

    FITS = "fits"
    FLUSHES = "fits only by flushing the allocator's cache"
    DOES_NOT_FIT = "does not fit"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What the allocator does when it may reserve no more than `capacity`."""

    capacity: int
    """Bytes: the budget less the CUDA context."""
    fit: Fit
    flushes_per_step: float = 0.0
    """Over the steps behind the warm-up. Each gives all cached memory back to the driver, which
    waits for the card to be done: slow."""
    phase: str = ""
    """Where memory ran out."""
    operation: str = ""
    missing: int = 0
    """By how many bytes the capacity is too small for the request at which memory ran out."""


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Bytes that a step would take on a card. Every figure is an estimate."""

    peak_allocated: int
    """Live blocks of the allocator."""
    peak_reserved: int
    """Its segments, where nothing limits it."""
    context: int
    """CUDA context and libraries, outside the allocator."""
    breakdown: Mapping[str, int]
    """What fills the card where most is allocated, largest first; sums to `peak_reserved`."""
    modules: Mapping[str, int]
    """The same bytes, less fragmentation, by the module they belong to or were made in, largest
    first; "" is what belongs to none."""
    peak_phase: str
    """"forward", "backward" or "optimizer"."""
    peak_op: str
    outcome: Outcome | None = None
    """Under the capacity that was asked for."""
    trace: StepTrace = field(repr=False)
    settings: AllocatorSettings = DEFAULTS

    @property
    def footprint(self) -> int:
        """Bytes of the whole process on the card: context plus reserved."""
        return self.context + self.peak_reserved

    def under(self, capacity: int, *, expandable_segments: bool | None = None) -> Outcome:
        """What the allocator would do if it might reserve `capacity` bytes.

        Below zero nothing fits: that is a budget smaller than the CUDA context.
        """
        expandable = self.settings.expandable_segments
        settings = replace(
            self.settings,
            capacity=max(capacity, 0),
            expandable_segments=expandable if expandable_segments is None else expandable_segments,
        )
        return _outcome(self.trace, replay_events(self.trace.stream, settings), capacity)

    def smallest_capacity(self) -> int:
        """Bytes the allocator has to be allowed, a multiple of 2 MiB; with 2 MiB less it fails."""
        return smallest_capacity(self.trace.stream, self.settings)

    @cached_property
    def timeline(self) -> Timeline:
        """Live bytes by category, event by event."""
        return timeline_of(self.trace)


def estimate_memory(
    build: Build,
    *,
    gpu: str | Card | None = None,
    warmup: int = 1,
    steps: int = 2,
    capacity: int | None = None,
    settings: AllocatorSettings = DEFAULTS,
) -> MemoryEstimate:
    """Estimate the peak memory of a step on a card, without one and without allocating.

    `build(device)` constructs model and optimizer on the device and returns a callable of no
    arguments that makes one step. Everything from the construction to the last of
    `warmup + steps` steps counts: what is reserved depends on what was there before.

    Args:
        gpu: a card of the catalogue; without one, the figures of a card of Ampere's generation.
        warmup: steps that fill the optimizer's state.
        steps: steps behind them.
        capacity: bytes the allocator may reserve, for `outcome`.
        settings: the allocator's, as in PYTORCH_CUDA_ALLOC_CONF.

    Raises:
        SizeError: an unknown card.
        ConfigError: fewer than one step in all.
        TraceError: the step needs data; the text names the operator.
    """
    card = find_card(gpu) if isinstance(gpu, str) else gpu
    trace = trace_step(build, card=card, warmup=warmup, steps=steps)
    return estimate_from_trace(trace, card=card, capacity=capacity, settings=settings)


def estimate_from_trace(
    trace: StepTrace,
    *,
    card: Card | None = None,
    capacity: int | None = None,
    settings: AllocatorSettings = DEFAULTS,
) -> MemoryEstimate:
    """The estimate from what a traced or metered step allocated."""
    replay = replay_events(trace.stream, replace(settings, capacity=None))
    peak_at = -1 if replay.allocated_peak_at is None else replay.allocated_peak_at
    parts, modules = Counter[str](), Counter[str]()
    for storage, size in trace.events.alive_after(peak_at).items():
        parts[trace.events.categories[storage]] += size
        modules[trace.events.modules[storage]] += size
    parts[FRAGMENTATION] = replay.peak_reserved - parts.total()
    phase, operation = trace.events.where(peak_at) if peak_at >= 0 else ("", "")
    estimate = MemoryEstimate(
        peak_allocated=replay.peak_allocated,
        peak_reserved=replay.peak_reserved,
        context=card.context if card else DEFAULT_CONTEXT,
        breakdown=dict(parts.most_common()),
        modules=dict(modules.most_common()),
        peak_phase=phase,
        peak_op=operation,
        trace=trace,
        settings=settings,
    )
    return estimate if capacity is None else replace(estimate, outcome=estimate.under(capacity))


def estimate_from_cpu(
    events: StorageEvents, card: Card | None = None, *, capacity: int | None = None
) -> MemoryEstimate:
    """The estimate for a card from what a real run on the CPU held.

    For a step that cannot be traced. The CPU's kernels keep what they keep there; what a card
    adds is its allocator, and a cuBLAS workspace for the forward and the backward thread.
    """
    workspace = card.cublas_workspace if card else DEFAULT_CUBLAS_WORKSPACE
    with_card = StorageEvents(
        operations=events.operations, categories=[*events.categories], modules=[*events.modules]
    )
    if len(events):  # nothing ran, so nothing asked cuBLAS for one
        for _ in range(2):
            with_card.add(with_card.born(WORKSPACES), workspace, 0, 0)
    with_card.storage += events.storage
    with_card.delta += events.delta
    with_card.phase += events.phase
    with_card.operation += events.operation
    return estimate_from_trace(StepTrace(with_card), card=card, capacity=capacity)


def _outcome(trace: StepTrace, replay: Replay, capacity: int) -> Outcome:
    if replay.oom is not None:
        at = replay.oom.event
        phase, operation = trace.events.where(at) if at is not None else ("", "")
        return Outcome(
            capacity=capacity,
            fit=Fit.DOES_NOT_FIT,
            phase=phase,
            operation=operation,
            missing=replay.oom.missing - min(capacity, 0),
        )
    if not replay.flushes:
        return Outcome(capacity=capacity, fit=Fit.FITS)
    counted = [event for event in replay.flushes if (event or 0) >= trace.steady_from]
    return Outcome(
        capacity=capacity,
        fit=Fit.FLUSHES,
        flushes_per_step=len(counted) / max(trace.steady_steps, 1),
    )

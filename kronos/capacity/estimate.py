"""What a training step would take on a card, told on a machine that has none.

The step runs on the CPU and its live tensor storage is metered; what a card adds is counted
on top: the allocator's rounding, one cuBLAS workspace for the forward and one for the backward
thread, and the CUDA context. Not yet counted: the allocator's fragmentation, and operators
whose CUDA kernels keep more or less than their CPU kernels do.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kronos.errors import ConfigError
from kronos.hardware import DEFAULT_CONTEXT, DEFAULT_CUBLAS_WORKSPACE, MIB, Card, find_card
from kronos.measure import MemoryMeter, MemoryReading

Step = Callable[[], object]
Build = Callable[[str], Step]

SEGMENT: Final = 2 * MIB
"""The CUDA caching allocator takes memory from the card in multiples of this."""
WORKSPACES: Final = "workspaces"
ROUNDING: Final = "rounding"
CONTEXT: Final = "CUDA context"


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryEstimate:
    """Bytes that a step would take on a card. Every figure is an estimate."""

    peak_allocated: int
    peak_reserved: int
    context: int
    breakdown: Mapping[str, int]
    """What fills the card at the peak, largest first; sums to `peak_reserved`."""
    peak_phase: str
    """"forward", "backward" or "optimizer"."""
    peak_op: str

    @property
    def footprint(self) -> int:
        """Bytes of the whole process on the card: context plus reserved."""
        return self.context + self.peak_reserved


def estimate_memory(
    build: Build, *, gpu: str | Card | None = None, warmup: int = 1, steps: int = 2
) -> MemoryEstimate:
    """Estimate the peak memory of a step on a card, without one.

    `build(device)` constructs model and optimizer on the device and returns a callable of no
    arguments that makes one step. Everything from the construction to the last of
    `warmup + steps` steps counts.

    Args:
        gpu: a card of the catalogue; without one, the figures of a card that is not Hopper.
        warmup: steps that fill the optimizer's state.
        steps: steps behind them.

    Raises:
        SizeError: an unknown card.
        ConfigError: fewer than one step in all.
    """
    if warmup + steps < 1:
        raise ConfigError(f"an estimate needs at least one step, got {warmup} + {steps}")
    card = find_card(gpu) if isinstance(gpu, str) else gpu
    with MemoryMeter("cpu") as meter:
        step = build("cpu")
        for _ in range(warmup + steps):
            step()
    return estimate_from_cpu(meter.reading, card)


def estimate_from_cpu(reading: MemoryReading, card: Card | None = None) -> MemoryEstimate:
    """The estimate for a card from what a run on the CPU held."""
    workspaces = 2 * (card.cublas_workspace if card else DEFAULT_CUBLAS_WORKSPACE)
    if not reading.rounded_allocated:
        workspaces = 0  # nothing ran, so nothing asked cuBLAS for one
    allocated = reading.rounded_allocated + workspaces
    reserved = -(-allocated // SEGMENT) * SEGMENT
    parts = dict(reading.categories) | {
        WORKSPACES: workspaces,
        ROUNDING: reserved - allocated,
    }
    return MemoryEstimate(
        peak_allocated=allocated,
        peak_reserved=reserved,
        context=card.context if card else DEFAULT_CONTEXT,
        breakdown=dict(sorted(parts.items(), key=lambda part: -part[1])),
        peak_phase=reading.phase or "",
        peak_op=reading.operation or "",
    )


def as_build(step_or_build: Callable[..., Any]) -> Build:
    """A `build(device) -> step` from one, or from a step of no arguments that is already built.

    A callable that needs an argument is a build. The other way round, a builder that forgot its
    `device` would be "run" without ever making a step, so what looks like one is refused.

    Raises:
        ConfigError: from the build returned here, where it returns no step, or from the step,
            where it returns one.
    """
    needed = [
        parameter
        for parameter in inspect.signature(step_or_build).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return (
        partial(_built, step_or_build)
        if needed
        else lambda device: partial(_stepped, step_or_build)
    )


def _built(build: Build, device: str) -> Step:
    step = build(device)
    if not callable(step):
        raise ConfigError(f"build(device) must return a step, a callable; it returned {step!r:.60}")
    return step


def _stepped(step: Step) -> object:
    result = step()
    if callable(result) and not isinstance(result, type):
        raise ConfigError(
            "a step of no arguments returned a callable; if it builds a step, let it take the "
            "device: build(device)"
        )
    return result

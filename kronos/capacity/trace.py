"""A training step traced without allocating: which storages it would take of a card, and when.

The step runs on fake tensors (shapes, no data) under the same meter that reads real ones on the
CPU. For a card it runs as the card would: CUDA's choice of kernels (`kernels.py`) and the memory
these take for themselves (`scratch.py`).
"""

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Final
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kronos.capacity.build import Build
from kronos.capacity.fake_card import FakeMachine, believing_in_a_card, without_initial_values
from kronos.capacity.fake_weights import weights_without_values
from kronos.capacity.kernels import as_cuda_does
from kronos.capacity.replay import EMPTY_CACHE, FREE, NOTHING, Event
from kronos.capacity.tracer import Tracer
from kronos.errors import ConfigError
from kronos.hardware import DEFAULT_CUBLAS_WORKSPACE, Card
from kronos.measure.events import NO_STORAGE, StorageEvents

_UNKNOWN_CARD_ARCHITECTURE: Final = "ampere"
_MOST_CACHED: Final = 20_000
"""PyTorch keeps the shapes of fake operators for good; a long session would fill the memory."""


@dataclass(frozen=True)
class StepTrace:
    """What a build and some steps allocated, in order."""

    events: StorageEvents
    starts: tuple[int, ...] = ()
    """The number of the first event of each step."""
    warmup: int = 0
    """How many of the steps only fill the optimizer's state."""

    @cached_property
    def stream(self) -> list[Event]:
        """The events in the words of `replay_events`, one for one."""
        return [
            (storage, delta, 0)
            if delta > 0
            else (storage, FREE, 0)
            if delta < 0
            else (storage, EMPTY_CACHE if storage == NO_STORAGE else NOTHING, 0)
            for storage, delta in zip(self.events.storage, self.events.delta, strict=True)
        ]

    @property
    def steady_from(self) -> int:
        """The number of the first event behind the warm-up."""
        behind = self.starts[self.warmup :]
        return behind[0] if behind else 0

    @property
    def steady_steps(self) -> int:
        """How many steps lie behind the warm-up."""
        return len(self.starts) - self.warmup


def trace_step(
    build: Build,
    *,
    device: str = "cuda",
    card: Card | None = None,
    warmup: int = 1,
    steps: int = 2,
    cublaslt_workspace: int = 0,
) -> StepTrace:
    """What `build(device)` and `warmup + steps` calls of the step it returns allocate.

    Args:
        device: "cuda" traces for a card, "cpu" for this machine.
        card: of which generation; one of Ampere's without it.
        cublaslt_workspace: bytes that a product with a bias takes for itself. 0 for releases of
            PyTorch that let it use cuBLAS's workspace, as today's do; 1 MiB for older ones.

    Raises:
        ConfigError: no step at all, or another device.
        TraceError: an operator needs data; the text names it.
    """
    if warmup + steps < 1:
        raise ConfigError(f"an estimate needs at least one step, got {warmup} + {steps}")
    if device not in ("cpu", "cuda"):
        raise ConfigError(f"a step is traced for cuda or cpu, got {device!r:.60}")
    with _fake_machine(device, card, cublaslt_workspace) as tracer:
        step = build(device)
        tracer.end_construction()
        starts = []
        for _ in range(warmup + steps):
            starts.append(len(tracer.events))
            step()
            gc.collect()
    return StepTrace(tracer.events, tuple(starts), warmup)


@contextmanager
def _fake_machine(device: str, card: Card | None, cublaslt: int) -> Iterator[Tracer]:
    architecture = card.architecture if card else _UNKNOWN_CARD_ARCHITECTURE
    workspace = card.cublas_workspace if card else DEFAULT_CUBLAS_WORKSPACE
    with ExitStack() as stack:
        stack.enter_context(_regular_garbage())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(without_initial_values())
        stack.enter_context(weights_without_values())
        machine = FakeMachine()
        if device == "cuda":
            stack.enter_context(believing_in_a_card(architecture))
            stack.enter_context(as_cuda_does(architecture))
        stack.enter_context(machine)
        tracer = stack.enter_context(Tracer(device, cublas=workspace, cublaslt=cublaslt))
        clear = tracer.in_order(torch.clear_autocast_cache)
        stack.enter_context(mock.patch.object(torch, "clear_autocast_cache", clear))
        if device == "cuda":
            stack.enter_context(mock.patch("torch.cuda.empty_cache", tracer.note_empty_cache))
        yield tracer


@contextmanager
def _regular_garbage() -> Iterator[None]:
    """Let cycles be collected where this module asks for it, so that a trace repeats exactly."""
    enabled = gc.isenabled()
    gc.freeze()  # what was there before is not looked through after each step
    gc.disable()
    try:
        yield
    finally:
        if len(FakeTensorMode.cache) > _MOST_CACHED:
            FakeTensorMode.cache_clear()
        gc.unfreeze()
        if enabled:
            gc.enable()

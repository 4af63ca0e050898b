"""Configurations of Kronos on cards that are not there: what they take, and what would help.

Nothing is trained and no weights are read: the training phase itself is traced
(`kronos.capacity`) on bars of zeros.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from kronos.capacity import AllocatorSettings, Build, MemoryEstimate, Outcome, estimate_memory
from kronos.checkpoint import build_models
from kronos.config import RunConfig
from kronos.data import BarArrays, Windows
from kronos.data.layout import FEATURES
from kronos.hardware import Card
from kronos.train.feed import RunData
from kronos.train.phase import forecaster_phase

_STAMPS: Final = 5
_FLOAT32: Final = 4
_EXPANDABLE: Final = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


def training_build(config: RunConfig) -> Build:
    """The forecaster's training of a configuration, as `build(device) -> step`."""
    drawn = config.model.model_copy(update={"pretrained": None})  # weights of the same shapes

    def build(device: str) -> Callable[[], object]:
        models = build_models(drawn, device=device, seed=config.training.seed)
        return forecaster_phase(models, _empty_bars(config), config.training)

    return build


def estimate_training(
    config: RunConfig,
    *,
    card: Card | None = None,
    capacity: int | None = None,
    settings: AllocatorSettings | None = None,
) -> MemoryEstimate:
    """What fine-tuning the forecaster takes of a card.

    Args:
        capacity: bytes the allocator may reserve, for the estimate's `outcome`.
    """
    return estimate_memory(
        training_build(config),
        gpu=card,
        capacity=capacity,
        settings=settings or AllocatorSettings(),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ThumbRule:
    """The usual rule of thumb in bytes: weights, one batch of input, and 3 x weights for AdamW."""

    weights: int
    inputs: int
    optimizer: int
    """One gradient and two moments for each weight."""

    @property
    def total(self) -> int:
        """Their sum. Activations, by far the most of a real step, are not in it."""
        return self.weights + self.inputs + self.optimizer


def rule_of_thumb(config: RunConfig, estimate: MemoryEstimate) -> ThumbRule:
    """The rule for a configuration, from the weights that the estimate counted."""
    training = config.training
    weights = estimate.breakdown.get("parameters", 0)
    inputs = training.window * training.batch_size * len(FEATURES) * _FLOAT32
    return ThumbRule(weights=weights, inputs=inputs, optimizer=3 * weights)


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """One change alone, traced anew."""

    name: str
    change: str
    """What to set."""
    peak_reserved: int
    footprint: int
    outcome: Outcome


def remedies(config: RunConfig, *, card: Card | None, capacity: int) -> Iterator[Remedy]:
    """What each change that saves memory would bring alone, under a capacity; one by one.

    Those the configuration has already are left out. Accumulation comes as half the batch in
    twice as many parts, which gives the same gradient.
    """
    training = config.training
    changes = {
        "checkpointing": ["training.checkpointing=block"],
        "mixed precision": ["training.precision=bf16"],
        "fused optimizer": ["training.fused_optimizer=true"],
    }
    if training.batch_size > 1:
        half, rest = divmod(training.batch_size, 2)
        if not rest:
            changes["accumulation"] = [
                f"training.batch_size={half}",
                f"training.accumulation={2 * training.accumulation}",
            ]
    for name, change in changes.items():
        changed = config.with_overrides(change)
        if changed != config:
            estimate = estimate_training(changed, card=card, capacity=capacity)
            yield _remedy(name, " ".join(change), estimate)
    expandable = AllocatorSettings(expandable_segments=True)
    estimate = estimate_training(config, card=card, capacity=capacity, settings=expandable)
    yield _remedy("expandable segments", _EXPANDABLE, estimate)


def largest_batch(config: RunConfig, *, card: Card | None, capacity: int) -> int | None:
    """The largest `training.batch_size` below the configured one that fits, None where not even 1.

    Found between a batch of 1 and the configured one by tracing, where a straight line between
    what is known guesses the answer.
    """

    def needs(batch: int) -> int:
        changed = config.with_overrides([f"training.batch_size={batch}"])
        return estimate_training(changed, card=card).smallest_capacity()

    low, high = 1, config.training.batch_size
    needed = {low: needs(low), high: needs(high)}
    if needed[low] > capacity:
        return None
    while high - low > 1:
        slope = (needed[high] - needed[low]) / (high - low)
        guess = low + int((capacity - needed[low]) / slope) if slope > 0 else low
        batch = min(max(guess, low + 1), high - 1)
        needed[batch] = needs(batch)
        low, high = (batch, high) if needed[batch] <= capacity else (low, batch)
    return high if needed[high] <= capacity else low


def _remedy(name: str, change: str, estimate: MemoryEstimate) -> Remedy:
    assert estimate.outcome is not None
    return Remedy(
        name=name,
        change=change,
        peak_reserved=estimate.peak_reserved,
        footprint=estimate.footprint,
        outcome=estimate.outcome,
    )


def _empty_bars(config: RunConfig) -> RunData:
    """Bars of zeros, as many as one batch needs, so that shapes and moves are the real ones."""
    training = config.training
    count = training.window + training.horizon + training.batch_size
    arrays = BarArrays(np.zeros((count, len(FEATURES))), np.zeros((count, _STAMPS), np.int64))
    windows = Windows(arrays, training.window, training.horizon)
    samples = range(training.batch_size)
    return RunData(pd.DataFrame(), windows, samples, samples)

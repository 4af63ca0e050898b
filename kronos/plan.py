"""Configurations of Kronos on cards that are not there: what they take.

Nothing is trained and no weights are read: the training phase itself is traced
(`kronos.capacity`) on bars of zeros.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from kronos.capacity import AllocatorSettings, Build, MemoryEstimate, estimate_memory
from kronos.checkpoint import build_models
from kronos.config import RunConfig
from kronos.data import Market
from kronos.data.columns import FEATURES
from kronos.data.timestamps import STAMPS
from kronos.hardware import Card
from kronos.train.data import RunData, windows_of
from kronos.train.phase import forecaster_phase
from kronos.train.tokens import empty_table

_FLOAT32: Final = 4


def training_build(config: RunConfig) -> Build:
    """The forecaster's training of a configuration, as `build(device) -> step`."""
    drawn = config.model.model_copy(update={"pretrained": None})  # weights of the same shapes

    def build(device: str) -> Callable[[], object]:
        models = build_models(drawn, device=device, seed=config.training.seed)
        data = _empty_bars(config)
        tokens = empty_table(data.windows) if config.data.precompute_tokens else None
        return forecaster_phase(models, data, config.training, tokens)

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


def _empty_bars(config: RunConfig) -> RunData:
    """Bars of zeros, as many as one batch needs, so that shapes and moves are the real ones."""
    training = config.training
    count = training.window + training.horizon + training.batch_size
    market = Market(
        symbols=("empty",),
        offsets=np.array([0, count]),
        times=np.arange(count),
        features=np.zeros((count, len(FEATURES))),
        stamps=np.zeros((count, len(STAMPS)), np.uint8),
        zone=None,
    )
    windows = windows_of(market, config)
    return RunData(windows, windows.starts, windows.starts)

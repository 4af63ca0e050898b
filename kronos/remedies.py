"""What makes a training fit a card: every change traced anew, none guessed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kronos.capacity import AllocatorSettings, MemoryEstimate, Outcome
from kronos.config import RunConfig
from kronos.hardware import Card
from kronos.plan import estimate_training

_EXPANDABLE: Final = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


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
    needed = {low: needs(low)}
    if needed[low] > capacity:
        return None
    needed[high] = needs(high)
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

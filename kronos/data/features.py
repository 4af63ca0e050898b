"""Which features a model could do without: what others tell already, and what it loses.

Axes: B samples, T bars, 6 features or 5 stamps.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kronos.data.columns import FEATURES
from kronos.data.timestamps import STAMPS
from kronos.data.windows import Batch, Windows

HiddenLoss = Callable[[Batch, Batch], float]
"""loss(shown, true): how badly a model that sees `shown` tells what comes next in `true`."""


@dataclass(frozen=True, slots=True)
class FeatureRank:
    """What one feature or time feature is worth."""

    name: str
    redundancy: float
    """The largest absolute correlation (Pearson) with another one of its kind, from 0 to 1;
    1 also for one that never changes."""
    told_by: str | None
    """The other one; None where it never changes, or there is no other."""
    effect: float | None
    """By how much the loss rises when it is hidden, held at its mean; None where no loss was
    given. Below 0 the model does better without it."""


def rank_features(
    windows: Windows, starts: NDArray[np.int64], loss: HiddenLoss | None = None
) -> list[FeatureRank]:
    """Rank features and time features on a sample of windows, the most dispensable first.

    Order: the least effect first where there is a loss, else the greatest redundancy first.
    `starts` (B,) are the bars at which the sample's windows begin. What was found with one model
    holds for it: a model trained without the feature may do better than one that misses it.
    """
    true = windows.batch(starts)
    shared = _redundancies(true.features.reshape(-1, len(FEATURES)).astype(np.float64), FEATURES)
    shared |= _redundancies(true.stamps.reshape(-1, len(STAMPS)).astype(np.float64), STAMPS)
    whole = 0.0 if loss is None else loss(true, true)
    ranks = [
        FeatureRank(
            name,
            redundancy,
            other,
            None if loss is None else loss(_hidden(true, name), true) - whole,
        )
        for name, (redundancy, other) in shared.items()
    ]
    return sorted(ranks, key=lambda rank: (rank.effect or 0.0, -rank.redundancy))


def _redundancies(
    columns: NDArray[np.float64], names: tuple[str, ...]
) -> dict[str, tuple[float, str | None]]:
    """For each column (N, columns) how much another one tells of it, and which."""
    centred = columns - columns.mean(axis=0)
    length = np.sqrt(np.square(centred).sum(axis=0))
    moves = np.ptp(columns, axis=0) > 0
    units = np.divide(centred, length, out=np.zeros_like(centred), where=moves)
    shared = np.abs(units.T @ units)  # columns columns
    np.fill_diagonal(shared, -1.0)
    found: dict[str, tuple[float, str | None]] = {}
    for place, name in enumerate(names):
        other = int(shared[place].argmax())
        told = min(float(shared[place, other]), 1.0)
        found[name] = (told, names[other]) if moves[place] else (1.0, None)
    return found


def _hidden(batch: Batch, name: str) -> Batch:
    """The batch as `Windows` gives it where the feature is not chosen."""
    if name in FEATURES:
        features = batch.features.copy()
        features[..., FEATURES.index(name)] = 0.0
        return replace(batch, features=features)
    stamps = batch.stamps.copy()
    stamps[..., STAMPS.index(name)] = 0
    return replace(batch, stamps=stamps)

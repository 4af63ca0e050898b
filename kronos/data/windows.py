"""Samples to learn from: windows over one series of bars, split in time and drawn in epochs.

One sample is `window` bars of lookback followed by `horizon` + 1 bars of targets. No window
crosses two series, since each `Windows` holds one.

Axes: N bars of the series, B samples of a batch, T = window + horizon + 1 bars of a sample,
6 features (open, high, low, close, volume, amount), 5 stamps (minute, hour, weekday, day,
month).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from kronos.data.bars import validate_bars
from kronos.data.layout import FEATURES
from kronos.data.timestamps import stamp_columns
from kronos.errors import ConfigError, DataError

STD_FLOOR = 1e-5
"""Added to each standard deviation, so that a flat column divides by something."""


@dataclass(frozen=True, slots=True, eq=False)
class BarArrays:
    """One series of bars as arrays that cannot be written to."""

    features: NDArray[np.float64]
    """(N, 6), as the file has them."""
    stamps: NDArray[np.int64]
    """(N, 5)"""

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, *, source: str = "bars") -> Self:
        """The arrays of a frame of bars, which is validated (DataError names `source`)."""
        bars = validate_bars(frame, source=source)
        features = bars[list(FEATURES)].to_numpy(dtype=np.float64, copy=True)
        stamps = np.array(stamp_columns(bars.index), dtype=np.int64)
        features.setflags(write=False)
        stamps.setflags(write=False)
        return cls(features, stamps)

    def __len__(self) -> int:
        return len(self.features)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """B samples of T bars, ready to be turned into tensors."""

    features: NDArray[np.float32]
    """(B, T, 6), in standard deviations of each sample's lookback, clipped."""
    stamps: NDArray[np.int64]
    """(B, T, 5)"""


class Windows:
    """Every window of one series of bars, normalised by its own lookback.

    Mean and standard deviation (float64, biased, plus 1e-5) of each column come from the first
    `window` bars of a sample alone, never from its targets; the whole sample is scaled by them
    and clipped to ±`clip`, as the predictor scales a history before it forecasts.

    Raises ConfigError for a window, horizon or clip below its least, DataError where the bars
    are fewer than one sample.
    """

    def __init__(self, bars: BarArrays, window: int, horizon: int, *, clip: float = 5.0) -> None:
        _check_sizes(window, horizon)
        if not clip > 0:
            raise ConfigError(f"clip must be greater than 0, got {clip}")
        self.bars = bars
        self.window = window
        self.horizon = horizon
        self.clip = clip
        self.sample_length = window + horizon + 1
        if len(bars) < self.sample_length:
            raise DataError(
                f"one sample takes {self.sample_length} bars (window {window} + horizon {horizon} "
                f"+ 1), got {len(bars)}; give more bars, or a smaller window or horizon"
            )

    def __len__(self) -> int:
        return len(self.bars) - self.sample_length + 1

    def batch(self, indices: ArrayLike) -> Batch:
        """The samples that begin at the bars `indices` (B,), gathered at once.

        Raises IndexError for an index outside [0, len(self)); negative ones do not wrap.
        """
        starts = np.asarray(indices, dtype=np.int64)
        outside = (starts < 0) | (starts >= len(self))
        if outside.any():
            raise IndexError(
                f"window {starts[outside][0]} is outside 0..{len(self) - 1} of {len(self)} windows"
            )
        rows = starts[:, None] + np.arange(self.sample_length)  # B T
        features = self._normalise(self.bars.features[rows])
        return Batch(features, self.bars.stamps[rows])

    def _normalise(self, samples: NDArray[np.float64]) -> NDArray[np.float32]:
        # Counted from each sample's first bar, a flat column is exactly 0 before its mean is
        # taken; the mean of 400 times 50000.1 is not exactly 50000.1.
        samples = samples - samples[:, :1]  # B T 6
        lookback = samples[:, : self.window]
        mean = lookback.mean(axis=1, keepdims=True)  # B 1 6
        std = lookback.std(axis=1, keepdims=True) + STD_FLOOR
        scaled = (samples - mean) / std
        return np.asarray(np.clip(scaled, -self.clip, self.clip), dtype=np.float32)


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """First bars of the windows to train on and to validate on."""

    train: range
    validation: range
    boundary: int
    """The bar at which validation targets begin."""


def split_by_time(
    n_bars: int,
    *,
    window: int,
    horizon: int,
    validation_share: float | None = None,
    boundary: int | None = None,
) -> TimeSplit:
    """Split the windows of a series of `n_bars` at one bar, so that no target is seen before.

    The rule: a window trains if all its bars lie before the boundary, and validates if all its
    targets (the bars behind its lookback) lie at or after it. So no bar that validation asks
    for is in any training sample, while a validation lookback may reach back into training
    bars, as a forecast's history does. The `horizon` windows whose targets straddle the
    boundary are in neither. All other windows are in exactly one.

    Give the boundary itself (a bar from 0), or the share of bars, rounded, that lie behind it.
    Raises ConfigError where neither or both are given, or a side would have no window.
    """
    _check_sizes(window, horizon)
    if (validation_share is None) == (boundary is None):
        raise ConfigError("give either validation_share or boundary, not both and not neither")
    if boundary is None:
        assert validation_share is not None
        if not 0 < validation_share < 1:
            raise ConfigError(f"validation_share must be between 0 and 1, got {validation_share}")
        boundary = n_bars - round(n_bars * validation_share)
    length = window + horizon + 1
    train = range(max(0, boundary - length + 1))
    validation = range(boundary - window, max(0, n_bars - length + 1))
    for name, windows, bars in (
        ("train", train, boundary),
        ("validate", validation, n_bars - boundary + window),
    ):
        if not windows:
            raise ConfigError(
                f"no window to {name} on: one takes {length} bars (window {window} + horizon "
                f"{horizon} + 1), and of {n_bars} bars split at {boundary} it may use {bars}; "
                "move the boundary, or give more bars, a smaller window or horizon"
            )
    return TimeSplit(train, validation, boundary)


class EpochSampler:
    """Batches of indices 0..n-1, each index once in an epoch, in an order that (seed, epoch) fixes.

    Raises ConfigError where a batch would be larger than n, or a number is below its least.
    """

    def __init__(self, n: int, batch_size: int, seed: int, *, drop_last: bool = False) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {batch_size}")
        if batch_size > n:
            raise ConfigError(
                f"batch_size {batch_size} is larger than the number of windows, {n}; "
                "lower batch_size or give more bars"
            )
        if seed < 0:
            raise ConfigError(f"seed must be at least 0, got {seed}")
        self.n = n
        self.batch_size = batch_size
        self.seed = seed
        self.drop_last = drop_last
        """Leave out the last batch of an epoch where it is smaller than the others."""

    @property
    def batches_per_epoch(self) -> int:
        """How many batches `batches` yields."""
        whole, rest = divmod(self.n, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def permutation(self, epoch: int) -> NDArray[np.int64]:
        """All indices in the order of `epoch` (from 0), (n,); the same in every process."""
        # spawn_key, not a list of two numbers: [5 + 2**32, 0] and [5, 1] are one seed to numpy
        sequence = np.random.SeedSequence(self.seed, spawn_key=(epoch,))
        return np.random.Generator(np.random.PCG64(sequence)).permutation(self.n)

    def batches(self, epoch: int) -> Iterator[NDArray[np.int64]]:
        """The index arrays of `epoch`, each (batch_size,), the last one perhaps shorter."""
        order = self.permutation(epoch)
        for number in range(self.batches_per_epoch):
            yield order[number * self.batch_size : (number + 1) * self.batch_size]


def _check_sizes(window: int, horizon: int) -> None:
    for name, value in (("window", window), ("horizon", horizon)):
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}")

"""Batches of a run's bars as tensors: an endless feed to train on, a fixed set to validate on."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from kronos import samples
from kronos.config import RunConfig, TrainingConfig
from kronos.data import BarArrays, EpochSampler, Windows, read_bars, split_by_time

IBM = "ibm"


class BarBatch(NamedTuple):
    """B samples of T bars on a device."""

    features: Tensor
    """(B, T, 6) float32, normalised."""
    stamps: Tensor
    """(B, T, 5) int64."""


class RunData(NamedTuple):
    """A run's bars, their windows, and which of these train and validate."""

    bars: pd.DataFrame
    windows: Windows
    train: range
    validation: range


def load_data(config: RunConfig) -> RunData:
    """Read a run's bars and divide its windows.

    Raises:
        DataError: bars that cannot be used.
        ConfigError: too few bars for one window on either side, or for one batch.
    """
    path = samples.ibm_daily() if config.data.bars == IBM else config.data.bars
    bars = read_bars(path)
    training = config.training
    split = split_by_time(
        len(bars),
        window=training.window,
        horizon=training.horizon,
        validation_share=config.data.validation_share,
    )
    arrays = BarArrays.from_frame(bars, source=str(path))
    windows = Windows(arrays, training.window, training.horizon)
    return RunData(bars, windows, split.train, split.validation)


class Feed:
    """Endless micro-batches of training windows, in an order that the seed fixes.

    Every epoch is a new permutation; a last batch that is not full is left out.
    """

    def __init__(self, data: RunData, training: TrainingConfig, device: str) -> None:
        self._data = data
        self._device = device
        self._sampler = EpochSampler(
            len(data.train), training.batch_size, training.seed, drop_last=True
        )
        self._batches = self._endless()

    def take(self, micro_batches: int) -> list[tuple[BarBatch, int]]:
        """The next micro-batches, each with its number of samples."""
        return [next(self._batches) for _ in range(micro_batches)]

    def _endless(self) -> Iterator[tuple[BarBatch, int]]:
        epoch = 0
        while True:
            for indices in self._sampler.batches(epoch):
                starts = indices + self._data.train.start
                yield bar_batch(self._data.windows, starts, self._device), len(starts)
            epoch += 1


def bar_batch(windows: Windows, starts: NDArray[np.int64], device: str) -> BarBatch:
    """The windows that begin at `starts`, as tensors on the device."""
    batch = windows.batch(starts)
    return BarBatch(
        torch.from_numpy(batch.features).to(device), torch.from_numpy(batch.stamps).to(device)
    )


def spread(windows: range, count: int) -> NDArray[np.int64]:
    """Up to `count` of the windows, evenly spread, the first and the last among them."""
    places = np.linspace(0, len(windows) - 1, min(count, len(windows))).round().astype(np.int64)
    return np.asarray(windows, dtype=np.int64)[places]

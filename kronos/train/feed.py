"""Batches of a run's bars as tensors: an endless feed to train on, a fixed set to validate on."""

import os
import warnings
from collections.abc import Iterator
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from kronos.config import TrainingConfig
from kronos.data import EpochSampler, Windows, WindowStarts
from kronos.measure import Stopwatch

_MOST_WORKERS: Final = 2


class BarBatch(NamedTuple):
    """B samples of T bars on a device."""

    features: Tensor
    """(B, T, 6) float32, normalised."""
    stamps: Tensor
    """(B, T, 5) int64."""


BatchT = TypeVar("BatchT", bound=tuple[Tensor, ...])


class BatchSource(Dataset[BatchT], Generic[BatchT]):
    """Whole batches of windows, by the numbers of the windows; a worker may hold a copy."""

    def __init__(self, starts: WindowStarts) -> None:
        self.starts = starts

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, numbers: NDArray[np.int64]) -> BatchT:
        return self.gather(self.starts.at(numbers))

    def gather(self, starts: NDArray[np.int64]) -> BatchT:
        """The batch of the windows that begin at these bars, on the CPU."""
        raise NotImplementedError


class BarSource(BatchSource[BarBatch]):
    """Batches of bars."""

    def __init__(self, windows: Windows, starts: WindowStarts) -> None:
        super().__init__(starts)
        self.windows = windows

    def gather(self, starts: NDArray[np.int64]) -> BarBatch:
        batch = self.windows.batch(starts)
        return BarBatch(torch.from_numpy(batch.features), torch.from_numpy(batch.stamps))


class Position(NamedTuple):
    """Where in its epochs a feed stands: the next batch."""

    epoch: int = 0
    batch: int = 0


class Feed(Generic[BatchT]):
    """Endless micro-batches of training windows, in an order that the seed fixes.

    Every epoch is a new permutation; a last batch that is not full is left out. With `workers`
    other processes gather the batches ahead of time; their number changes nothing else. `start`
    goes on in the middle of an epoch as if the batches before had been taken.
    """

    def __init__(
        self,
        source: BatchSource[BatchT],
        training: TrainingConfig,
        device: str,
        *,
        workers: int = 0,
        rank: int = 0,
        ranks: int = 1,
        start: Position = Position(),  # noqa: B008 - a tuple, which no call can change
    ) -> None:
        self._source = source
        self._device = torch.device(device)
        self._sampler = EpochSampler(
            len(source),
            training.batch_size,
            training.seed,
            samples=training.samples_per_epoch,
            ranks=ranks,
            drop_last=True,
        )
        self.position = start
        # nothing in it refers to this feed: dropping the feed is to end the workers at once
        self._batches = _gathered(
            source,
            _numbers(self._sampler, rank, start),
            workers,
            pinned=self._device.type == "cuda",
        )
        self._stopwatch = Stopwatch()
        self.seconds_waited = 0.0
        """What `take` took in all, until the batches were there and on their way to the device."""

    @property
    def batches_per_epoch(self) -> int:
        return self._sampler.batches_per_epoch

    def take(self, micro_batches: int) -> list[tuple[BatchT, int]]:
        """The next micro-batches, each with its number of samples."""
        batches, seconds = self._stopwatch.timed(
            lambda: [self._next() for _ in range(micro_batches)]
        )
        self.seconds_waited += seconds
        return batches

    def _next(self) -> tuple[BatchT, int]:
        batch = next(self._batches)
        epoch, number = self.position
        last = number + 1 == self.batches_per_epoch
        self.position = Position(epoch + 1) if last else Position(epoch, number + 1)
        return to_device(batch, self._device), len(batch[0])


def _numbers(sampler: EpochSampler, rank: int, start: Position) -> Iterator[NDArray[np.int64]]:
    """The batches' window numbers, epoch after epoch."""
    epoch, first = start
    while True:
        yield from sampler.batches(epoch, rank=rank, first=first)
        epoch, first = epoch + 1, 0


def _gathered(
    source: BatchSource[BatchT], numbers: Iterator[NDArray[np.int64]], workers: int, pinned: bool
) -> Iterator[BatchT]:
    """The batches of these numbers, in order. The workers end with the iterator."""
    if not workers:
        return (source[one] for one in numbers)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")  # more than cores
        loader: DataLoader[Any] = DataLoader(
            source,
            batch_size=None,  # an index is a whole batch
            sampler=numbers,
            num_workers=workers,
            pin_memory=pinned,
        )
        return iter(loader)


def to_device(batch: BatchT, device: torch.device | str) -> BatchT:
    """The batch with its tensors on the device; from pinned memory, without waiting for it."""
    return type(batch)(*(tensor.to(device, non_blocking=True) for tensor in batch))


def default_workers(cores: int | None = None) -> int:
    """How many processes gather batches, of the cores that this process may use: 0, 1 or 2.

    One gathers thousands of batches a second (`benchmarks/test_data_speed.py`), more than any
    step takes, so a machine with few cores keeps them for the step.
    """
    if cores is None:
        allowed = getattr(os, "sched_getaffinity", None)
        cores = len(allowed(0)) if allowed else os.cpu_count() or 1
    return min(_MOST_WORKERS, max(0, cores // 4))

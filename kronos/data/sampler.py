"""The order in which an epoch shows its windows, the same in every process."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kronos.errors import ConfigError


class EpochSampler:
    """Batches of the numbers 0..n-1, in an order that (seed, epoch) alone fixes.

    An epoch shows every number once, or `samples` of them, other ones in each epoch. Its order
    is cut into global batches of `batch_size` x `ranks` numbers, and each of these into one part
    for every rank: so R ranks of b samples see in each step what one rank of R x b sees.

    Raises ConfigError where a global batch would be larger than an epoch, or a number is out of
    its range.
    """

    def __init__(
        self,
        n: int,
        batch_size: int,
        seed: int,
        *,
        samples: int | None = None,
        ranks: int = 1,
        drop_last: bool = False,
    ) -> None:
        for name, value in (("batch_size", batch_size), ("ranks", ranks)):
            if value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}")
        if seed < 0:
            raise ConfigError(f"seed must be at least 0, got {seed}")
        if samples is not None and not 1 <= samples <= n:
            raise ConfigError(
                f"samples_per_epoch must be from 1 to the number of windows, {n}; got {samples}"
            )
        self.n = n
        self.batch_size = batch_size
        """Of one rank."""
        self.seed = seed
        self.samples = n if samples is None else samples
        """Numbers that an epoch shows, all ranks together."""
        self.ranks = ranks
        self.drop_last = drop_last
        """Leave out the last batch of an epoch where it is smaller than the others."""
        if batch_size * ranks > self.samples:
            on = f" on {ranks} ranks" if ranks > 1 else ""
            of = f"{n}" if samples is None else f"{n}, of which an epoch shows {samples}"
            raise ConfigError(
                f"batch_size {batch_size}{on} is larger than the number of windows, {of}; "
                "lower batch_size or give more bars"
            )

    @property
    def batches_per_epoch(self) -> int:
        """How many batches `batches` yields to each rank."""
        whole, rest = divmod(self.samples, self.batch_size * self.ranks)
        return whole + (rest > 0 and not self.drop_last)

    def permutation(self, epoch: int) -> NDArray[np.integer[Any]]:
        """The numbers of `epoch` (from 0) in their order, (samples,), in as few bytes as hold n."""
        # spawn_key, not a list of two numbers: [5 + 2**32, 0] and [5, 1] are one seed to numpy
        sequence = np.random.SeedSequence(self.seed, spawn_key=(epoch,))
        smallest: type[np.integer[Any]] = np.uint32 if self.n <= 2**32 else np.int64
        order: NDArray[np.integer[Any]] = np.arange(self.n, dtype=smallest)
        np.random.Generator(np.random.PCG64(sequence)).shuffle(order)
        # a copy, so that a short epoch does not hold the whole order
        return order if self.samples == self.n else order[: self.samples].copy()

    def batches(self, epoch: int, *, rank: int = 0, first: int = 0) -> Iterator[NDArray[np.int64]]:
        """The batches of `epoch` for one rank, from its batch number `first` on.

        Each is (batch_size,). The last one may be shorter, and is shared out evenly: every rank
        has equally many batches, though with fewer numbers than ranks some are empty.
        """
        order = self.permutation(epoch)
        together = self.batch_size * self.ranks
        for number in range(first, self.batches_per_epoch):
            batch = order[number * together : (number + 1) * together].astype(np.int64)
            yield np.array_split(batch, self.ranks)[rank]

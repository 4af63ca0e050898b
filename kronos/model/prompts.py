"""What is known of some series, side by side, as ids.

Axes: B series, R of them, N bars of the longest, F features.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kronos.model.tokenizer import KronosTokenizer

_BARS_AT_ONCE = 4096
"""Bars that go through the layers together: more only take more memory, and caches overflow."""


@dataclass(frozen=True)
class Prompts:
    """The ids and stamps of B series. Shorter ones are padded behind, with zeros."""

    s1: Tensor
    """(B, N) int64, the coarse ids."""
    s2: Tensor
    """(B, N) int64, the fine ids."""
    stamps: Tensor
    """(B, N, 5) int64, columns as `embedding.STAMP_SIZES`."""
    lengths: tuple[int, ...]
    """How many bars of each series there are, B numbers."""

    def to(self, device: torch.device) -> "Prompts":
        one = self.s1.to(device), self.s2.to(device), self.stamps.to(device)
        return Prompts(*one, self.lengths)

    def window(self, rows: slice, starts: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Ids (R, n), (R, n) and stamps (R, n, 5) of some series from a bar of each on.

        n is the longest rest; behind shorter ones stands anything.
        """
        longest = max(end - start for end, start in zip(self.lengths[rows], starts, strict=True))
        columns = torch.tensor(starts)[:, None] + torch.arange(longest)  # R n
        columns = columns.clamp(max=self.s1.shape[1] - 1).to(self.s1.device)
        s1, s2 = self.s1[rows].gather(1, columns), self.s2[rows].gather(1, columns)
        return s1, s2, torch.take_along_dim(self.stamps[rows], columns[..., None], dim=1)


def encode_prompts(
    tokenizer: KronosTokenizer,
    scores: Sequence[NDArray[np.float64]],
    stamps: Sequence[NDArray[np.int64]],
    max_context: int,
) -> Prompts:
    """The last `max_context` bars of each series as ids; all its bars are encoded.

    `scores`: normalised bars, (n, F) of each series. `stamps`: (n, 5) of each.
    """
    ids = _encoded(tokenizer, scores)
    kept = [(s1[-max_context:], s2[-max_context:]) for s1, s2 in ids]
    last = [torch.from_numpy(one[-max_context:]) for one in stamps]
    return Prompts(
        _padded([s1 for s1, _ in kept]),
        _padded([s2 for _, s2 in kept]),
        _padded(last),
        tuple(len(s1) for s1, _ in kept),
    )


def pieces(count: int, bars_of_each: int) -> Iterator[slice]:
    """Slices of `count` things of so many bars each, as many in one as go through together."""
    size = max(1, _BARS_AT_ONCE // max(1, bars_of_each))
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def _encoded(
    tokenizer: KronosTokenizer, scores: Sequence[NDArray[np.float64]]
) -> list[tuple[Tensor, Tensor]]:
    """Coarse and fine ids of each series, (n,) each, on the CPU."""
    weight = tokenizer.embed.weight
    found: dict[int, tuple[Tensor, Tensor]] = {}
    order = sorted(range(len(scores)), key=lambda number: len(scores[number]))
    for length, group in groupby(order, key=lambda number: len(scores[number])):
        members = list(group)  # together, since they need no padding
        for piece in pieces(len(members), length):
            several = torch.from_numpy(np.stack([scores[one] for one in members[piece]]))
            s1, s2 = tokenizer.encode_halves(several.to(weight.device, weight.dtype))
            found |= zip(members[piece], zip(s1.cpu(), s2.cpu(), strict=True), strict=True)
    return [found[number] for number in range(len(scores))]


def _padded(parts: list[Tensor]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)

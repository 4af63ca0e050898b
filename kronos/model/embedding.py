"""Embeddings of the forecaster: token pairs and calendar stamps.

Axes: B series, T bars, D width.
"""

import math

import torch
from torch import Tensor, nn

from kronos.model.linear import Linear

STAMP_SIZES = (("minute", 60), ("hour", 24), ("weekday", 7), ("day", 32), ("month", 13))
"""The stamp columns in order, each with the number of its rows; weekday has Monday = 0."""


class HierarchicalEmbedding(nn.Module):
    """A coarse and a fine id become one vector: both embeddings times sqrt(D), fused."""

    def __init__(self, s1_bits: int, s2_bits: int, d_model: int) -> None:
        super().__init__()
        self.scale = math.sqrt(d_model)
        self.emb_s1 = nn.Embedding(2**s1_bits, d_model)
        self.emb_s2 = nn.Embedding(2**s2_bits, d_model)
        self.fusion_proj = Linear(2 * d_model, d_model)

    def forward(self, s1_ids: Tensor, s2_ids: Tensor) -> Tensor:
        """Two (B, T) -> (B, T, D)."""
        pair = torch.cat((self.emb_s1(s1_ids), self.emb_s2(s2_ids)), dim=-1)  # B T 2D
        return self.fusion_proj(pair.mul_(self.scale))  # in place: nothing else needs the pair


class FixedEmbedding(nn.Module):
    """A table of sinusoids that is not trained; the weights name it `emb.weight`.

    Row p holds sin(p w_i) in the even and cos(p w_i) in the odd columns,
    w_i = 10000^(-2i/D) (Vaswani et al., arXiv 1706.03762). Loaded weights replace it.
    """

    def __init__(self, rows: int, d_model: int) -> None:
        super().__init__()
        self.emb = nn.Embedding(rows, d_model, _weight=sinusoids(rows, d_model))
        self.emb.weight.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T) int64 -> (B, T, D)."""
        return self.emb(x)


class TimeEmbedding(nn.Module):
    """The sum of one embedding for each stamp column; learned, or fixed sinusoids."""

    def __init__(self, d_model: int, learned: bool) -> None:
        super().__init__()
        for name, rows in STAMP_SIZES:
            table = nn.Embedding(rows, d_model) if learned else FixedEmbedding(rows, d_model)
            setattr(self, f"{name}_embed", table)

    def forward(self, stamp: Tensor) -> Tensor:
        """Stamps (B, T, 5), whole numbers of any dtype -> (B, T, D)."""
        columns = stamp.long().unbind(-1)
        tables = [getattr(self, f"{name}_embed") for name, _ in STAMP_SIZES]
        total: Tensor = tables[0](columns[0])
        for table, column in zip(tables[1:], columns[1:], strict=True):
            total = total + table(column)
        return total


def sinusoids(rows: int, d_model: int) -> Tensor:
    """(rows, D) float32, D even; see `FixedEmbedding`."""
    positions = torch.arange(rows, dtype=torch.float32)[:, None]
    rates = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    angles = positions * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)

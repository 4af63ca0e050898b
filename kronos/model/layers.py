"""The layers that tokenizer and forecaster share (arXiv 2508.02739; names as in the weights).

Axes: B series, T bars, D width, H heads, d width of one head, M width of the feed-forward.
Padding masks: True = padded, everywhere.
"""

from collections.abc import Callable, Iterable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from kronos.model.checks import checkpointing_mode, head_width
from kronos.model.linear import Linear

Rotation = tuple[Tensor, Tensor]
"""Cosines and sines of the positions, each (T, d/2) or broadcastable to (B, H, T, d/2), float32."""

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""What queries take from values: queries, keys and values (B, H, T, d) -> (B, H, T, d)."""


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) times a weight; the statistics are float32 in every precision."""

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        wide = _at_least_float32(x)
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * scale).to(x.dtype) * self.weight


class FeedForward(nn.Module):
    """SwiGLU without biases, `w2(silu(w1 x) * w3 x)`, dropout on the result."""

    def __init__(self, d_model: int, ff_dim: int, ffn_dropout_p: float = 0.0) -> None:
        super().__init__()
        self.w1 = Linear(d_model, ff_dim, bias=False)
        self.w3 = Linear(d_model, ff_dim, bias=False)
        self.w2 = Linear(ff_dim, d_model, bias=False)
        self.ffn_dropout = nn.Dropout(ffn_dropout_p)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x = cast_once(x)
        hidden = F.silu(self.w1(x)) * self.w3(x)  # B T M
        return self.ffn_dropout(self.w2(hidden))  # B T D


class RotaryEmbedding(nn.Module):
    """Rotary position embedding; the first half of a head is paired with its second half.

    `inv_freq` = 10000^(-2i/d) is saved with the weights and stays float32 whatever `.to(dtype)`
    is asked for: in bfloat16 neighbouring positions of a long window would merge. Nothing is
    cached, so any number of threads may share a model and a move of device needs no care.
    """

    inv_freq: Tensor

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        exponent = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        self.register_buffer("inv_freq", 1.0 / 10000.0**exponent)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "RotaryEmbedding":
        kept = self.inv_freq
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.inv_freq.dtype != torch.float32:
            self.inv_freq = kept.to(self.inv_freq.device)
        return self

    def forward(self, length: int) -> Rotation:
        """Cosines and sines, each (length, d/2) in float32, of the positions 0..length-1."""
        return self.at(torch.arange(length, device=self.inv_freq.device, dtype=torch.float32))

    def at(self, positions: Tensor) -> Rotation:
        """Cosines and sines, each (..., d/2) in float32, of float32 positions (...)."""
        # A product, not an outer or einsum: autocast would run those in half precision.
        angles = positions[..., None] * self.inv_freq  # ... d/2
        return angles.cos(), angles.sin()


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn each pair (x[i], x[i + d/2]) by its angle; (B, H, T, d) -> same shape and dtype.

    A half-precision x is promoted by the float32 tables and cast back at the end.
    """
    cos, sin = rotation
    first, second = x.chunk(2, dim=-1)  # B H T d/2 each
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return turned.to(x.dtype)


class SelfAttention(nn.Module):
    """Causal multi-head attention with rotary queries and keys."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        attn_dropout_p: float = 0.0,
        resid_dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        head_dim = head_width(d_model, n_heads)
        self.n_heads = n_heads
        self.attn_dropout_p = attn_dropout_p
        self.q_proj = Linear(d_model, d_model)
        self.k_proj = Linear(d_model, d_model)
        self.v_proj = Linear(d_model, d_model)
        self.out_proj = Linear(d_model, d_model)
        self.rotary = RotaryEmbedding(head_dim)
        self.resid_dropout = nn.Dropout(resid_dropout_p)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        rotation: Rotation | None = None,
        attend: Attend | None = None,
    ) -> Tensor:
        """(B, T, D) -> (B, T, D).

        `mask`: as `causal_mask` makes it; None is plain causality. `rotation`: the tables of
        `self.rotary(T)` where the caller has them already. `attend` replaces the attention
        itself, and the mask with it: a cache looks at more keys than x has.
        """
        x = cast_once(x)
        rotation = self.rotary(x.shape[1]) if rotation is None else rotation
        attend = partial(self._look_back, mask) if attend is None else attend
        heads = attend(
            rotate(split_heads(self.q_proj(x), self.n_heads), rotation),
            rotate(split_heads(self.k_proj(x), self.n_heads), rotation),
            split_heads(self.v_proj(x), self.n_heads),
        )  # B H T d
        return self.resid_dropout(self.out_proj(merge_heads(heads)))

    def _look_back(self, mask: Tensor | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        dropout = self.attn_dropout_p if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal=mask is None)


class TransformerBlock(nn.Module):
    """Pre-norm block: x + attention(norm1 x), then x + feed-forward(norm2 x)."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        ff_dim: int,
        ffn_dropout_p: float = 0.0,
        attn_dropout_p: float = 0.0,
        resid_dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm1 = RMSNorm(d_model)
        self.self_attn = SelfAttention(d_model, n_heads, attn_dropout_p, resid_dropout_p)
        self.norm2 = RMSNorm(d_model)
        self.ffn = FeedForward(d_model, ff_dim, ffn_dropout_p)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        rotation: Rotation | None = None,
        attend: Attend | None = None,
    ) -> Tensor:
        """(B, T, D) -> (B, T, D); `mask`, `rotation` and `attend` as in `SelfAttention`."""
        x = x + self.self_attn(self.norm1(x), mask, rotation, attend)
        return x + self.ffn(self.norm2(x))


def run_blocks(
    blocks: Iterable[nn.Module], x: Tensor, mask: Tensor | None = None, checkpointing: str = "off"
) -> Tensor:
    """Pass (B, T, D) through transformer blocks that share one rotation table.

    `checkpointing` "block" keeps only each block's input and computes the rest anew in the
    backward pass; "off" keeps all. The gradients are the same. ConfigError for other texts.
    """
    recompute = checkpointing_mode(checkpointing)
    rotation: Rotation | None = None
    for block in blocks:
        if rotation is None and isinstance(block, TransformerBlock):
            rotation = block.self_attn.rotary(x.shape[1])
        if recompute:
            x = checkpoint(block, x, mask, rotation, use_reentrant=False)
        else:
            x = block(x, mask, rotation)
    return x


def causal_mask(padding_mask: Tensor | None) -> Tensor | None:
    """Which keys a query may see, (B, 1, T, T) with True = seen; None where nothing is padded.

    `padding_mask`: (B, T), True (or nonzero) = padded. A padded key is hidden from all but
    itself: a row that sees nothing at all would be NaN in some attention kernels.
    """
    if padding_mask is None:
        return None
    length = padding_mask.shape[1]
    square = torch.ones(length, length, dtype=torch.bool, device=padding_mask.device)
    itself = torch.eye(length, dtype=torch.bool, device=padding_mask.device)
    visible = ~padding_mask.bool()[:, None, None, :]  # B 1 1 T
    return square.tril() & (visible | itself)  # B 1 T T


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """(B, T, D) -> (B, H, T, d), a view."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, H, T, d) -> (B, T, D)."""
    return x.transpose(1, 2).flatten(2)


def cast_once(x: Tensor) -> Tensor:
    """Under autocast, x in the autocast dtype; else x itself.

    Autocast casts the input of each Linear anew and keeps every copy for the backward pass.
    Where several Linears read the same x, one cast beforehand gives the same numbers from one.
    """
    kind = x.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):  # not on meta
        return x.to(torch.get_autocast_dtype(kind))
    return x


def _at_least_float32(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x

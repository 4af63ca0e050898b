"""The dependency layer: the fine id looks at the context through the coarse id.

Axes: B series, T bars, Q queries, D width, H = 4 heads, d width of one head.
Padding masks: True = padded, everywhere.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from kronos.model.checks import head_width
from kronos.model.layers import (
    RMSNorm,
    RotaryEmbedding,
    Rotation,
    cast_once,
    merge_heads,
    rotate,
    split_heads,
)
from kronos.model.linear import Linear

DEPENDENCY_HEADS = 4
"""The released weights have four heads here whatever `n_heads` says."""


class CrossAttention(nn.Module):
    """Multi-head attention from the sibling embedding to the context."""

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
        query: Tensor,
        context: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool,
        rotated: bool,
    ) -> Tensor:
        """Queries (B, Q, D) attend to the context (B, T, D); returns (B, Q, D).

        `mask`: True = seen, broadcastable to (B, H, Q, T); it already holds the causality if
        there is any, so `causal` counts only without one. `rotated`: queries and keys stand at
        positions 0..T-1 (then Q = T).
        """
        context = cast_once(context)
        q = split_heads(self.q_proj(query), self.n_heads)  # B H Q d
        k = split_heads(self.k_proj(context), self.n_heads)  # B H T d
        if rotated:
            rotation: Rotation = self.rotary(context.shape[1])
            q, k = rotate(q, rotation), rotate(k, rotation)
        heads = F.scaled_dot_product_attention(
            q,
            k,
            split_heads(self.v_proj(context), self.n_heads),
            attn_mask=mask,
            dropout_p=self.attn_dropout_p if self.training else 0.0,
            is_causal=causal and mask is None,
        )  # B H Q d
        return self.resid_dropout(self.out_proj(merge_heads(heads)))

    def keys_and_values(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """What `recall` looks at, of the context (B, T, D): two (B, H, T, d), not rotated."""
        k, v = self.k_proj(context), self.v_proj(context)
        return split_heads(k, self.n_heads), split_heads(v, self.n_heads)

    def recall(self, query: Tensor, look: Callable[[Tensor], Tensor]) -> Tensor:
        """Queries (B, Q, D), not rotated, attend by `look` to keys that it holds; (B, Q, D).

        `look`: queries (B, H, Q, d) -> what they take from the values, same shape.
        """
        heads = look(split_heads(self.q_proj(query), self.n_heads))
        return self.out_proj(merge_heads(heads))


class DependencyLayer(nn.Module):
    """norm(context + attention(sibling -> context)); what the fine logits are read from."""

    def __init__(
        self, d_model: int, attn_dropout_p: float = 0.0, resid_dropout_p: float = 0.0
    ) -> None:
        super().__init__()
        self.cross_attn = CrossAttention(d_model, DEPENDENCY_HEADS, attn_dropout_p, resid_dropout_p)
        self.norm = RMSNorm(d_model)

    def forward(self, context: Tensor, sibling: Tensor, mask: Tensor | None = None) -> Tensor:
        """One sibling for each bar, both (B, T, D) -> (B, T, D); causal.

        Queries and keys are rotated at positions 0..T-1. `mask`: as `layers.causal_mask`.
        """
        attended = self.cross_attn(sibling, context, mask, causal=True, rotated=True)
        return self.norm(context + attended)

    def look_everywhere(
        self, context: Tensor, sibling: Tensor, padding_mask: Tensor | None = None
    ) -> Tensor:
        """As `forward`, but each sibling sees the future too: the reference's evaluation."""
        mask = _visible(padding_mask)
        attended = self.cross_attn(sibling, context, mask, causal=False, rotated=True)
        return self.norm(context + attended)

    def one_step(
        self,
        context: Tensor,
        sibling: Tensor,
        padding_mask: Tensor | None = None,
        last_only: bool = False,
    ) -> Tensor:
        """One sibling (B, 1, D) sees the whole context (B, T, D) -> (B, T, D).

        Neither is rotated: the reference turns both by the angles of position 0, which changes
        nothing, and its released weights were used so. `last_only`: (B, 1, D), the last row.
        """
        mask = _visible(padding_mask)
        attended = self.cross_attn(sibling, context, mask, causal=False, rotated=False)
        return self.norm((context[:, -1:] if last_only else context) + attended)

    def recall(self, last: Tensor, sibling: Tensor, look: Callable[[Tensor], Tensor]) -> Tensor:
        """As `one_step` with `last_only`, of a context that `look` holds keys and values of.

        `last`: the context's last row; it and the sibling are (B, Q, D), one for each path.
        """
        return self.norm(last + self.cross_attn.recall(sibling, look))


def _visible(padding_mask: Tensor | None) -> Tensor | None:
    return None if padding_mask is None else ~padding_mask.bool()[:, None, None, :]  # B 1 1 T

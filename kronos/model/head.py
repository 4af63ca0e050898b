"""The two output heads and their loss.

Axes: B series, T bars, D width, V1 = 2^s1_bits coarse ids, V2 = 2^s2_bits fine ids.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kronos.model.linear import Linear

_IGNORED = -100
"""A target that the cross-entropy leaves out; no id is negative."""


class DualHead(nn.Module):
    """Logits over the coarse ids and, from the dependency layer's output, over the fine ids."""

    def __init__(self, s1_bits: int, s2_bits: int, d_model: int) -> None:
        super().__init__()
        self.proj_s1 = Linear(d_model, 2**s1_bits)
        self.proj_s2 = Linear(d_model, 2**s2_bits)

    def forward(self, context: Tensor) -> Tensor:
        """(B, T, D) -> coarse logits (B, T, V1)."""
        return self.proj_s1(context)

    def cond_forward(self, fused: Tensor) -> Tensor:
        """(B, T, D) -> fine logits (B, T, V2)."""
        return self.proj_s2(fused)

    def compute_loss(
        self,
        s1_logits: Tensor,
        s2_logits: Tensor,
        s1_targets: Tensor,
        s2_targets: Tensor,
        padding_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(loss, s1 cross-entropy, s2 cross-entropy) in nats, scalars; loss is their mean.

        Logits (B, T, V1) and (B, T, V2); targets (B, T); `padding_mask` (B, T), True = padded,
        left out of the mean. With everything padded the loss is NaN.
        """
        s1_loss = _cross_entropy(s1_logits, s1_targets, padding_mask)
        s2_loss = _cross_entropy(s2_logits, s2_targets, padding_mask)
        return (s1_loss + s2_loss) / 2, s1_loss, s2_loss


def _cross_entropy(logits: Tensor, targets: Tensor, padding_mask: Tensor | None) -> Tensor:
    if padding_mask is not None:  # masked, not selected: the shapes do not depend on the data
        targets = targets.masked_fill(padding_mask.bool(), _IGNORED)
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()  # a mean over many bars needs more digits than half precision
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=_IGNORED)

"""The forecaster: a causal transformer over pairs of ids (arXiv 2508.02739, section 3.2).

Axes: B series, T bars, Q queries, D width, V1 = 2^s1_bits coarse ids, V2 = 2^s2_bits fine ids.
Padding masks: True = padded, everywhere.
"""

import torch
from torch import Tensor, nn

from kronos.errors import ConfigError
from kronos.model.checks import code_bits, head_width, probability, whole
from kronos.model.dependency import DEPENDENCY_HEADS, DependencyLayer
from kronos.model.embedding import FixedEmbedding, HierarchicalEmbedding, TimeEmbedding
from kronos.model.head import DualHead
from kronos.model.hub import HubModel
from kronos.model.layers import RMSNorm, TransformerBlock, causal_mask, run_blocks


class Kronos(nn.Module, HubModel):
    """Predicts the next bar's coarse id, then its fine id given the coarse one.

    The arguments are the keys of `config.json` beside the weights. A setting that breaks a rule
    is a ConfigError; `d_model` must be divisible by 8, for the dependency layer's four heads of
    even width.
    """

    def __init__(
        self,
        s1_bits: int,
        s2_bits: int,
        n_layers: int,
        d_model: int,
        n_heads: int,
        ff_dim: int,
        ffn_dropout_p: float,
        attn_dropout_p: float,
        resid_dropout_p: float,
        token_dropout_p: float,
        learn_te: bool,
    ) -> None:
        super().__init__()
        s1_bits, s2_bits = code_bits(s1_bits, s2_bits)
        d_model, n_heads = whole("d_model", d_model), whole("n_heads", n_heads)
        ff_dim = whole("ff_dim", ff_dim)
        head_width(d_model, n_heads)
        head_width(d_model, DEPENDENCY_HEADS, "the dependency layer's 4 heads")
        attention_dropouts = (
            probability("attn_dropout_p", attn_dropout_p),
            probability("resid_dropout_p", resid_dropout_p),
        )
        dropouts = (probability("ffn_dropout_p", ffn_dropout_p), *attention_dropouts)
        if not isinstance(learn_te, bool):
            raise ConfigError(f"learn_te must be true or false, got {learn_te!r}")
        self.s1_bits, self.s2_bits, self.d_model = s1_bits, s2_bits, d_model
        self.embedding = HierarchicalEmbedding(s1_bits, s2_bits, d_model)
        self.time_emb = TimeEmbedding(d_model, learned=learn_te)
        self.token_drop = nn.Dropout(probability("token_dropout_p", token_dropout_p))
        self.transformer = nn.ModuleList(
            TransformerBlock(d_model, n_heads, ff_dim, *dropouts)
            for _ in range(whole("n_layers", n_layers))
        )
        self.norm = RMSNorm(d_model)
        self.dep_layer = DependencyLayer(d_model, *attention_dropouts)
        self.head = DualHead(s1_bits, s2_bits, d_model)
        _initialise(self)

    def forward(
        self,
        s1_ids: Tensor,
        s2_ids: Tensor,
        stamp: Tensor | None = None,
        padding_mask: Tensor | None = None,
        use_teacher_forcing: bool = False,
        s1_targets: Tensor | None = None,
        *,
        cross_attention_sees_future: bool = False,
        checkpointing: str = "off",
    ) -> tuple[Tensor, Tensor]:
        """Logits (B, T, V1) and (B, T, V2) of each following bar's ids.

        `s1_ids`, `s2_ids`: (B, T). `stamp`: (B, T, 5), columns as `embedding.STAMP_SIZES`.
        `padding_mask`: (B, T). The fine logits are conditioned on a coarse id drawn from the
        coarse logits, as the reference trains; with `use_teacher_forcing` on `s1_targets`
        (B, T), the coarse ids of the following bars.

        `cross_attention_sees_future` True repeats the reference's teacher-forced evaluation,
        whose fine logits look into the future. It is there to compare with, never to validate:
        here training and validation are both causal. `checkpointing`: "off" or "block", see
        `layers.run_blocks`.
        """
        mask = causal_mask(padding_mask)
        context = self._trunk(s1_ids, s2_ids, stamp, mask, checkpointing)  # B T D
        s1_logits = self.head(context)  # B T V1
        if not use_teacher_forcing:
            s1_targets = _draw(s1_logits)
        elif s1_targets is None:
            raise ConfigError("use_teacher_forcing needs s1_targets, the true coarse ids; got None")
        sibling = self.embedding.emb_s1(s1_targets)  # B T D, without the factor sqrt(D)
        if cross_attention_sees_future:
            fused = self.dep_layer.look_everywhere(context, sibling, padding_mask)
        else:
            fused = self.dep_layer(context, sibling, mask)
        return s1_logits, self.head.cond_forward(fused)

    def embed(self, s1_ids: Tensor, s2_ids: Tensor, stamp: Tensor | None = None) -> Tensor:
        """What the blocks are given, (B, T, D), of ids (B, T) and stamps (B, T, 5)."""
        x = self.embedding(s1_ids, s2_ids)  # B T D
        return x if stamp is None else x + self.time_emb(stamp)

    def decode_s1(
        self,
        s1_ids: Tensor,
        s2_ids: Tensor,
        stamp: Tensor | None = None,
        padding_mask: Tensor | None = None,
        *,
        last_only: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Coarse logits (B, T, V1) and the context (B, T, D) that `decode_s2` needs.

        Arguments as in `forward`. `last_only`: the logits of the last bar alone, (B, 1, V1).
        """
        context = self._trunk(s1_ids, s2_ids, stamp, causal_mask(padding_mask))
        return self.head(context[:, -1:] if last_only else context), context

    def decode_s2(
        self,
        context: Tensor,
        s1_ids: Tensor,
        padding_mask: Tensor | None = None,
        *,
        last_only: bool = False,
    ) -> Tensor:
        """Fine logits (B, T, V2), given the context (B, T, D) and coarse ids.

        `s1_ids` (B, 1): the coarse id of the bar being decoded, the usual case. It attends to
        the whole context, and neither it nor the context is rotated: the reference rotates both
        at position 0, which is the identity, and the released weights were used so. Only the
        last row predicts the next bar; `last_only` computes that one alone, (B, 1, V2).
        `s1_ids` (B, T) with T > 1: one for each bar, causal and rotated as in `forward`.
        """
        queries, length = s1_ids.shape[1], context.shape[1]
        if queries not in (1, length):
            raise ConfigError(
                f"s1_ids must have 1 column or one for each of the {length} bars, got {queries}"
            )
        sibling = self.embedding.emb_s1(s1_ids)  # B Q D
        if queries == 1:
            fused = self.dep_layer.one_step(context, sibling, padding_mask, last_only)
        else:
            fused = self.dep_layer(context, sibling, causal_mask(padding_mask))
            fused = fused[:, -1:] if last_only else fused
        return self.head.cond_forward(fused)

    def _trunk(
        self,
        s1_ids: Tensor,
        s2_ids: Tensor,
        stamp: Tensor | None,
        mask: Tensor | None,
        checkpointing: str = "off",
    ) -> Tensor:
        x = self.embed(s1_ids, s2_ids, stamp)
        x = run_blocks(self.transformer, self.token_drop(x), mask, checkpointing)
        return self.norm(x)


def _draw(logits: Tensor) -> Tensor:
    """One id for each row of (B, T, V), drawn from the softmax; no gradient."""
    with torch.no_grad():
        chances = torch.softmax(logits.float(), dim=-1).flatten(0, 1)  # B*T V
        return torch.multinomial(chances, 1).view(logits.shape[:-1])


def _initialise(model: Kronos) -> None:
    """Linear: xavier-normal, zero bias. Embeddings: normal(0, D^-0.5). Norms stay at 1.

    The sinusoids of a fixed time embedding are not touched.
    """
    fixed = {id(module.emb) for module in model.modules() if isinstance(module, FixedEmbedding)}
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_normal_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding) and id(module) not in fixed:
            nn.init.normal_(module.weight, mean=0.0, std=model.d_model**-0.5)

"""The tokenizer: bars to hierarchical binary codes and back (arXiv 2508.02739, section 3.1).

Axes: B series, T bars, D width, K = s1_bits + s2_bits code bits, F features of a bar.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from kronos.model.checks import probability, whole
from kronos.model.hub import HubModel
from kronos.model.layers import TransformerBlock, run_blocks
from kronos.model.linear import Linear
from kronos.model.quantizer import HierarchicalQuantizer, codes_of_bits

TokenizerOutput = tuple[tuple[Tensor, Tensor], Tensor, Tensor, Tensor]


class KronosTokenizer(nn.Module, HubModel):
    """A causal transformer autoencoder around a binary spherical quantizer.

    The arguments are the keys of `config.json` beside the weights. The encoder has
    `n_enc_layers` - 1 blocks and the decoder `n_dec_layers` - 1, as released. A setting that
    breaks a rule is a ConfigError.
    """

    def __init__(
        self,
        d_in: int,
        d_model: int,
        n_heads: int,
        ff_dim: int,
        n_enc_layers: int,
        n_dec_layers: int,
        ffn_dropout_p: float,
        attn_dropout_p: float,
        resid_dropout_p: float,
        s1_bits: int,
        s2_bits: int,
        beta: float,
        gamma0: float,
        gamma: float,
        zeta: float,
        group_size: int,
    ) -> None:
        super().__init__()
        d_in, d_model = whole("d_in", d_in), whole("d_model", d_model)
        n_heads, ff_dim = whole("n_heads", n_heads), whole("ff_dim", ff_dim)
        dropouts = (
            probability("ffn_dropout_p", ffn_dropout_p),
            probability("attn_dropout_p", attn_dropout_p),
            probability("resid_dropout_p", resid_dropout_p),
        )
        self.d_in, self.d_model = d_in, d_model

        def blocks(count: int) -> nn.ModuleList:
            block = TransformerBlock
            return nn.ModuleList(
                block(d_model, n_heads, ff_dim, *dropouts) for _ in range(count - 1)
            )

        self.tokenizer = HierarchicalQuantizer(
            s1_bits, s2_bits, beta, gamma0, gamma, zeta, group_size
        )
        self.s1_bits, self.s2_bits = self.tokenizer.s1_bits, self.tokenizer.s2_bits
        bits = self.s1_bits + self.s2_bits
        self.embed = Linear(d_in, d_model)
        self.encoder = blocks(whole("n_enc_layers", n_enc_layers))
        self.quant_embed = Linear(d_model, bits)
        self.post_quant_embed_pre = Linear(self.s1_bits, d_model)
        self.post_quant_embed = Linear(bits, d_model)
        self.decoder = blocks(whole("n_dec_layers", n_dec_layers))
        self.head = Linear(d_model, d_in)

    def forward(self, x: Tensor, *, checkpointing: str = "off") -> TokenizerOutput:
        """Quantize and reconstruct normalised bars x (B, T, F).

        Returns ((z_pre, z), loss, codes, ids): the reconstructions (B, T, F) from the coarse
        half and from all bits; the quantizer's loss, a scalar; the codes (B, T, K), ±1/sqrt(K);
        the joined ids (B, T). `checkpointing`: "off" or "block", see `layers.run_blocks`.
        """
        codes, loss, bits = self.tokenizer(self._pre_quant(x, checkpointing))
        coarse = self.post_quant_embed_pre(codes[..., : self.s1_bits])  # B T D
        z_pre = self._reconstruct(coarse, checkpointing)
        z = self._reconstruct(self.post_quant_embed(codes), checkpointing)
        ids = self.tokenizer.join(*self.tokenizer.ids(bits))
        return (z_pre, z), loss, codes, ids

    def training_loss(self, x: Tensor, *, checkpointing: str = "off") -> Tensor:
        """(mse(z_pre, x) + mse(z, x) + quantizer loss) / 2, a scalar; it may be negative."""
        (z_pre, z), loss, _, _ = self(x, checkpointing=checkpointing)
        return (F.mse_loss(z_pre, x) + F.mse_loss(z, x) + loss) / 2

    def encode(self, x: Tensor, half: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Ids of normalised bars x (B, T, F), int64.

        `half` True: (s1_ids, s2_ids), each (B, T). False: one id (B, T), s1 in the low bits.
        """
        s1_ids, s2_ids = self.encode_halves(x)
        return (s1_ids, s2_ids) if half else self.tokenizer.join(s1_ids, s2_ids)

    def encode_halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(s1_ids, s2_ids), each (B, T), of normalised bars x (B, T, F)."""
        return self.tokenizer.ids(self._pre_quant(x) > 0)

    def decode(self, ids: Tensor | tuple[Tensor, Tensor], half: bool = False) -> Tensor:
        """The inverse of `encode`, up to quantization: normalised bars (B, T, F).

        `half` True: `ids` is (s1_ids, s2_ids). False: `ids` is the one joined id.
        """
        s1_ids, s2_ids = ids if half else self.tokenizer.split(ids)  # type: ignore[arg-type]
        return self._reconstruct(self.embed_ids(s1_ids, s2_ids))

    def embed_ids(self, s1_ids: Tensor, s2_ids: Tensor) -> Tensor:
        """What the decoder's blocks are given, (B, T, D), of ids (B, T)."""
        bits = self.tokenizer.bits(s1_ids, s2_ids)
        return self.post_quant_embed(codes_of_bits(bits, self.post_quant_embed.weight.dtype))

    def _pre_quant(self, x: Tensor, checkpointing: str = "off") -> Tensor:
        hidden = run_blocks(self.encoder, self.embed(x), checkpointing=checkpointing)  # B T D
        return self.quant_embed(hidden)  # B T K

    def _reconstruct(self, embedded: Tensor, checkpointing: str = "off") -> Tensor:
        hidden = run_blocks(self.decoder, embedded, checkpointing=checkpointing)  # B T D
        return self.head(hidden)  # B T F

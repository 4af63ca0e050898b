"""Binary spherical quantization: a vector becomes K signs (arXiv 2508.02739, BSQ).

Axes: B series, T bars, K = s1_bits + s2_bits code bits. A half is the first s1_bits (coarse)
or the last s2_bits (fine). Ids: within a half, bit i of the half counts 2^i.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kronos.errors import ConfigError
from kronos.model.checks import code_bits, real, whole


class BinarySphericalQuantizer(nn.Module):
    """Signs of a unit vector, with commitment and entropy losses.

    The two buffers, powers of two from the highest down, are part of the released weights and
    carry no meaning here: ids are read with `bits_to_ids`.
    """

    basis: Tensor
    group_basis: Tensor

    def __init__(
        self, bits: int, beta: float, gamma0: float, gamma: float, zeta: float, group_size: int
    ) -> None:
        super().__init__()
        group_size = whole("group_size", group_size)
        if bits % group_size:
            raise ConfigError(
                f"s1_bits + s2_bits must be divisible by group_size: "
                f"{bits} / {group_size} is not whole"
            )
        self.beta = real("beta", beta)
        self.gamma0 = real("gamma0", gamma0)
        self.gamma = real("gamma", gamma)
        self.zeta = real("zeta", zeta)
        self.register_buffer("basis", 2 ** torch.arange(bits - 1, -1, -1))
        self.register_buffer("group_basis", 2 ** torch.arange(group_size - 1, -1, -1))

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Quantize unit vectors z (B, T, K).

        Returns the codes ±1/sqrt(K) (B, T, K), the loss, a scalar, and the bits (B, T, K),
        bool, True where z > 0. The gradient passes straight through the sign, not through the
        factor 1/sqrt(K) behind it: a code's gradient reaches z times 1/sqrt(K).
        """
        bits = z > 0
        codes = codes_of_bits(bits, z.dtype)
        loss = self.beta * (codes - z).square().sum(-1).mean() + self.zeta * self._entropy(z)
        through = z * z.shape[-1] ** -0.5
        return through + (codes - through).detach(), loss, bits

    def _entropy(self, z: Tensor) -> Tensor:
        """gamma0 * entropy of each position - gamma * entropy of the batch's mean, scalar.

        The bits are independent given z, so the entropy of a code is the sum over its bits.
        """
        soft = torch.sigmoid(z * (-4.0 / z.shape[-1] ** 0.5))  # B T K, chance of each bit
        sample = _binary_entropy(soft).sum(-1).mean()
        codebook = _binary_entropy(soft.flatten(0, -2).mean(0)).sum()
        return self.gamma0 * sample - self.gamma * codebook


class HierarchicalQuantizer(nn.Module):
    """A code of two halves; the weights name the quantizer proper `tokenizer.bsq`."""

    def __init__(
        self,
        s1_bits: int,
        s2_bits: int,
        beta: float,
        gamma0: float,
        gamma: float,
        zeta: float,
        group_size: int,
    ) -> None:
        super().__init__()
        self.s1_bits, self.s2_bits = code_bits(s1_bits, s2_bits)
        self.bsq = BinarySphericalQuantizer(
            self.s1_bits + self.s2_bits, beta, gamma0, gamma, zeta, group_size
        )

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Any z (B, T, K), made a unit vector first; returns as `BinarySphericalQuantizer`."""
        return self.bsq(F.normalize(z, dim=-1))

    def ids(self, bits: Tensor) -> tuple[Tensor, Tensor]:
        """Bits (B, T, K) -> s1 ids and s2 ids, each (B, T), int64."""
        first, second = bits.split((self.s1_bits, self.s2_bits), dim=-1)
        return bits_to_ids(first), bits_to_ids(second)

    def bits(self, s1_ids: Tensor, s2_ids: Tensor) -> Tensor:
        """The inverse of `ids`: two (B, T) -> bits (B, T, K), bool."""
        first, second = ids_to_bits(s1_ids, self.s1_bits), ids_to_bits(s2_ids, self.s2_bits)
        return torch.cat((first, second), dim=-1)

    def join(self, s1_ids: Tensor, s2_ids: Tensor) -> Tensor:
        """One id for both halves, s1 in the low bits: s1 | s2 << s1_bits."""
        return s1_ids | (s2_ids << self.s1_bits)

    def split(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The inverse of `join`."""
        return ids & ((1 << self.s1_bits) - 1), ids >> self.s1_bits


def bits_to_ids(bits: Tensor) -> Tensor:
    """(..., n) bool -> (...) int64; bit i counts 2^i, the lowest first."""
    shifts = torch.arange(bits.shape[-1], device=bits.device)
    return (bits.long() << shifts).sum(-1)


def ids_to_bits(ids: Tensor, count: int) -> Tensor:
    """(...) int64 -> (..., count) bool; the inverse of `bits_to_ids`."""
    shifts = torch.arange(count, device=ids.device)
    return ((ids[..., None] >> shifts) & 1).bool()


def codes_of_bits(bits: Tensor, dtype: torch.dtype) -> Tensor:
    """(..., K) bool -> ±1/sqrt(K) in `dtype`, the corners of the cube in the unit sphere."""
    return (bits.to(dtype) * 2 - 1) * bits.shape[-1] ** -0.5


def _binary_entropy(p: Tensor) -> Tensor:
    """-p log p - (1 - p) log(1 - p), each log guarded by 1e-8 as in the reference."""
    other = 1 - p
    return -(p * torch.log(p + 1e-8) + other * torch.log(other + 1e-8))

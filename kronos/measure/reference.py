"""The frozen reference workload that step times are compared with across machines.

A step's relative cost is its time over the time of this workload, measured in turn with it
in one process. It must never change: every golden's `relative_step_cost` is in its units.
"""

from typing import Final

import torch
from torch.nn.functional import scaled_dot_product_attention, silu

_LAYERS: Final = 4
_SERIES, _POSITIONS, _WIDTH, _HEADS, _HIDDEN = 16, 64, 128, 4, 256


class ReferenceWorkload:
    """One training step of four small transformer layers, written in plain torch.

    `precision` is "float32", or "bf16" for bfloat16 autocast: a step in bfloat16 must be
    compared with one, since a CPU with instructions for it is several times as fast as one
    without.

    It mixes what training steps are made of: matrix products, attention, elementwise passes,
    many small operators and an update of the weights. Weights and input are drawn once, from
    a fixed seed, without touching the global random state.
    """

    def __init__(self, device: str = "cpu", precision: str = "float32") -> None:
        self._autocast = torch.autocast(
            device.partition(":")[0], torch.bfloat16, enabled=precision == "bf16"
        )
        generator = torch.Generator().manual_seed(0)

        def draw(*shape: int) -> torch.Tensor:
            return (torch.randn(*shape, generator=generator) * shape[-1] ** -0.5).to(device)

        self._input = draw(_SERIES, _POSITIONS, _WIDTH)
        self._weights = [
            draw(*shape).requires_grad_()
            for _ in range(_LAYERS)
            for shape in ((_WIDTH, 3 * _WIDTH), (_WIDTH, _HIDDEN), (_HIDDEN, _WIDTH))
        ]

    def __call__(self) -> None:
        """One step: forward, backward, and an update too small to matter."""
        state = self._input
        layers = zip(*(self._weights[start::3] for start in range(3)), strict=True)
        with self._autocast:
            for mix, up, down in layers:
                state = state + self._attend(_normalised(state) @ mix)
                state = state + silu(_normalised(state) @ up) @ down
            loss = state.square().mean()
        loss.backward()
        with torch.no_grad():
            for weight in self._weights:
                if weight.grad is not None:
                    weight -= 1e-12 * weight.grad
                weight.grad = None

    @staticmethod
    def _attend(mixed: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.unflatten(-1, (_HEADS, -1)).transpose(1, 2) for part in mixed.chunk(3, dim=-1)
        )
        attended = scaled_dot_product_attention(query, key, value, is_causal=True)
        return attended.transpose(1, 2).flatten(2)


def _normalised(state: torch.Tensor) -> torch.Tensor:
    return state * (state.square().mean(dim=-1, keepdim=True) + 1e-5).rsqrt()

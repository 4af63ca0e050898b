"""Where CUDA computes one thing by other operators than the CPU does.

`as_cuda_does` registers CUDA's choices under the CPU's keys for as long as it is entered: which
kernel attends, that dropout keeps a bool mask, which operators autocast runs in which precision.
They are from PyTorch's sources (aten/src/ATen/native/transformers, autocast_mode.h);
`benchmarks/gpu_check.py` holds them against a card.

Axes: B series, H heads, T queries, S keys, d width of one head.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from kronos.capacity.autocast import autocast_kernels

_aten: Final = torch.ops.aten
_HALF: Final = (torch.float16, torch.bfloat16)
_FLASH_ALIGNMENT: Final = 8
_MASK_ALIGNMENT: Final = 8
_FLASH_WIDEST: Final = 256

Kernel = Callable[..., Any]


@contextmanager
def as_cuda_does(architecture: str) -> Iterator[None]:
    """Let composite operators choose as they do on a card of that generation.

    Process-wide while entered, so not for several threads.
    """
    library = torch.library.Library("aten", "IMPL")
    try:
        with autocast_kernels() as casting, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that a kernel is replaced
            for name, kernel in casting.items():
                library.impl(name, kernel, "AutocastCPU")
            for name, kernel in _composites(architecture).items():
                library.impl(name, kernel, "AutogradCPU")
            yield
    finally:
        library._destroy()


def _composites(architecture: str) -> dict[str, Kernel]:
    def attend(query: Tensor, key: Tensor, value: Tensor, *args: Any, **options: Any) -> Tensor:
        return _attend(architecture, query, key, value, *args, **options)

    return {"dropout": _dropout, "scaled_dot_product_attention": attend}


def _dropout(x: Tensor, p: float, train: bool) -> Tensor:
    """CUDA's fused kernel; its bool mask is all that is kept for the backward pass."""
    if not train or p == 0 or x.numel() == 0:
        return x
    if p == 1:
        return x * torch.zeros((), dtype=x.dtype, device=x.device)
    return _aten.native_dropout(x, p, train)[0]


def _attend(
    architecture: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """(B, H, T, d), (B, H, S, d), (B, H, S, d) -> (B, H, T, d), by the kernel CUDA would take."""
    mask = _additive(attn_mask, query.dtype)
    if _flash_can(architecture, query, key, value, mask, is_causal):
        width = query.shape[-1]
        scale = width**-0.5 if scale is None else scale
        padded = (_padded(x, _FLASH_ALIGNMENT) for x in (query, key, value))
        out = _aten._scaled_dot_product_flash_attention(
            *padded, dropout_p, is_causal, False, scale=scale
        )[0]
        return out if out.shape[-1] == width else out[..., :width]
    if _efficient_can(architecture, query, key, value, enable_gqa):
        tracked = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value))
        bias = None if mask is None else _bias(mask, query, key)
        return _aten._scaled_dot_product_efficient_attention(
            query, key, value, bias, tracked, dropout_p, is_causal, scale=scale
        )[0]
    return _aten._scaled_dot_product_attention_math(
        query, key, value, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )[0]


def _flash_can(
    architecture: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    is_causal: bool,
) -> bool:
    return (
        torch.backends.cuda.flash_sdp_enabled()
        and architecture != "turing"
        and mask is None
        and query.dim() == 4
        and query.dtype in _HALF
        and query.shape[-1] == key.shape[-1] == value.shape[-1] <= _FLASH_WIDEST
        and not (is_causal and query.shape[-2] != key.shape[-2])
    )


def _efficient_can(
    architecture: str, query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool
) -> bool:
    half = query.dtype in _HALF
    alignment = 8 if half else 1 if architecture == "turing" else 4
    return (
        torch.backends.cuda.mem_efficient_sdp_enabled()
        and query.dim() == 4
        and not enable_gqa
        and (half or query.dtype is torch.float32)
        and not (query.dtype is torch.bfloat16 and architecture == "turing")
        and query.shape[:2] == key.shape[:2] == value.shape[:2]
        and query.shape[-1] % alignment == 0
        and value.shape[-1] % alignment == 0
    )


def _padded(x: Tensor, alignment: int) -> Tensor:
    missing = -x.shape[-1] % alignment
    return pad(x, (0, missing)) if missing else x


def _additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A bool mask as 0 and minus infinity."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    zero = torch.zeros((), dtype=dtype, device=mask.device)
    return torch.where(mask.logical_not(), float("-inf"), zero)


def _bias(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """(B, H, T, S), rows aligned as the kernel wants them."""
    if any(stride % _MASK_ALIGNMENT for stride in mask.stride()[:-1]):
        mask = _padded(mask, _MASK_ALIGNMENT)[..., : mask.shape[-1]]
    return mask.expand(*query.shape[:-1], key.shape[-2])

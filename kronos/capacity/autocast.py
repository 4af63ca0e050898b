"""CUDA's autocast rules for tensors whose C++ takes them for the CPU's.

The lists are CUDA's (aten/src/ATen/autocast_mode.h); where the CPU has the same rule, PyTorch's
own kernel stays. Operators that only the CPU's list names run as they are.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final
from unittest import mock

import torch
from torch import Tensor

from kronos.capacity.fake_card import on_card

Kernel = Callable[..., Any]

_aten: Final = torch.ops.aten

_IN_HALF: Final = """
    _convolution convolution _thnn_fused_gru_cell _thnn_fused_lstm_cell addmv addr chain_matmul
    einsum gru_cell linalg_multi_dot lstm_cell mv rnn_relu_cell rnn_tanh_cell
""".split()

_IN_FLOAT32: Final = """
    acos asin cosh cosine_similarity dist erfinv exp expm1 frobenius_norm.dim group_norm
    layer_norm log log10 log1p log2 logsumexp native_layer_norm nuclear_norm nuclear_norm.dim
    pdist pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor reciprocal renorm rms_norm rsqrt sinh
    softplus tan upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d
    upsample_nearest2d upsample_nearest3d upsample_trilinear3d _upsample_bicubic2d_aa
    _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d
""".split()

_TO_FLOAT32: Final = """
    cumprod cumsum linalg_matrix_norm linalg_matrix_norm.str_ord linalg_vector_norm
    log_softmax.int softmax.int sum sum.dim_IntList
""".split()
"""They take a half-precision tensor as it is and give float32, by their argument `dtype`."""

_IN_THE_WIDEST: Final = """
    addcdiv addcmul atan2 bilinear cross dot index_put scatter_add tensordot vdot
""".split()


@contextmanager
def autocast_kernels() -> Iterator[dict[str, Kernel]]:
    """Kernels by operator name, to register; weight casts are kept as autocast keeps its own."""
    cache: dict[int, tuple[Tensor, Tensor]] = {}  # the weight too, so that its id stays its own
    rules: dict[str, Kernel] = {
        **{name: partial(_in_half, cache, _operator(name)) for name in _known(_IN_HALF)},
        **{name: partial(_in_float32, _operator(name)) for name in _known(_IN_FLOAT32)},
        **{name: partial(_to_float32, _operator(name)) for name in _known(_TO_FLOAT32)},
        **{name: partial(_in_the_widest, _operator(name)) for name in _known(_IN_THE_WIDEST)},
        **dict.fromkeys(_of_the_cpu_alone(), torch.library.fallthrough_kernel),
    }
    clear = torch.clear_autocast_cache

    def clear_both() -> None:
        cache.clear()
        clear()

    with mock.patch.object(torch, "clear_autocast_cache", clear_both):
        yield rules


def _known(names: list[str]) -> Iterator[str]:
    """Those that this release of PyTorch has."""
    return (name for name in names if hasattr(_aten, name.split(".")[0]))


def _operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(_aten, packet), overload or "default")


def _of_the_cpu_alone() -> list[str]:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    return [
        name.removeprefix("aten::")
        for name in names
        if has(name, "AutocastCPU") and not has(name, "AutocastCUDA")
    ]


def _in_half(cache: dict[int, tuple[Tensor, Tensor]], func: Any, *args: Any, **options: Any) -> Any:
    dtype = torch.get_autocast_dtype("cpu")

    def cast(x: Tensor) -> Tensor:
        kept = torch.is_autocast_cache_enabled() and x.is_leaf and x.requires_grad
        if x.dtype is not torch.float32 or not kept:
            return x.to(dtype)
        if id(x) not in cache:
            cache[id(x)] = (x, x.to(dtype))
        return cache[id(x)][1]

    return _run(func, *_cast(args, cast), **options)


def _in_float32(func: Any, *args: Any, **options: Any) -> Any:
    return _run(func, *_cast(args, Tensor.float), **options)


def _to_float32(func: Any, x: Tensor, *args: Any, **options: Any) -> Any:
    if not _eligible(x) or "dtype" in options or any(isinstance(a, torch.dtype) for a in args):
        return _run(func, x, *args, **options)
    if func in (_aten.softmax.int, _aten.log_softmax.int) and x.dtype is torch.float16:
        packet = _aten._softmax if func is _aten.softmax.int else _aten._log_softmax
        return _run(packet, x, *args[:1], True)  # one kernel reads half and writes float
    return _run(func, x, *args, **options, dtype=torch.float32)


def _in_the_widest(func: Any, *args: Any, **options: Any) -> Any:
    dtypes = {x.dtype for x in _eligible_among(args)}
    widest = torch.float32 if torch.float32 in dtypes else torch.get_autocast_dtype("cpu")
    return _run(func, *_cast(args, lambda x: x.to(widest)), **options)


def _run(func: Any, *args: Any, **options: Any) -> Any:
    below = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    with torch._C._ExcludeDispatchKeyGuard(below):
        return func(*args, **options)


def _eligible(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and on_card(value)
        and value.is_floating_point()
        and value.dtype is not torch.float64
    )


def _eligible_among(args: Any) -> Iterator[Tensor]:
    for value in args:
        if isinstance(value, list | tuple):
            yield from _eligible_among(value)
        elif _eligible(value):
            yield value


def _cast(args: Any, cast: Callable[[Tensor], Tensor]) -> list[Any]:
    return [
        _cast(value, cast)
        if isinstance(value, list | tuple)
        else cast(value)
        if _eligible(value)
        else value
        for value in args
    ]

"""Memory that CUDA's kernels take beside their results.

Each rule gives, from an operator's arguments and result, the bytes that are held while it runs:
`_BEFORE` what is allocated before the result, `_AFTER` what is allocated behind it. All of it is
given back at the operator's end. cuBLAS's workspace is taken once by each thread that multiplies,
and stays.

Held against real runs: cuBLAS's and cuBLASLt's workspaces, sums, copies for `bmm`. From
PyTorch's sources alone: embedding, attention, batch norm, multinomial. Not counted: what cuDNN's
convolutions and recurrent layers, sorting and `cumsum` take.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

import torch
from torch import Tensor

_aten: Final = torch.ops.aten

_SUM_ROWS: Final = 1024
"""From so many rows on, a sum over rows is split among blocks that meet in global memory."""
_UNSORTED_EMBEDDING: Final = 3072
"""Up to so many indices an embedding's gradient is summed without sorting them."""
_EMBEDDING_ROWS: Final = 10
_WARP: Final = 32
_FLASH_ROWS: Final = 128


class Hold(Protocol):
    """Takes memory; what it returns gives it back."""

    def __call__(self, size: int, *, for_good: bool = False) -> Callable[[], None]: ...


Arguments = tuple[Any, ...]
Rule = Callable[[Arguments, Any], Iterator[int]]


class Scratch:
    """Takes scratch memory for operators as CUDA's kernels would."""

    def __init__(self, hold: Hold, *, cublas: int, cublaslt: int) -> None:
        self._hold = hold
        self._cublas = cublas
        self._cublaslt = cublaslt
        self._threads: set[bool] = set()

    @contextmanager
    def of(self, func: Any, args: Arguments, result: Any) -> Iterator[None]:
        """What `func` takes before and after its result, which is recorded inside the `with`."""
        packet = func.overloadpacket
        before, after = _BEFORE.get(packet), _AFTER.get(packet)
        held = [self._hold(size) for size in before(args, result)] if before else []
        yield
        held += [self._hold(size) for size in after(args, result)] if after else []
        if packet is _aten.addmm and self._cublaslt and _by_cublaslt(*args[:3]):
            held.append(self._hold(self._cublaslt))
        if packet in _BY_CUBLAS:
            self._take_workspace()
        for give_back in held:
            give_back()

    def _take_workspace(self) -> None:
        in_backward = torch._C._current_graph_task_id() != -1  # autograd has a thread of its own
        if in_backward not in self._threads:
            self._threads.add(in_backward)
            self._hold(self._cublas, for_good=True)


def in_order_of_allocation(func: Any, result: Any) -> Any:
    """An operator's results in the order in which its CUDA kernel allocates them."""
    order = _ORDER.get(func.overloadpacket)
    return [result[number] for number in order] if order else result


def _by_cublaslt(bias: Tensor, first: Tensor, second: Tensor) -> bool:
    return bias.dim() == 1 and min(*first.shape, *second.shape) > 1


def _copied_operands(args: Arguments, result: Any) -> Iterator[int]:
    """A batched product copies an operand whose matrices have no stride of 1."""
    for x in args:
        if isinstance(x, Tensor) and x.dim() == 3 and 1 not in x.stride()[1:]:
            yield _bytes(x)


def _reduction(args: Arguments, result: Tensor) -> Iterator[int]:
    """Blocks that share a sum leave their parts, and count themselves, in global memory."""
    x = args[0]
    if result.numel() == 1:
        if x.numel() > _SUM_ROWS:
            yield 256
            yield 4
        return
    rows, columns = x.numel() // max(result.numel(), 1), result.numel()
    over_rows = x.dim() > 1 and x.stride(-1) == 1 and result.shape[-1] == x.shape[-1]
    if over_rows and rows >= _SUM_ROWS:
        yield rows * columns * 8 // 64
        yield 4 * math.ceil(columns / _WARP)


def _embedding_before(args: Arguments, result: Any) -> Iterator[int]:
    """Indices sorted and where they came from, and as much again for the sort."""
    count = args[1].numel()
    if count > _UNSORTED_EMBEDDING:
        yield from (8 * count, 8 * count, 16 * count)


def _embedding_after(args: Arguments, result: Tensor) -> Iterator[int]:
    """Sums of at most ten rows each, to be added up."""
    count = args[1].numel()
    if count > _UNSORTED_EMBEDDING:
        segments = min(count, result.shape[0])
        partial = count // _EMBEDDING_ROWS + segments
        width = _multiple(result.shape[-1], _WARP)
        yield from (8 * count, 8 * segments, 8 * segments, 8 * partial, 4 * partial * width)


def _flash_backward(args: Arguments, result: Any) -> Iterator[int]:
    """Row sums and the queries' gradient in float32; a gradient that lies askew is copied."""
    grad, query = args[0], args[1]
    if not grad.transpose(1, 2).is_contiguous():
        yield _bytes(grad)
    series, heads, length, width = query.shape
    rows = _multiple(length, _FLASH_ROWS)
    yield 4 * series * heads * rows
    yield 4 * series * heads * rows * _multiple(width, _WARP)


def _efficient_backward(args: Arguments, result: Any) -> Iterator[int]:
    """Row sums of gradient times output; for float32 the whole product is made first."""
    grad = args[0]
    if grad.dtype is torch.float32:
        yield _bytes(grad)
    yield 4 * grad.shape[0] * grad.shape[1] * _multiple(grad.shape[2], _WARP)


def _batch_norm_backward(args: Arguments, result: Any) -> Iterator[int]:
    channels = args[1].shape[1]
    yield from (4 * channels, 4 * channels)


def _multinomial(args: Arguments, result: Any) -> Iterator[int]:
    """One draw races exponential clocks, one for each chance."""
    yield _bytes(args[0])


def _bytes(x: Tensor) -> int:
    return x.numel() * x.element_size()


def _multiple(size: int, step: int) -> int:
    return math.ceil(size / step) * step


_BY_CUBLAS: Final = {_aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm, _aten.addmv, _aten.mv}
_BEFORE: Final[dict[Any, Rule]] = {
    _aten.embedding_dense_backward: _embedding_before,
    _aten.native_batch_norm_backward: _batch_norm_backward,
}
_AFTER: Final[dict[Any, Rule]] = {
    _aten.bmm: _copied_operands,
    _aten.baddbmm: _copied_operands,
    _aten.sum: _reduction,
    _aten.mean: _reduction,
    _aten.embedding_dense_backward: _embedding_after,
    _aten._scaled_dot_product_flash_attention_backward: _flash_backward,
    _aten._scaled_dot_product_efficient_attention_backward: _efficient_backward,
    _aten.multinomial: _multinomial,
}
_ORDER: Final = {
    _aten.native_dropout: (1, 0),
    _aten.native_batch_norm_backward: (1, 2, 0),
}

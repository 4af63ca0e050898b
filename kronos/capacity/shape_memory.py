"""The shapes of results, remembered: what repeats need not go through fake mode again.

A model calls the same operators on the same shapes in every layer and every step. Fake mode has a
cache of its own, whose keys cost more than the rest of a trace; this one holds only operators
whose results follow from the arguments' shapes and are new tensors or views of the first argument,
which is most of them.
"""

from typing import Any, Final, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

_PLAIN: Final = (int, float, bool, str, type(None), torch.dtype, torch.layout, torch.memory_format)
_BY_PLACE: Final = (torch.ops.aten.as_strided.default,)
"""Their results hang on where in its storage an argument begins."""


class _Shape(NamedTuple):
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


class _Unknown(Exception):
    """An argument that a key cannot hold."""


class ShapeMemory:
    """Results of one fake mode by operator and arguments."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._pure: dict[Any, bool] = {}
        self._known: dict[Any, tuple[_Shape, ...] | None] = {}
        self._views: dict[Any, tuple[_Shape, int]] = {}
        """With how far behind the first argument's begin they begin."""

    def key(self, func: Any, args: Any, options: dict[str, Any]) -> Any:
        """What a call is remembered by; None where it is not to be."""
        pure = self._pure.get(func)
        if pure is None:
            pure = self._pure[func] = _is_pure(func)
        if not pure:
            return None
        try:
            named = tuple((name, _part(value)) for name, value in options.items())
            return (func, _part(args), named)
        except _Unknown:
            return None

    def recall(self, key: Any, args: Any) -> Any:
        """A new result like the one before, or None."""
        if (view := self._views.get(key)) is not None:
            return self._view(args[0], *view)
        shapes = self._known.get(key)
        if shapes is None:
            return None
        results = tuple(FakeTensor(self._mode, _empty(shape), shape.device) for shape in shapes)
        return results[0] if len(results) == 1 else results

    def note(self, key: Any, args: Any, result: Any) -> None:
        """Remember a result of either kind; None for others."""
        if key in self._known:
            return
        if _is_view(result, args):
            offset = result.storage_offset() - args[0].storage_offset()
            self._views[key] = (_shape(result), offset)
            return
        results = result if isinstance(result, tuple) else (result,)
        taken = _storages(args)
        new = bool(results) and all(_is_new(one, taken) for one in results)
        self._known[key] = tuple(map(_shape, results)) if new else None

    def _view(self, source: FakeTensor, shape: _Shape, offset: int) -> FakeTensor:
        empty = _empty(shape)
        begin = source.storage_offset() + offset
        empty.set_(source.untyped_storage(), begin, shape.size, shape.stride)
        return FakeTensor(self._mode, empty, shape.device)


def _empty(shape: _Shape) -> torch.Tensor:
    return torch.empty_strided(shape.size, shape.stride, dtype=shape.dtype, device="meta")


def _is_pure(func: Any) -> bool:
    """Whether an operator only makes tensors, from what is known before it runs."""
    schema = func._schema
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(
        func.name(), "CompositeImplicitAutograd"
    )
    return (
        func.namespace == "aten"
        and not composite
        and not schema.is_mutable
        and bool(schema.returns)
        and all(str(one.type) == "Tensor" for one in schema.returns)
        and func not in _BY_PLACE
        and not {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags)
    )


def _part(value: Any) -> Any:
    if type(value) is FakeTensor or (
        isinstance(value, FakeTensor) and isinstance(value, torch.nn.Parameter)
    ):
        if value.constant is not None or value.layout is not torch.strided:
            raise _Unknown
        return _shape(value)
    if type(value) in (list, tuple, torch.Size):
        return tuple(map(_part, value))
    if type(value) is torch.device:
        return value
    if isinstance(value, _PLAIN):
        return (type(value), value)  # 1, 1.0 and True are equal as keys
    raise _Unknown


def _shape(tensor: FakeTensor) -> _Shape:
    return _Shape(tuple(tensor.size()), tensor.stride(), tensor.dtype, tensor.fake_device)


def _storages(values: Any) -> set[int]:
    found: set[int] = set()
    for value in values:
        if isinstance(value, torch.Tensor):
            found.add(value.untyped_storage()._cdata)
        elif isinstance(value, list | tuple):
            found |= _storages(value)
    return found


def _is_view(result: Any, args: Any) -> bool:
    return (
        isinstance(result, FakeTensor)
        and result.layout is torch.strided
        and result.constant is None
        and bool(args)
        and isinstance(args[0], FakeTensor)
        and result is not args[0]
        and result.dtype is args[0].dtype
        and result.untyped_storage()._cdata == args[0].untyped_storage()._cdata
    )


def _is_new(result: Any, taken: set[int]) -> bool:
    if not isinstance(result, FakeTensor) or result.layout is not torch.strided:
        return False
    storage = result.untyped_storage()
    last = sum((n - 1) * step for n, step in zip(result.size(), result.stride(), strict=True))
    needed = (last + 1) * result.element_size() if result.numel() else 0
    return (
        storage._cdata not in taken
        and result.constant is None
        and result.storage_offset() == 0
        and storage.nbytes() == needed
    )

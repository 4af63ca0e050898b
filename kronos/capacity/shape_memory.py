"""The shapes of results, remembered: what repeats need not go through fake mode again.

A model calls the same operators on the same shapes in every layer and every step. Fake mode has a
cache of its own, whose keys cost more than the rest of a trace; this one holds only operators
whose results are new tensors and follow from the arguments' shapes, which is most of them.
"""

from typing import Any, Final, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

_PLAIN: Final = (int, float, bool, str, type(None), torch.dtype, torch.layout, torch.memory_format)


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

    def recall(self, key: Any) -> Any:
        """A new result like the one before, or None."""
        shapes = self._known.get(key)
        if shapes is None:
            return None
        results = tuple(self._make(shape) for shape in shapes)
        return results[0] if len(results) == 1 else results

    def note(self, key: Any, args: Any, result: Any) -> None:
        """Remember a result, unless it shares its memory or is more than a new tensor."""
        if key not in self._known:
            results = result if isinstance(result, tuple) else (result,)
            taken = _storages(args)
            new = all(_is_new(one, taken) for one in results)
            self._known[key] = tuple(map(_shape, results)) if new and len(results) else None

    def _make(self, shape: _Shape) -> FakeTensor:
        empty = torch.empty_strided(shape.size, shape.stride, dtype=shape.dtype, device="meta")
        return FakeTensor(self._mode, empty, shape.device)


def _is_pure(func: Any) -> bool:
    """Whether an operator's results are tensors that its schema does not call its arguments'."""
    schema = func._schema
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(
        func.name(), "CompositeImplicitAutograd"
    )
    return (
        func.namespace == "aten"
        and not composite
        and not schema.is_mutable
        and bool(schema.returns)
        and all(str(one.type) == "Tensor" and one.alias_info is None for one in schema.returns)
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

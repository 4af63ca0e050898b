"""Live tensor storage on the CPU, exactly, by category, and what filled it at its peak.

Works below autograd: a dispatch mode sees every tensor that an operator takes or returns,
and a weak reference on each storage tells when its memory is given back. Figures are the
bytes of storages, as `torch.cuda.memory_allocated` would count them before it rounds.
"""

import weakref
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

PARAMETERS: Final = "parameters"
GRADIENTS: Final = "gradients"
OPTIMIZER: Final = "optimizer states"
ACTIVATIONS: Final = "activations"
INPUTS: Final = "inputs"
TEMPORARIES: Final = "temporaries"

ALLOCATION_GRANULE: Final = 512
"""The CUDA caching allocator rounds every request up to a multiple of 512 bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoragePeak:
    """The largest amount of live tensor storage and what it was made of.

    Taken where the sum of the granule-rounded sizes is largest, which is what a card sees.
    """

    bytes: int
    """Largest sum of exact storage sizes."""
    rounded_bytes: int
    """Largest sum of sizes rounded up to `ALLOCATION_GRANULE`."""
    categories: Mapping[str, int]
    """Rounded bytes by category at the peak; sums to `rounded_bytes`."""
    phase: str
    """"forward", "backward" or "optimizer": where in the step the peak was reached."""
    operation: str
    """The operator that reached the peak, such as "aten.mm"."""


@dataclass(slots=True)
class _Storage:
    size: int
    category: str
    reference: weakref.ref[torch.UntypedStorage] | None = None


@dataclass(slots=True)
class _Events:
    """Every change of the live storage in order; columns, for runs of millions of operators."""

    storage: "array[int]" = field(default_factory=lambda: array("q"))
    delta: "array[int]" = field(default_factory=lambda: array("q"))
    phase: "array[int]" = field(default_factory=lambda: array("b"))
    operation: "array[int]" = field(default_factory=lambda: array("i"))

    def add(self, storage: int, delta: int, phase: int, operation: int) -> None:
        self.storage.append(storage)
        self.delta.append(delta)
        self.phase.append(phase)
        self.operation.append(operation)


_PHASES: Final = ("forward", "backward", "optimizer")
_BORN_AS: Final = (ACTIVATIONS, TEMPORARIES, TEMPORARIES)


class StorageMeter(TorchDispatchMode):
    """Context manager that meters the CPU's live tensor storage.

    A storage counts from the moment an operator returns or first takes it. One that existed
    before counts once it is used, so let at least one whole step run to see all of a model.
    Operators of other threads are not seen.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._events = _Events()
        self._storages: list[_Storage] = []
        self._live: dict[int, int] = {}  # address of the StorageImpl -> index in _storages
        self._operations: dict[str, int] = {"": 0}
        self._operation = 0
        self._scopes: list[bool] = []  # open profiler scopes: is it an optimizer's step?
        self._hooks: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        before = register_optimizer_step_pre_hook(self._before_optimizer)
        after = register_optimizer_step_post_hook(self._after_optimizer)
        self._hooks = [before.remove, after.remove]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        for remove in self._hooks:
            remove()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = str(func.overloadpacket)
        if name.startswith("profiler."):
            self._note_scope(name, args)
        self._operation = self._operations.setdefault(name, len(self._operations))
        for value in tree_leaves((args, kwargs)):
            if isinstance(value, torch.Tensor):
                self._take(value)
        result = func(*args, **(kwargs or {}))
        born_as = _BORN_AS[self._phase()]
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor):
                self._see(value, born_as)
        return result

    def peak(self) -> StoragePeak:
        """The peak so far, replayed from the recorded events."""
        rounded = exact = highest = highest_exact = 0
        at = -1
        sizes: Counter[int] = Counter()
        for index, (storage, delta) in enumerate(
            zip(self._events.storage, self._events.delta, strict=True)
        ):
            exact += delta
            rounded -= _rounded(sizes[storage])
            sizes[storage] += delta
            rounded += _rounded(sizes[storage])
            highest_exact = max(highest_exact, exact)
            if rounded > highest:
                highest, at = rounded, index
        return StoragePeak(
            bytes=highest_exact,
            rounded_bytes=highest,
            categories=self._categories_at(at),
            phase=_PHASES[self._events.phase[at]] if at >= 0 else _PHASES[0],
            operation=list(self._operations)[self._events.operation[at]] if at >= 0 else "",
        )

    def live_bytes(self) -> int:
        """Bytes of the storages alive now."""
        return sum(self._events.delta)

    def _categories_at(self, at: int) -> dict[str, int]:
        sizes: Counter[int] = Counter()
        for index in range(at + 1):
            sizes[self._events.storage[index]] += self._events.delta[index]
        categories: Counter[str] = Counter()
        for storage, size in sizes.items():
            if size:
                categories[self._storages[storage].category] += _rounded(size)
        return dict(categories.most_common())

    def _take(self, tensor: torch.Tensor) -> None:
        """See a tensor that an operator takes; a parameter names itself and its gradient."""
        if isinstance(tensor, torch.nn.Parameter):
            self._see(tensor, PARAMETERS, relabel=True)
            if tensor.grad is not None:
                self._see(tensor.grad, GRADIENTS, relabel=True)
        else:
            self._see(tensor, INPUTS)

    def _see(self, tensor: torch.Tensor, category: str, *, relabel: bool = False) -> None:
        if tensor.layout != torch.strided:
            for part in _sparse_parts(tensor):
                self._see(part, category, relabel=relabel)
            return
        storage = tensor.untyped_storage()
        if storage.device.type != "cpu":
            return  # fake tensors too: their storage is on "meta"
        address = storage._cdata
        index = self._live.get(address)
        if index is None:
            index = len(self._storages)
            size = storage.nbytes()
            freed = weakref.ref(storage, lambda _: self._free(address))
            self._storages.append(_Storage(size, category, freed))
            self._live[address] = index
            self._record(index, size)
        known = self._storages[index]
        if relabel:
            known.category = category
        if (size := storage.nbytes()) != known.size:  # resized in place, as by out= or set_
            self._record(index, size - known.size)
            known.size = size

    def _free(self, address: int) -> None:
        index = self._live.pop(address)
        self._record(index, -self._storages[index].size)
        self._storages[index].reference = None

    def _record(self, index: int, delta: int) -> None:
        self._events.add(index, delta, self._phase(), self._operation)

    def _phase(self) -> int:
        if any(self._scopes):
            return 2
        # -1 outside of the autograd engine; recomputation for checkpoints is inside
        return 1 if torch._C._current_graph_task_id() != -1 else 0

    def _note_scope(self, name: str, args: tuple[Any, ...]) -> None:
        """Optimizer.step opens a profiler scope, and closes it even where the step fails."""
        if name.startswith("profiler._record_function_enter"):
            self._scopes.append(str(args[0]).startswith("Optimizer.step#"))
        elif name.startswith("profiler._record_function_exit") and self._scopes:
            self._scopes.pop()

    def _before_optimizer(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for parameter in _parameters_of(optimizer):
            self._see(parameter, PARAMETERS, relabel=True)
            if parameter.grad is not None:
                self._see(parameter.grad, GRADIENTS, relabel=True)

    def _after_optimizer(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for value in tree_leaves(list(optimizer.state.values())):
            if isinstance(value, torch.Tensor):
                self._see(value, OPTIMIZER, relabel=True)


def _parameters_of(optimizer: torch.optim.Optimizer) -> Iterable[torch.Tensor]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def _sparse_parts(tensor: torch.Tensor) -> Iterable[torch.Tensor]:
    """The strided tensors that hold a sparse one's indices and values."""
    if tensor.layout == torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return ()  # mkldnn's blocks have no storage to look at


def _rounded(size: int) -> int:
    return -(-size // ALLOCATION_GRANULE) * ALLOCATION_GRANULE

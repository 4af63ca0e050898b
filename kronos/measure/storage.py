"""Live tensor storage on the CPU, exactly, by category, and what filled it at its peak.

Works below autograd: a dispatch mode sees every tensor that an operator takes or returns,
and a weak reference on each storage tells when its memory is given back. Figures are the
bytes of storages, as `torch.cuda.memory_allocated` would count them before it rounds.
"""

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kronos.measure.events import (
    ACTIVATIONS,
    GRADIENTS,
    INPUTS,
    OPTIMIZER,
    PARAMETERS,
    PHASES,
    TEMPORARIES,
    StorageEvents,
    StoragePeak,
)

FORWARD, BACKWARD, STEPPING = range(len(PHASES))
_BORN_AS: Final = (ACTIVATIONS, TEMPORARIES, TEMPORARIES)


@dataclass(slots=True)
class _Live:
    index: int
    size: int
    reference: weakref.ref[torch.UntypedStorage]


class StorageMeter(TorchDispatchMode):
    """Context manager that meters the CPU's live tensor storage.

    A storage counts from the moment an operator returns or first takes it. One that existed
    before counts once it is used, so let at least one whole step run to see all of a model.
    Operators of other threads are not seen.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.events = StorageEvents()
        self._live: dict[int, _Live] = {}  # by the address of the StorageImpl
        self._operations: dict[Any, int] = {}
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
        if func.namespace == "profiler":
            self._note_scope(func.__name__, args)
            return func(*args, **(kwargs or {}))
        self._operation = self._number_of(func)
        for tensor in tensors_in((*args, *kwargs.values()) if kwargs else args):
            self._take(tensor)
        result = func(*args, **(kwargs or {}))
        self._see_result(func, args, result)
        return result

    def peak(self) -> StoragePeak:
        """The peak so far, replayed from the recorded events."""
        return self.events.peak()

    def live_bytes(self) -> int:
        """Bytes of the storages alive now."""
        return sum(self.events.delta)

    def _see_result(self, func: Any, args: tuple[Any, ...], result: Any) -> None:
        born_as = self._born_as(args)
        for tensor in tensors_in((result,)):
            self._see(tensor, born_as)

    def _counts(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in the memory that is metered; fake ones are on "meta"."""
        return tensor.untyped_storage().device.type == "cpu"

    def _born_as(self, args: tuple[Any, ...]) -> str:
        """The category of what an operator with these arguments returns now."""
        return _BORN_AS[self._phase()]

    def _module(self) -> str:
        """The module to whose account a storage goes that is born now."""
        return ""

    def _number_of(self, func: Any) -> int:
        number = self._operations.get(func)
        if number is None:
            number = self._operations[func] = len(self.events.operations)
            self.events.operations.append(str(func.overloadpacket))
        return number

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
        if not self._counts(tensor):
            return
        storage = tensor.untyped_storage()
        address = storage._cdata
        known = self._live.get(address)
        if known is None:
            size = storage.nbytes()
            freed = weakref.ref(storage, lambda _: self._free(address))
            known = _Live(self.events.born(category, self._module()), size, freed)
            self._live[address] = known
            self._record(known.index, size)
            return
        if relabel:
            self.events.categories[known.index] = category
        if (size := storage.nbytes()) != known.size:  # resized in place, as by out= or set_
            old, category = known.index, self.events.categories[known.index]
            known.index = self.events.born(category, self.events.modules[old])
            self._record(known.index, size)  # into new memory, and the old is given back
            self._record(old, -known.size)
            known.size = size

    def _free(self, address: int) -> None:
        known = self._live.pop(address)
        self._record(known.index, -known.size)

    def _record(self, index: int, delta: int) -> None:
        self.events.add(index, delta, self._phase(), self._operation)

    def _phase(self) -> int:
        if any(self._scopes):
            return STEPPING
        # -1 outside of the autograd engine; recomputation for checkpoints is inside
        return BACKWARD if torch._C._current_graph_task_id() != -1 else FORWARD

    def _note_scope(self, name: str, args: tuple[Any, ...]) -> None:
        """Optimizer.step opens a profiler scope, and closes it even where the step fails."""
        if name.startswith("_record_function_enter"):
            self._scopes.append(str(args[0]).startswith("Optimizer.step#"))
        elif name.startswith("_record_function_exit") and self._scopes:
            self._scopes.pop()

    def _before_optimizer(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for parameter in parameters_of(optimizer):
            self._see(parameter, PARAMETERS, relabel=True)
            if parameter.grad is not None:
                self._see(parameter.grad, GRADIENTS, relabel=True)

    def _after_optimizer(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for value in tree_leaves(list(optimizer.state.values())):
            if isinstance(value, torch.Tensor):
                self._see(value, OPTIMIZER, relabel=True)


def tensors_in(values: Iterable[Any]) -> Iterable[torch.Tensor]:
    """The tensors among an operator's arguments or results, those in lists included."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterable[torch.Tensor]:
    """All that an optimizer steps."""
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

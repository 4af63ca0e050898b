"""The meter of a traced step: fake tensors of a card, or of a machine that only has a CPU."""

import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)
from torch.nn.modules.module import register_module_parameter_registration_hook

from kronos.capacity.fake_card import ASK_DEVICE, device_in_cpp, on_card
from kronos.capacity.modules import ModuleNames
from kronos.capacity.scratch import Scratch, in_order_of_allocation
from kronos.errors import TraceError
from kronos.measure.events import ACTIVATIONS, INPUTS, NO_STORAGE, PARAMETERS, TEMPORARIES
from kronos.measure.storage import StorageMeter, parameters_of, tensors_in

WORKSPACES: Final = "workspaces"
_NEEDS_DATA: Final = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)


class Tracer(StorageMeter):
    """Meters fake storages, adds what CUDA's kernels take beside them, and knows the modules.

    Args:
        cublas: bytes of one cuBLAS workspace.
        cublaslt: bytes that a product with a bias takes while it runs.
    """

    def __init__(self, device: str, *, cublas: int, cublaslt: int) -> None:
        super().__init__()
        self._device = device
        self._names = ModuleNames()
        self._made: list[weakref.ref[torch.Tensor]] = []  # parameters no operator may ever take
        self._scratch: Scratch | None = None
        if device == "cuda":
            self._scratch = Scratch(self._hold, cublas=cublas, cublaslt=cublaslt)

    def __enter__(self) -> Self:
        super().__enter__()
        registered = register_module_parameter_registration_hook(self._note_parameter)
        self._hooks += [registered.remove, *self._names.follow()]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self._live.clear()  # what is freed from here on belongs to no step

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is ASK_DEVICE:
            return device_in_cpp(args[0])
        try:
            return super().__torch_dispatch__(func, types, args, kwargs)
        except _NEEDS_DATA as error:
            raise TraceError(
                f"{func} needs a tensor's data, and a traced step has none; leave it out of the "
                "step (as .item() for a log), or meter the real step with gpu_budget.measure()"
            ) from error
        except (AssertionError, NotImplementedError) as error:
            raise TraceError(
                f"{func} has no rule by which shapes follow without data; leave it out of the "
                "step, or meter the real step with gpu_budget.measure()"
            ) from error

    def end_construction(self) -> None:
        """Call all parameters made so far by that name, those that no step uses included."""
        for made in self._made:
            if (parameter := made()) is not None:
                self._see(parameter, PARAMETERS, relabel=True)
        self._made.clear()

    def note_empty_cache(self) -> None:
        """Stands in for `torch.cuda.empty_cache`."""
        self._record(NO_STORAGE, 0)

    def in_order(self, clear: Callable[[], None]) -> Callable[[], None]:
        """`torch.clear_autocast_cache`, whose order hangs on addresses, in one that repeats."""

        def clear_in_order() -> None:
            first = len(self.events)
            clear()
            self.events.order_from(first)

        return clear_in_order

    def _see_result(self, func: Any, args: tuple[Any, ...], result: Any) -> None:
        if self._scratch is None or not any(map(on_card, tensors_in((result,)))):
            super()._see_result(func, args, result)
            return
        with self._scratch.of(func, args, result):
            super()._see_result(func, args, in_order_of_allocation(func, result))

    def _counts(self, tensor: torch.Tensor) -> bool:
        return on_card(tensor) if self._device == "cuda" else isinstance(tensor, FakeTensor)

    def _take(self, tensor: torch.Tensor) -> None:
        if isinstance(tensor, torch.nn.Parameter) and not isinstance(tensor, FakeTensor):
            raise TraceError(
                f"a parameter of shape {tuple(tensor.shape)} was made before build(device) was "
                "called; construct model and optimizer inside of it"
            )
        super()._take(tensor)

    def _born_as(self, args: tuple[Any, ...]) -> str:
        """Outside of modules, what comes of inputs alone is an input too."""
        category = super()._born_as(args)
        if category != ACTIVATIONS or self._names.inside:
            return category
        for tensor in tensors_in(args):
            known = self._live.get(tensor.untyped_storage()._cdata)
            if known is not None and self.events.categories[known.index] != INPUTS:
                return ACTIVATIONS
        return INPUTS

    def _note_parameter(self, _: Any, name: str, parameter: torch.Tensor | None) -> None:
        if isinstance(parameter, FakeTensor):
            self._made.append(weakref.ref(parameter))

    def _module(self) -> str:
        return self._names.current

    def _hold(self, size: int, *, for_good: bool = False) -> Callable[[], None]:
        """Take scratch memory; call what is returned to give it back."""
        module = "" if for_good else self._module()
        index = self.events.born(WORKSPACES if for_good else TEMPORARIES, module)
        self._record(index, size)
        return lambda: self._record(index, -size)

    def _before_optimizer(self, optimizer: torch.optim.Optimizer, *rest: Any) -> None:
        super()._before_optimizer(optimizer, *rest)
        for parameter in parameters_of(optimizer):
            self._belongs(parameter, to=parameter)
            if parameter.grad is not None:
                self._belongs(parameter.grad, to=parameter)

    def _after_optimizer(self, optimizer: torch.optim.Optimizer, *rest: Any) -> None:
        super()._after_optimizer(optimizer, *rest)
        for parameter, state in optimizer.state.items():
            for value in tensors_in(state.values()):
                self._belongs(value, to=parameter)

    def _belongs(self, tensor: torch.Tensor, *, to: torch.Tensor) -> None:
        known = self._live.get(tensor.untyped_storage()._cdata)
        if known is not None:
            self.events.modules[known.index] = self._names.owner_of(to)

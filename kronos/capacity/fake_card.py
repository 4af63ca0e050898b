"""A card that is not there: PyTorch believes in `cuda:0`, and allocates nothing.

Fake tensors know shapes and devices but hold no data. On a build without CUDA those of a card
end the process in autograd, whose C++ asks for CUDA's device guard. So Python is told "cuda:0"
and C++ "cpu:0", a device that nobody else uses: tensors of the host say "cpu" to both. With that
one difference, moves between host and card, factories like `zeros(..., device=x.device)` and
mixed devices are checked and propagated by PyTorch's own rules.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any, Final
from unittest import mock

import torch
import torch._dynamo  # FakeTensorMode would import it, slowly, when the first trace begins
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._device import DeviceContext

from kronos.capacity.shape_memory import ShapeMemory

CARD: Final = torch.device("cuda", 0)
_CARD_IN_CPP: Final = torch.device("cpu", 0)
_HOST: Final = torch.device("cpu")
_META: Final = torch.device("meta")
ASK_DEVICE: Final = torch.ops.prim.device.default
_TENSOR: Final = torch.tensor
_ITEM: Final = torch.ops.aten._local_scalar_dense.default


class FakeMachine(FakeTensorMode):
    """Fake tensors on the host, and within `believing_in_a_card()` on a card."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)  # data sets are often tensors of before
        self._memory = ShapeMemory(self)
        self._written: dict[Any, tuple[int, ...]] = {}  # by operator, see below

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is ASK_DEVICE:
            return device_in_cpp(args[0])
        if func is _ITEM and getattr(args[0], "constant", None) is not None:
            return args[0].constant.item()  # an optimizer's count of its steps
        args = self._sparing_real_tensors(func, args)
        options = dict(kwargs or {})
        device = options.get("device")
        if device is not None and (device == _CARD_IN_CPP or device.type == "cuda"):
            options["device"] = CARD
            args = tuple(map(self._without_value, args))
        key = self._memory.key(func, args, options)
        if key is None:
            return super().__torch_dispatch__(func, types, args, options)
        result = self._memory.recall(key, args)
        if result is None:
            result = super().__torch_dispatch__(func, types, args, options)
            self._memory.note(key, args, result)
        return result

    def _without_value(self, value: Any) -> Any:
        """Real tensors, and small fake ones of known value, would be moved in earnest."""
        if isinstance(value, torch.Tensor):
            value = value if isinstance(value, FakeTensor) else self.from_tensor(value)
            value.constant = None
        return value

    def _sparing_real_tensors(self, func: Any, args: Any) -> Any:
        """Fake ones in place of real tensors that would be written to: these are their owner's."""
        written = self._written.get(func)
        if written is None:
            written = self._written[func] = _written_arguments(func)
        for number in written:
            value = args[number] if number < len(args) else None
            if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
                args = (*args[:number], self.from_tensor(value), *args[number + 1 :])
        return args


def _written_arguments(func: Any) -> tuple[int, ...]:
    arguments = func._schema.arguments
    return tuple(
        number
        for number, argument in enumerate(arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def device_in_cpp(tensor: FakeTensor) -> torch.device:
    """What PyTorch's C++ is told where it asks a fake tensor for its device."""
    if tensor.fake_mode.in_kernel_invocation:
        return _META
    device: torch.device = tensor.fake_device
    return _CARD_IN_CPP if device.type == "cuda" else device


def on_card(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies on the pretended card."""
    return isinstance(tensor, FakeTensor) and tensor.fake_device.type == "cuda"


@contextmanager
def believing_in_a_card(architecture: str) -> Iterator[None]:
    """Patch what asks for a card, for as long as this is entered. Not for several threads."""
    with ExitStack() as stack:
        for patch in (
            *_tensor_patches(),
            *_optimizer_patches(),
            *_autocast_patches(),
            *_cuda_patches(architecture),
        ):
            stack.enter_context(patch)
        of_the_cpu = torch.get_autocast_dtype("cpu")
        stack.callback(torch.set_autocast_dtype, "cpu", of_the_cpu)
        torch.set_autocast_dtype("cpu", torch.float16)  # CUDA's, for an autocast without a dtype
        yield


@contextmanager
def without_initial_values() -> Iterator[None]:
    """`torch.nn.init` does nothing: fake tensors hold no values, and some of it asks for them."""
    with ExitStack() as stack:
        for name in dir(torch.nn.init):
            if name.endswith("_") and not name.startswith("_"):
                stack.enter_context(
                    mock.patch.object(torch.nn.init, name, lambda tensor, *_, **__: tensor)
                )
        stack.enter_context(mock.patch.object(torch.utils, "swap_tensors", _take_over))
        yield


def _take_over(parameter: torch.Tensor, moved: torch.Tensor) -> None:
    """For `torch.utils.swap_tensors`, by which `Module.to` moves fake parameters.

    The real one refuses tensors with weak references, and fake ones have some.
    """
    parameter.__dict__, moved.__dict__ = moved.__dict__, parameter.__dict__
    torch._C._swap_tensor_impl(parameter, moved)


def _tensor_patches() -> Iterator[Any]:
    make_subclass, to = torch.Tensor._make_subclass, torch.Tensor.to
    dispatch = FakeTensor.__dict__["__torch_dispatch__"].__func__

    def make_with_cpu_keys(cls: Any, *args: Any, **options: Any) -> Any:
        device = options.get("device_for_backend_keys")
        if device is not None and device.type == "cuda":
            options["device_for_backend_keys"] = _HOST
        return make_subclass(cls, *args, **options)

    def answer_cpp(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is ASK_DEVICE:
            return device_in_cpp(args[0])
        return dispatch(cls, func, types, args, kwargs or {})

    def move(self: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        options = {name: _as_cpp_knows(value) for name, value in options.items()}
        return to(self, *map(_as_cpp_knows, args), **options)

    patch = mock.patch.object
    yield patch(torch.Tensor, "_make_subclass", staticmethod(make_with_cpu_keys))
    yield patch(FakeTensor, "__torch_dispatch__", classmethod(answer_cpp))
    yield patch(torch.Tensor, "to", move)
    yield patch(torch.Tensor, "new_tensor", _new_tensor)
    for name in ("tensor", "as_tensor", "asarray"):
        yield patch(torch, name, _made_on_the_host(getattr(torch, name)))
    yield patch(torch.Tensor, "cuda", lambda self, *_, **__: move(self, CARD))
    yield patch(torch.Tensor, "pin_memory", lambda self, *_: self)
    yield patch(FakeTensor, "is_cuda", property(on_card), create=True)
    yield patch(FakeTensor, "is_cpu", property(lambda self: not on_card(self)), create=True)


def _made_on_the_host(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`torch.tensor` and its like, whose C++ would ask a card for room: made first, then moved."""

    def made(data: Any, *, device: Any = None, **options: Any) -> torch.Tensor:
        if device is None and isinstance(data, torch.Tensor):
            return make(data, **options)
        target = torch.device(device) if device is not None else _default_device()
        if target.type != "cuda":
            return make(data, device=target, **options)
        tracked = options.pop("requires_grad", False)
        if isinstance(data, torch.Tensor) and on_card(data):
            value = data.to(options.get("dtype"), copy=make is _TENSOR)
        else:
            value = make(data, device="cpu", **options).to(CARD)
        return value.detach().requires_grad_() if tracked else value

    return made


def _default_device() -> torch.device:
    """Of the innermost `with torch.device(...)`; PyTorch's own answer would make a tensor."""
    for mode in reversed(torch.overrides._get_current_function_mode_stack()):
        if isinstance(mode, DeviceContext):
            return torch.device(mode.device)
    return _HOST


def _new_tensor(self: torch.Tensor, data: Any, **options: Any) -> torch.Tensor:
    return torch.tensor(data, **{"dtype": self.dtype, "device": self.device, **options})


def _as_cpp_knows(value: Any) -> Any:
    """An argument of `Tensor.to`; a card of whatever number is the only one there is."""
    names_card = isinstance(value, str) and value.split(":")[0] == "cuda"
    is_card = isinstance(value, torch.device) and value.type == "cuda"
    return _CARD_IN_CPP if names_card or is_card or type(value) is int else value


def _optimizer_patches() -> Iterator[Any]:
    """Fake parameters are of a type that optimizers would not take their foreach form for."""
    for name in ("torch.optim.optimizer", "torch.utils._foreach_utils"):
        module = import_module(name)  # torch.optim hides the first of them
        types = [*module._foreach_supported_types, FakeTensor]
        yield mock.patch.object(module, "_foreach_supported_types", types)


def _autocast_patches() -> Iterator[Any]:
    """Autocast of the card is the CPU's, whose rules `kernels.py` replaces by CUDA's."""
    begin, get_dtype = torch.autocast.__init__, torch.get_autocast_dtype
    is_enabled, is_available = torch.is_autocast_enabled, torch.amp.is_autocast_available

    def begin_on_cpu(
        self: Any, device_type: str, dtype: Any = None, *rest: Any, **more: Any
    ) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or get_dtype("cpu")
        begin(self, device_type, dtype, *rest, **more)

    def dtype_of(device_type: str) -> torch.dtype:
        return get_dtype("cpu" if device_type == "cuda" else device_type)

    def enabled_for(device_type: str = "cuda") -> bool:
        return is_enabled("cpu" if device_type == "cuda" else device_type)

    def available_for(device_type: str) -> bool:
        return device_type == "cuda" or is_available(device_type)

    patch = mock.patch.object
    yield patch(torch.autocast, "__init__", begin_on_cpu)
    yield patch(torch, "get_autocast_dtype", dtype_of)
    yield patch(torch, "is_autocast_enabled", enabled_for)
    for module in (torch.amp, torch.amp.autocast_mode):
        yield patch(module, "is_autocast_available", available_for)


def _cuda_patches(architecture: str) -> Iterator[Any]:
    """What steps ask of `torch.cuda` without wanting an answer from a card."""
    answers: dict[str, Any] = {
        "is_available": True,
        "is_bf16_supported": architecture != "turing",
        "device_count": 1,
        "current_device": 0,
        "synchronize": None,
        "reset_peak_memory_stats": None,
        "is_current_stream_capturing": False,
    }
    patch = mock.patch.object
    for name, answer in answers.items():
        yield patch(torch.cuda, name, lambda *_, answer=answer, **__: answer)
    # Where PyTorch is built with CUDA, these would go to the real card, or miss it.
    yield patch(torch.cuda, "_initialized", False)
    yield patch(torch.accelerator, "current_accelerator", lambda *_, **__: None)
    yield patch(fake_tensor, "init_gpu_context", lambda device: None)

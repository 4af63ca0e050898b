"""Which module is running, by its name in the model, and which one a parameter belongs to."""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn.modules import module as hooks
from torch.utils.weak import WeakTensorKeyDictionary


class ModuleNames:
    """Follows the modules' forward passes, those made again for a checkpoint included.

    A module's name starts with the class of the model it was first called within:
    "Kronos.transformer.0.ffn".
    """

    def __init__(self) -> None:
        self._names: WeakKeyDictionary[torch.nn.Module, str] = WeakKeyDictionary()
        self._owners = WeakTensorKeyDictionary()
        self._running: list[str] = []

    def follow(self) -> list[Callable[[], None]]:
        """Begin; what is returned ends it."""
        enter = hooks.register_module_forward_pre_hook(self._enter)
        leave = hooks.register_module_forward_hook(self._leave, always_call=True)
        return [enter.remove, leave.remove]

    @property
    def inside(self) -> bool:
        """Whether some module is running."""
        return bool(self._running)

    @property
    def current(self) -> str:
        """The innermost module that is running, "" outside of all."""
        return self._running[-1] if self._running else ""

    def owner_of(self, parameter: torch.Tensor) -> str:
        """The module that a parameter belongs to, "" where none that ran has it."""
        owner: str = self._owners.get(parameter, "")
        return owner

    def _enter(self, module: torch.nn.Module, _: Any) -> None:
        if module not in self._names:
            self._learn(module)
        self._running.append(self._names[module])

    def _leave(self, *_: Any) -> None:
        self._running.pop()

    def _learn(self, root: torch.nn.Module) -> None:
        for name, module in root.named_modules():
            full = f"{type(root).__name__}.{name}".rstrip(".")
            if module not in self._names:
                self._names[module] = full
            for parameter in module.parameters(recurse=False):
                if parameter not in self._owners:
                    self._owners[parameter] = self._names[module]

"""Evaluation mode for a while, also where several threads share a model."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from weakref import WeakKeyDictionary

from torch import nn


@dataclass(slots=True)
class _Visit:
    users: int = 0
    training: list[nn.Module] = field(default_factory=list)


_visits: WeakKeyDictionary[nn.Module, _Visit] = WeakKeyDictionary()
_lock = Lock()


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """Put the models in evaluation mode, and every submodule back as it was at the end.

    Where uses overlap the first one remembers and the last one restores: a thread that ends
    early must not switch dropout on under the others.
    """
    for model in models:
        _enter(model)
    try:
        yield
    finally:
        for model in models:
            _leave(model)


def _enter(model: nn.Module) -> None:
    with _lock:
        visit = _visits.setdefault(model, _Visit())
        if visit.users == 0:
            visit.training = [module for module in model.modules() if module.training]
            model.eval()
        visit.users += 1


def _leave(model: nn.Module) -> None:
    with _lock:
        visit = _visits[model]
        visit.users -= 1
        if visit.users == 0:
            for module in visit.training:
                module.training = True
            del _visits[model]

"""A pytest plugin that turns peak GPU memory, steps per hour and accuracy into tests."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_kronos.regression import RegressionCase as RegressionCase
    from pytest_kronos.verdicts import GateFailure as GateFailure

_HOMES = {
    "GateFailure": "pytest_kronos.verdicts",
    "RegressionCase": "pytest_kronos.regression",
}

__all__ = ["GateFailure", "RegressionCase"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:  # loaded when first used: a plugin must not slow the start
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'pytest_kronos' has no attribute {name!r}")

"""Kronos: a foundation model for candlesticks, and the tools that say what training it takes.

`import kronos` loads no torch; the names below load their module when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kronos.model import Kronos as Kronos
    from kronos.model import KronosTokenizer as KronosTokenizer
    from kronos.predict import KronosPredictor as KronosPredictor

__version__ = "0.1.0"

_HOMES = {
    "Kronos": "kronos.model",
    "KronosTokenizer": "kronos.model",
    "KronosPredictor": "kronos.predict",
}

__all__ = ["Kronos", "KronosPredictor", "KronosTokenizer", "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'kronos' has no attribute {name!r}")

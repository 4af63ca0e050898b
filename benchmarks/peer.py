"""PyPI's kronos-model-arch, the reference's code: a peer to measure against, for development only.

Install it without its pins, which would replace half of this environment:

    pip install --no-deps kronos-model-arch einops tqdm
"""

import importlib.util
import sys
from types import ModuleType

from kronos.model import Kronos, KronosTokenizer

_NAME = "_reference_kronos"
"""Its own name, `model`, is everyone's."""


def load_peer() -> ModuleType:
    """The package under a private name. ImportError where it is not installed."""
    if _NAME in sys.modules:
        return sys.modules[_NAME]
    found = importlib.util.find_spec("model")
    if found is None or found.origin is None:
        raise ImportError("kronos-model-arch is not installed; see benchmarks/peer.py")
    spec = importlib.util.spec_from_file_location(
        _NAME, found.origin, submodule_search_locations=found.submodule_search_locations
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = module
    spec.loader.exec_module(module)
    return module


def same_weights(peer: ModuleType, model: Kronos, tokenizer: KronosTokenizer):
    """The peer's model and tokenizer with our weights, in evaluation mode."""
    theirs = peer.Kronos(**model.config)
    theirs.load_state_dict(model.state_dict())
    reads = peer.KronosTokenizer(**tokenizer.config)
    reads.load_state_dict(tokenizer.state_dict())
    return theirs.eval(), reads.eval()

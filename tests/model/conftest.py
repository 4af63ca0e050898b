"""Tiny models with the reference's made-up weights, and the numbers it gave with them."""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from kronos.model import Kronos, KronosTokenizer

CONFORMANCE = Path(__file__).parents[1] / "conformance"


@pytest.fixture(autouse=True, scope="module")
def _one_thread(one_thread: None) -> None:
    """Every test of this folder."""


@pytest.fixture(scope="session")
def conformance() -> Path:
    return CONFORMANCE


@pytest.fixture(scope="session")
def vectors() -> dict[str, Tensor]:
    return load_file(CONFORMANCE / "tiny_vectors.safetensors")


@pytest.fixture
def tiny_tokenizer(tiny_models: Callable[[], tuple[Kronos, KronosTokenizer]]) -> KronosTokenizer:
    return tiny_models()[1]


@pytest.fixture
def tiny_forecaster(tiny_models: Callable[[], tuple[Kronos, KronosTokenizer]]) -> Kronos:
    return tiny_models()[0]


@pytest.fixture
def settings(tiny_config: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    """settings("predictor", d_model=36): the tiny arguments with some changed."""

    def changed(which: str, **changes: Any) -> dict[str, Any]:
        assert changes.keys() <= tiny_config[which].keys()
        return tiny_config[which] | changes

    return changed


@pytest.fixture(scope="session")
def give_recipe_weights() -> Callable[[nn.Module, int], None]:
    """The weights of tests/conformance/README.md, drawn from each tensor's name and the seed."""

    def give(model: nn.Module, seed: int) -> None:
        for name, tensor in model.state_dict().items():
            if not tensor.is_floating_point() or name.endswith("inv_freq"):
                continue
            bits = np.random.PCG64([zlib.crc32(name.encode()), seed])
            drawn = np.random.Generator(bits).standard_normal(tuple(tensor.shape))
            if name.endswith("bias"):
                drawn *= 0.02
            elif drawn.ndim == 1:
                drawn = 1 + 0.1 * drawn
            else:
                drawn /= np.sqrt(drawn.shape[-1])
            tensor.copy_(torch.from_numpy(drawn.astype(np.float32)))

    return give


@pytest.fixture(scope="session")
def assert_near() -> Callable[[Tensor, Tensor], None]:
    """Equal within 1e-5 of the largest magnitude, the tolerance of the vectors."""

    def check(actual: Tensor, wanted: Tensor) -> None:
        assert actual.shape == wanted.shape
        error = (actual - wanted).abs().max() / wanted.abs().max()
        assert error <= 1e-5

    return check

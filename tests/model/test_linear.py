"""nn.Linear with the CPU's threads sharing the weights where few rows are multiplied."""

from collections.abc import Callable, Iterator
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from kronos.model.linear import Linear


@pytest.fixture(autouse=True)
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield torch.set_num_threads
    torch.set_num_threads(before)


def shares(layer: Linear, x: Tensor) -> bool:
    with patch.object(Linear, "_by_parts") as by_parts:
        layer(x)
    return by_parts.called


@given(
    st.lists(st.integers(1, 4), max_size=3),
    st.booleans(),
    st.sampled_from([256, 258, 255]),
    st.sampled_from([torch.float32, torch.float64]),
)
@settings(max_examples=40, deadline=None)
def test_equals_torchs_linear(sizes: list[int], bias: bool, out: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    ours = Linear(256, out, bias=bias, dtype=dtype)
    torch.manual_seed(0)
    theirs = nn.Linear(256, out, bias=bias, dtype=dtype)
    x = torch.randn(*sizes, 256, dtype=dtype)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x))
    assert ours.state_dict().keys() == theirs.state_dict().keys()


@torch.no_grad()
def test_shares_the_weights_of_few_rows_only() -> None:
    layer = Linear(256, 256)
    assert shares(layer, torch.randn(1, 64, 256))
    assert shares(layer, torch.randn(256))
    assert not shares(layer, torch.randn(5, 13, 256))


@torch.no_grad()
def test_leaves_small_layers_uneven_ones_and_one_thread_alone(
    threads: Callable[[int], None],
) -> None:
    assert not shares(Linear(64, 64), torch.randn(1, 64))
    assert not shares(Linear(512, 257), torch.randn(1, 512))
    threads(1)
    assert not shares(Linear(256, 256), torch.randn(1, 256))


def test_training_is_torchs_own() -> None:
    layer = Linear(256, 256)
    assert not shares(layer, torch.randn(1, 256))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert not shares(layer, torch.randn(1, 256))
        assert layer(torch.randn(1, 256)).dtype == torch.bfloat16
    with torch.no_grad():
        assert not shares(layer.to("meta"), torch.randn(1, 256, device="meta"))


@torch.no_grad()
def test_no_rows() -> None:
    assert Linear(256, 256)(torch.empty(2, 0, 256)).shape == (2, 0, 256)

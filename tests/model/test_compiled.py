"""Compiled decoding steps: the ids of the uncompiled ones, and one line where that cannot be."""

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from kronos.errors import ConfigError
from kronos.model import Kronos, compiled
from kronos.model.compiled import compile_with
from kronos.model.decoding import decode_paths
from kronos.model.prompts import Prompts

BITS, STEPS = 3, 5
SHAPES = [((6,), 1), ((6,), 2), ((6, 3), 2)]
"""Lengths of the prompts, and paths: the kinds of batch that are compiled apart."""


@pytest.fixture(scope="module")
def model() -> Kronos:
    """In float64, where no rounding turns one id into another."""
    torch.manual_seed(1)
    return Kronos(BITS, BITS, 2, 16, 2, 24, 0.0, 0.0, 0.0, 0.0, True).double().eval()


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Call it with what is to stand for the compiled block."""
    yield lambda made: monkeypatch.setattr(compiled, "_compiled", lambda: made)
    torch.compiler.reset()


def decoded(model: Kronos, lengths: tuple[int, ...], paths: int, **options: bool) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (len(lengths), max(lengths))
    s1, s2 = (torch.randint(2**BITS, shape, generator=generator) for _ in range(2))
    stamps = torch.ones(*shape, 5, dtype=torch.int64)
    prompts = Prompts(s1, s2, stamps, lengths)
    ahead = torch.ones(len(lengths), STEPS, 5, dtype=torch.int64)
    with torch.inference_mode():
        ids = decode_paths(model, prompts, ahead, paths, greedy, 8, **options)
    return torch.stack(ids)


def greedy(logits: Tensor, step: int, half: int) -> Tensor:
    return logits.argmax(-1)


@pytest.mark.parametrize(("lengths", "paths"), SHAPES)
def test_traced_blocks_give_the_same_ids(
    model: Kronos, use: Callable[..., None], lengths: tuple[int, ...], paths: int
) -> None:
    use(compile_with(backend="eager", dynamic=True, fullgraph=True))
    wanted = decoded(model, lengths, paths)
    assert torch.equal(decoded(model, lengths, paths, compiled=True), wanted)


def test_what_is_compiled_serves_all_steps_and_layers(
    model: Kronos, use: Callable[..., None]
) -> None:
    made: list[Any] = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Any:
        made.append(graph)
        return graph.forward

    use(compile_with(backend=backend, dynamic=True))
    decoded(model, (2,), 1, compiled=True)
    first = len(made)
    assert first <= 2  # torch makes one for a path's first bar alone
    decoded(model, (3,), 1, compiled=True)
    assert len(made) == first


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_for_real(model: Kronos) -> None:
    wanted = decoded(model, (6,), 1)
    assert torch.equal(decoded(model, (6,), 1, compiled=True), wanted)


def test_without_a_compiler_one_line(model: Kronos, use: Callable[..., None]) -> None:
    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Any:
        raise RuntimeError("No working C++ compiler found\nin any of these places")

    use(compile_with(backend=backend))
    with pytest.raises(ConfigError, match=r"^compile takes a compiler that works here: .*") as info:
        decoded(model, (6,), 1, compiled=True)
    assert "No working C++ compiler" in str(info.value)
    assert "\n" not in str(info.value)


def test_other_errors_keep_their_names(model: Kronos, use: Callable[..., None]) -> None:
    def broken(*_: Any) -> Tensor:
        raise RuntimeError("out of memory")

    use(broken)
    with pytest.raises(RuntimeError, match="out of memory"):
        decoded(model, (6,), 1, compiled=True)

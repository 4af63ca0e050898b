"""Continuing ids with a cache: the same as without one, each bar computed once, little kept."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kronos.measure import MemoryMeter
from kronos.model import Kronos, KronosTokenizer
from kronos.model.decoding import decode_paths, decode_values
from kronos.model.prompts import Prompts, encode_prompts, pieces
from kronos.model.sampling import PathDraws, Sampling, sample_ids

BITS = 4


@pytest.fixture(scope="module")
def model() -> Kronos:
    """In float64, where no rounding turns one id into another."""
    torch.manual_seed(1)
    return Kronos(BITS, BITS, 2, 16, 2, 24, 0.0, 0.0, 0.0, 0.0, True).double().eval()


@pytest.fixture(scope="module")
def tokenizer() -> KronosTokenizer:
    torch.manual_seed(2)
    arguments: dict[str, Any] = {"d_in": 6, "d_model": 16, "n_heads": 2, "ff_dim": 24}
    layers = {"n_enc_layers": 3, "n_dec_layers": 3}
    dropouts = {"ffn_dropout_p": 0.0, "attn_dropout_p": 0.0, "resid_dropout_p": 0.0}
    loss = {"beta": 0.05, "gamma0": 1.0, "gamma": 1.1, "zeta": 0.05, "group_size": 4}
    both = {"s1_bits": BITS, "s2_bits": BITS}
    return KronosTokenizer(**arguments, **layers, **dropouts, **loss, **both).double().eval()


def some_prompts(lengths: tuple[int, ...], steps: int, seed: int = 0) -> tuple[Prompts, Tensor]:
    """Made-up prompts, and the stamps of the bars to come; behind short ones stands junk."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), max(lengths))

    def stamps(bars: int) -> Tensor:
        sizes = (60, 24, 7, 32, 13)
        drawn = [torch.randint(n, (len(lengths), bars), generator=generator) for n in sizes]
        return torch.stack(drawn, dim=-1)

    s1, s2 = (torch.randint(2**BITS, shape, generator=generator) for _ in range(2))
    return Prompts(s1, s2, stamps(max(lengths)), lengths), stamps(steps)


def uncached(
    model: Kronos,
    prompts: Prompts,
    stamps: Tensor,
    uniforms: Tensor,
    sampling: Sampling,
    max_context: int,
    stride: int,
) -> list[list[list[list[int]]]]:
    """[series][path][step] -> [coarse, fine]: one path at a time, all computed at every bar."""
    return [
        [
            _one_path(
                model,
                [part[row, :length].tolist() for part in (prompts.s1, prompts.s2)],
                torch.cat((prompts.stamps[row, :length], stamps[row])),
                draws,
                sampling,
                (max_context, stride),
            )
            for draws in uniforms[row]
        ]
        for row, length in enumerate(prompts.lengths)
    ]


def _one_path(
    model: Kronos,
    known: list[list[int]],
    stamps: Tensor,
    draws: Tensor,
    sampling: Sampling,
    context: tuple[int, int],
) -> list[list[int]]:
    (s1, s2), (max_context, stride), start = known, context, 0
    last_known = len(s1) - 1
    for draw in draws:
        if len(s1) - start > max_context:
            start = min(len(s1) - max_context + stride - 1, last_known)
        window = [torch.tensor([part[start:]]) for part in (s1, s2)]
        logits, seen = model.decode_s1(*window, stamps[None, start : len(s1)])
        one = sample_ids(logits[:, -1], draw[:1], sampling)
        logits = model.decode_s2(seen, one[:, None])
        s2.append(int(sample_ids(logits[:, -1], draw[1:], sampling)))
        s1.append(int(one))
    return [list(pair) for pair in zip(s1, s2, strict=True)][last_known + 1 :]


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Series of other lengths or not, windows that slide or not, greedy or not."""
    max_context = draw(st.integers(1, 12))
    even = draw(st.booleans())
    series = draw(st.integers(1, 3))
    known = st.integers(1, max_context)
    lengths = [draw(known)] * series if even else [draw(known) for _ in range(series)]
    return {
        "max_context": max_context,
        "lengths": tuple(lengths),
        "steps": draw(st.integers(1, min(8, max_context))),
        "paths": draw(st.integers(1, 3)),
        "stride": draw(st.integers(1, max_context)),
        "T": draw(st.sampled_from([0.0, 1.0])),
        "seed": draw(st.integers(0, 2**32)),
    }


@given(case=cases())
@settings(max_examples=200)
@torch.no_grad()
def test_P20_a_cache_changes_no_id(model: Kronos, case: dict[str, Any]) -> None:
    prompts, stamps = some_prompts(case["lengths"], case["steps"], case["seed"])
    generator = torch.Generator().manual_seed(case["seed"] + 1)
    shape = (len(prompts.lengths), case["paths"], case["steps"], 2)
    uniforms = torch.rand(shape, generator=generator)
    sampling = Sampling(case["T"])
    context = case["max_context"], case["stride"]
    draw = PathDraws(sampling, uniforms.flatten(0, 1))
    s1, s2 = decode_paths(model, prompts, stamps, case["paths"], draw, *context)
    wanted = uncached(model, prompts, stamps, uniforms, sampling, *context)
    assert torch.stack((s1, s2), dim=-1).tolist() == wanted


@pytest.mark.parametrize("new", [1, 5, 9])
@pytest.mark.parametrize("paths", [1, 3])
@torch.no_grad()
def test_values_are_those_of_the_whole_sequence(
    tokenizer: KronosTokenizer, paths: int, new: int
) -> None:
    """However long the prompts, the last `max_context` bars are decoded."""
    prompts, _ = some_prompts((3, 9, 6), new)
    s1, s2 = (torch.randint(2**BITS, (3, paths, new)) for _ in range(2))
    values = decode_values(tokenizer, prompts, s1, s2, max_context=9)
    assert values.shape == (3, paths, new, 6)
    for row, length in enumerate(prompts.lengths):
        for path in range(paths):
            known = ((prompts.s1, s1), (prompts.s2, s2))
            both = [torch.cat((old[row, :length], own[row, path]))[None, -9:] for old, own in known]
            whole = tokenizer.decode((both[0], both[1]), half=True)[0, -new:]
            assert torch.allclose(values[row, path], whole, rtol=1e-9)


@torch.no_grad()
def test_a_decoder_without_blocks_reads_each_bar_alone(
    tokenizer: KronosTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer, "decoder", torch.nn.ModuleList())
    prompts, _ = some_prompts((4,), 3)
    ids = torch.randint(2**BITS, (1, 2, 3))
    values = decode_values(tokenizer, prompts, ids, ids, max_context=9)
    assert torch.allclose(values[0], tokenizer.decode((ids[0], ids[0]), half=True))


def counted(model: Kronos, lengths: tuple[int, ...], steps: int, paths: int, **how: int) -> int:
    """How many bars went through the first block."""
    seen = 0

    def count(_: object, arguments: tuple[Tensor, ...]) -> None:
        nonlocal seen
        seen += arguments[0].shape[:-1].numel()

    prompts, stamps = some_prompts(lengths, steps)
    hook = model.transformer[0].register_forward_pre_hook(count)
    with torch.no_grad():
        draw = PathDraws(Sampling(0.0), torch.zeros(len(lengths) * paths, steps, 2))
        decode_paths(model, prompts, stamps, paths, draw, **{"max_context": 64} | how)
    hook.remove()
    return seen


def test_P20_each_bar_is_computed_once(model: Kronos) -> None:
    """The last bar of all is not: nothing follows from it."""
    assert counted(model, (20,), steps=10, paths=1) == 20 + 9
    assert counted(model, (20,), steps=10, paths=7) == 20 + 7 * 9
    assert counted(model, (20, 20), steps=10, paths=7) == 2 * (20 + 7 * 9)


def test_a_stride_reads_full_windows_less_often(model: Kronos) -> None:
    """Each time the prompts' rest and the new bars, 17 then 18 ... and 13 then 17 of them."""
    every = counted(model, (16,), steps=12, paths=1, max_context=16)
    assert every == 16 + 11 * 16
    fourth = counted(model, (16,), steps=12, paths=1, max_context=16, context_stride=4)
    assert fourth == 16 + 3 * 13 + 8


def test_series_are_read_in_parts_that_caches_hold(
    model: Kronos, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [list(range(10))[some] for some in pieces(10, 1500)] == [
        [0, 1], [2, 3], [4, 5], [6, 7], [8, 9],
    ]  # fmt: skip
    assert list(pieces(3, 10**6)) == [slice(0, 1), slice(1, 2), slice(2, 3)]
    assert list(pieces(3, 0)) == [slice(0, 3)]
    assert list(pieces(0, 5)) == []
    prompts, stamps = some_prompts((5, 5, 5, 4, 3), 6)
    draw = PathDraws(Sampling(0.0), torch.zeros(10, 6, 2))
    with torch.no_grad():
        whole = decode_paths(model, prompts, stamps, 2, draw, 7)
        monkeypatch.setattr("kronos.model.prompts._BARS_AT_ONCE", 4)
        parts = decode_paths(model, prompts, stamps, 2, draw, 7)
    assert torch.equal(torch.stack(whole), torch.stack(parts))


def peak(model: Kronos, prompt: int, paths: int, steps: int = 8) -> int:
    """Bytes alive at most while decoding."""
    prompts, stamps = some_prompts((prompt,), steps)
    draw = PathDraws(Sampling(0.0), torch.zeros(paths, steps, 2))
    with torch.inference_mode(), MemoryMeter("cpu") as meter:
        decode_paths(model, prompts, stamps, paths, draw, max_context=10**6)
    allocated = meter.reading.peak_allocated
    assert allocated is not None
    return allocated


def test_P20_memory_grows_with_paths_times_new_bars_and_one_prompt(model: Kronos) -> None:
    """Three layers' keys and values, the dependency's among them: 6 x 16 numbers of 8 B."""
    kept = 6 * 16 * 8
    longer = [peak(model, 2000, paths) - peak(model, 1000, paths) for paths in (1, 20)]
    assert longer[0] < 3 * 1000 * kept  # with what reading it takes
    assert longer[1] < 4 * 1000 * kept  # and with each path's attention to it, for a moment
    more = peak(model, 4, 400, 64) - peak(model, 4, 200, 64)
    assert 200 * 64 * kept < more < 1.5 * 200 * 64 * kept


def test_encoding_keeps_the_last_bars_of_each_in_order(tokenizer: KronosTokenizer) -> None:
    chance = np.random.default_rng(0)
    scores = [chance.standard_normal((length, 6)) for length in (5, 9, 5, 2)]
    stamps = [np.full((len(one), 5), number) for number, one in enumerate(scores)]
    with torch.no_grad():
        prompts = encode_prompts(tokenizer, scores, stamps, max_context=6)
        assert prompts.lengths == (5, 6, 5, 2)
        assert prompts.s1.shape == (4, 6)
        for row, one in enumerate(scores):
            s1, s2 = tokenizer.encode_halves(torch.from_numpy(one)[None])
            assert torch.equal(prompts.s1[row, : len(one)], s1[0, -6:])
            assert torch.equal(prompts.s2[row, : len(one)], s2[0, -6:])
            assert (prompts.stamps[row, : len(one)] == row).all()


def test_each_step_is_told(model: Kronos) -> None:
    prompts, stamps = some_prompts((3,), 5)
    told: list[None] = []
    step: Callable[[], None] = lambda: told.append(None)  # noqa: E731
    draw = PathDraws(Sampling(0.0), torch.zeros(1, 5, 2))
    with torch.no_grad():
        decode_paths(model, prompts, stamps, 1, draw, 9, on_step=step)
    assert len(told) == 5

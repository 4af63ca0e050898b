"""Filters and draws."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kronos.errors import ConfigError
from kronos.model.sampling import Sampling, filter_logits, path_uniforms, sample_ids

logits_strategy = st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=40).map(
    lambda values: torch.tensor(values, dtype=torch.float32)
)
top_ks = st.none() | st.integers(0, 50)
top_ps = st.none() | st.floats(0, 1)


@given(logits=logits_strategy, top_k=top_ks, top_p=top_ps)
@hypothesis_settings(max_examples=100)
def test_filters_keep_the_likeliest_and_change_nothing_else(
    logits: torch.Tensor, top_k: int | None, top_p: float | None
) -> None:
    kept = filter_logits(logits, top_k, top_p)
    alive = kept.isfinite()
    assert alive[logits.argmax()]
    assert torch.equal(kept[alive], logits[alive])
    assert not alive.all() or not top_k or top_k >= len(logits)
    assert int(alive.sum()) <= (top_k or len(logits))
    assert alive.all() or logits[alive].min() >= logits[~alive].max()


@given(
    logits=logits_strategy,
    top_k=top_ks,
    top_p=top_ps,
    uniform=st.floats(0, 1, exclude_max=True, width=32),
)
@hypothesis_settings(max_examples=100)
def test_a_draw_is_among_the_kept(
    logits: torch.Tensor, top_k: int | None, top_p: float | None, uniform: float
) -> None:
    drawn = sample_ids(logits[None], torch.tensor([uniform]), Sampling(1.0, top_k, top_p))
    kept = filter_logits(logits, top_k, top_p).isfinite()
    assert kept[drawn[0]] or logits[drawn[0]] == logits.max()  # ties of a greedy draw


def test_draws_follow_the_softmax() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0, -1.0]])
    count = 20_000
    uniforms = (torch.arange(count) + 0.5) / count
    for temperature in (1.0, 0.5, 2.0):
        drawn = sample_ids(logits.expand(count, 4), uniforms, Sampling(temperature))
        share = torch.bincount(drawn, minlength=4) / count
        assert torch.allclose(share, torch.softmax(logits[0] / temperature, -1), atol=2e-4)


def test_draws_at_the_ends() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    almost_one = torch.nextafter(torch.tensor([1.0]), torch.tensor([0.0]))
    assert sample_ids(logits, torch.zeros(1), Sampling()).item() == 1
    assert sample_ids(logits, almost_one, Sampling()).item() == 0
    assert sample_ids(logits, almost_one, Sampling(top_k=2)).item() == 2


@pytest.mark.parametrize("off", [{}, {"top_k": None}, {"top_p": None}, {"top_k": 0, "top_p": 1.0}])
def test_P11_none_means_off(off: dict[str, float | None]) -> None:
    logits = torch.randn(3, 8)
    assert torch.equal(filter_logits(logits, **off), logits)  # type: ignore[arg-type]
    Sampling(1.0, **off)  # type: ignore[arg-type]


def test_P12_top_p_counts_among_what_top_k_left() -> None:
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    assert filter_logits(logits, None, 0.5).isfinite().tolist() == [True, True, False, False]
    assert filter_logits(logits, 2, 0.5).isfinite().tolist() == [True, False, False, False]
    assert filter_logits(logits, 3, 0.99).isfinite().tolist() == [True, True, True, False]


def test_an_id_survives_while_those_above_sum_up_to_p_at_most() -> None:
    halves = torch.zeros(2)
    assert filter_logits(halves, None, 0.5).isfinite().tolist() == [True, True]
    assert filter_logits(halves, None, 0.499).isfinite().tolist() == [True, False]
    assert filter_logits(halves, None, 0.0).isfinite().tolist() == [True, False]


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"top_p": 0.5}, {0, 1}),  # what stands above id 1 sums up to exactly 0.5
        ({"top_p": 0.49}, {0}),
        ({"top_p": 0.6}, {0, 1}),
        ({"top_k": 2, "top_p": 0.6}, {0}),  # of the two that are left, id 0 has 2/3
    ],
)
def test_P12_draws_keep_what_the_filters_keep(settings: dict[str, float], kept: set[int]) -> None:
    logits = torch.tensor([0.5, 0.25, 0.125, 0.125]).log()
    uniforms = torch.arange(64) / 64
    drawn = sample_ids(logits.expand(64, 4), uniforms, Sampling(1.0, **settings))
    assert set(drawn.tolist()) == kept
    assert set(filter_logits(logits, **settings).isfinite().nonzero().flatten().tolist()) == kept


@pytest.mark.parametrize("temperature", [0, 0.0, 1e-300])
def test_P13_temperature_zero_is_greedy(temperature: float) -> None:
    logits = torch.randn(50, 8)
    drawn = sample_ids(logits, torch.rand(50), Sampling(temperature))
    assert torch.equal(drawn, logits.argmax(-1))


def test_P13_a_tiny_temperature_does_not_overflow() -> None:
    logits = torch.randn(50, 8) * 1e10
    drawn = sample_ids(logits, torch.rand(50), Sampling(1e-30))
    assert torch.equal(drawn, logits.argmax(-1))


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"T": -1}, r"T must be a number, 0 or more, got -1"),
        ({"T": math.nan}, r"T must be .* got nan"),
        ({"T": math.inf}, r"T must be .* got inf"),
        ({"T": "warm"}, r"T must be .* got 'warm'"),
        ({"T": None}, r"T must be .* got None"),
        ({"T": True}, r"T must be .* got True"),
        ({"top_k": -1}, r"top_k must be a whole number of at least 0, got -1"),
        ({"top_k": 2.5}, r"top_k must be a whole number of at least 0, got 2.5"),
        ({"top_p": 1.5}, r"top_p must be a number, between 0 and 1, got 1.5"),
        ({"top_p": -0.5}, r"top_p must be a number, between 0 and 1, got -0.5"),
        ({"top_p": math.nan}, r"top_p"),
    ],
)
def test_P13_bad_settings(settings: dict[str, float], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        Sampling(**settings)  # type: ignore[arg-type]


def test_path_numbers_depend_on_seed_and_path_alone() -> None:
    wanted = path_uniforms(7, 0, 40)
    torch.manual_seed(0)
    torch.rand(3)
    assert torch.equal(path_uniforms(7, 0, 40), wanted)
    assert torch.equal(path_uniforms(7, 0, 9), wanted[:9])  # a longer path begins the same
    assert not torch.equal(path_uniforms(7, 1, 40), wanted)
    assert not torch.equal(path_uniforms(8, 0, 40), wanted)
    assert path_uniforms(-(2**80), 0, 1).shape == (1, 2)
    firsts = Counter(
        path_uniforms(seed, path, 1)[0, 0].item() for seed in (0, 1) for path in (0, 1)
    )
    assert len(firsts) == 4

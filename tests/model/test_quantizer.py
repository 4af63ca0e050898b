"""Codes, ids and the quantizer's losses."""

import inspect
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from kronos.errors import ConfigError
from kronos.model import KronosTokenizer
from kronos.model.quantizer import (
    BinarySphericalQuantizer,
    HierarchicalQuantizer,
    bits_to_ids,
    codes_of_bits,
    ids_to_bits,
)

LOSS = {"beta": 0.05, "gamma0": 1.0, "gamma": 1.1, "zeta": 0.05}


def quantizer(s1_bits: int, s2_bits: int) -> HierarchicalQuantizer:
    return HierarchicalQuantizer(s1_bits, s2_bits, **LOSS, group_size=1)


def test_the_lowest_bit_comes_first() -> None:
    bits = torch.tensor([[True, False, False], [False, True, True]])
    assert bits_to_ids(bits).tolist() == [1, 6]
    assert torch.equal(ids_to_bits(torch.tensor([1, 6]), 3), bits)


def test_M3_s1_lies_in_the_low_bits_of_a_joined_id() -> None:
    codes = quantizer(3, 2)
    assert codes.join(torch.tensor(5), torch.tensor(2)).item() == 5 + 2 * 8
    s1_ids, s2_ids = codes.split(torch.tensor([21]))
    assert (s1_ids.item(), s2_ids.item()) == (5, 2)
    bits = torch.tensor([[[True, False, True, False, True]]])
    assert [ids.item() for ids in codes.ids(bits)] == [5, 2]


@given(data=st.data(), s1_bits=st.integers(1, 31), s2_bits=st.integers(1, 31))
@settings(max_examples=50)
def test_ids_and_bits_round_trip_with_unequal_halves(
    data: st.DataObject, s1_bits: int, s2_bits: int
) -> None:
    codes = quantizer(s1_bits, s2_bits)
    row = st.lists(st.booleans(), min_size=s1_bits + s2_bits, max_size=s1_bits + s2_bits)
    bits = torch.tensor(data.draw(st.lists(row, min_size=1, max_size=4)))[None]
    s1_ids, s2_ids = codes.ids(bits)
    assert (s1_ids >= 0).all()
    assert (s1_ids < 2**s1_bits).all()
    assert (s2_ids < 2**s2_bits).all()
    assert torch.equal(codes.bits(s1_ids, s2_ids), bits)
    again = codes.split(codes.join(s1_ids, s2_ids))
    assert torch.equal(again[0], s1_ids)
    assert torch.equal(again[1], s2_ids)


def test_codes_are_unit_vectors_and_zero_counts_as_minus() -> None:
    codes, _, bits = quantizer(2, 2)(torch.tensor([[[3.0, -0.1, 0.0, 1e-9]]]))
    assert bits.tolist() == [[[True, False, False, True]]]
    assert codes.tolist() == [[[0.5, -0.5, -0.5, 0.5]]]
    assert torch.equal(codes, codes_of_bits(bits, torch.float32))


def test_gradient_passes_the_sign_but_not_the_factor() -> None:
    z = F.normalize(torch.randn(2, 3, 10), dim=-1).requires_grad_()
    BinarySphericalQuantizer(10, **LOSS, group_size=5)(z)[0].sum().backward()
    assert z.grad is not None
    assert torch.allclose(z.grad, torch.full_like(z, 10**-0.5))


def test_losses_restated_in_plain_python() -> None:
    z = F.normalize(torch.randn(2, 3, 4, dtype=torch.float64), dim=-1)
    settings_ = {"beta": 0.3, "gamma0": 0.7, "gamma": 1.3, "zeta": 0.9}
    _, loss, _ = BinarySphericalQuantizer(4, **settings_, group_size=2)(z)
    rows = z.flatten(0, 1).tolist()

    def entropy(p: float) -> float:
        return -(p * math.log(p + 1e-8) + (1 - p) * math.log(1 - p + 1e-8))

    soft = [[1 / (1 + math.exp(4 * value / 2)) for value in row] for row in rows]
    commitment = sum(
        sum(((0.5 if value > 0 else -0.5) - value) ** 2 for value in row) for row in rows
    ) / len(rows)
    sample = sum(entropy(p) for row in soft for p in row) / len(rows)
    codebook = sum(entropy(sum(column) / len(rows)) for column in zip(*soft, strict=True))
    wanted = 0.3 * commitment + 0.9 * (0.7 * sample - 1.3 * codebook)
    assert loss.item() == pytest.approx(wanted)


def test_buffers_are_powers_of_two_from_the_highest() -> None:
    state = HierarchicalQuantizer(3, 3, **LOSS, group_size=2).state_dict()
    assert state["bsq.basis"].tolist() == [32, 16, 8, 4, 2, 1]
    assert state["bsq.group_basis"].tolist() == [2, 1]
    assert {tensor.dtype for tensor in state.values()} == {torch.int64}


@pytest.mark.parametrize(
    ("bits", "group", "rule"),
    [
        ((5, 5), 4, r"divisible by group_size: 10 / 4"),
        ((0, 5), 1, r"s1_bits must be a whole number of at least 1, got 0"),
        ((5, 2.5), 1, r"s2_bits .* got 2.5"),
        ((True, 5), 1, r"s1_bits .* got True"),
        ((32, 31), 1, r"at most 62 .* 32 \+ 31"),
        ((2, 2), 0, r"group_size"),
    ],
)
def test_M6_bad_bits(bits: tuple[int, int], group: int, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        HierarchicalQuantizer(*bits, **LOSS, group_size=group)


@pytest.mark.parametrize("value", [math.nan, math.inf, "0.05", True])
def test_M6_bad_loss_weights(value: object) -> None:
    with pytest.raises(ConfigError, match="beta must be a finite number"):
        HierarchicalQuantizer(2, 2, **(LOSS | {"beta": value}), group_size=2)  # type: ignore[arg-type]


# The reference's switch for another entropy, and its lookups of codes, fail or are wrong: here
# there is one entropy, and one way from ids to codes.


@pytest.mark.parametrize("made", [KronosTokenizer, HierarchicalQuantizer, BinarySphericalQuantizer])
def test_M7_no_switch_for_another_entropy_and_no_codebook_to_look_up(made: type) -> None:
    assert not [name for name in inspect.signature(made).parameters if "entropy" in name]
    offered = [name for name in dir(made) if not name.startswith("_")]
    assert not [name for name in offered if "codebook" in name or "entry" in name or "ind" in name]


def test_M7_every_id_has_the_code_that_has_that_id() -> None:
    codes = quantizer(3, 2)
    s1, s2 = (
        ids.flatten() for ids in torch.meshgrid(torch.arange(8), torch.arange(4), indexing="ij")
    )
    found = codes_of_bits(codes.bits(s1, s2), torch.float32)
    assert found.norm(dim=-1).allclose(torch.ones(32))
    assert len({tuple(code) for code in found.tolist()}) == 32
    assert [ids.tolist() for ids in codes.ids(found > 0)] == [s1.tolist(), s2.tolist()]

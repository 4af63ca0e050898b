"""The tokenizer beyond its conformance vectors."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kronos.errors import ConfigError
from kronos.model import KronosTokenizer

Settings = Callable[..., dict[str, Any]]


def test_arguments_in_their_order() -> None:
    assert list(inspect.signature(KronosTokenizer).parameters) == [
        *("d_in", "d_model", "n_heads", "ff_dim", "n_enc_layers", "n_dec_layers"),
        *("ffn_dropout_p", "attn_dropout_p", "resid_dropout_p", "s1_bits", "s2_bits"),
        *("beta", "gamma0", "gamma", "zeta", "group_size"),
    ]


def test_unequal_halves_round_trip_exactly(settings: Settings) -> None:
    torch.manual_seed(0)
    model = KronosTokenizer(**settings("tokenizer", s1_bits=3, s2_bits=7)).eval()
    x = torch.randn(2, 20, 6)
    s1_ids, s2_ids = model.encode(x, half=True)
    joined = model.encode(x)
    assert s1_ids.max() < 8
    assert s2_ids.max() < 128
    assert torch.equal(joined, s1_ids | s2_ids << 3)
    assert torch.equal(model.decode(joined), model.decode((s1_ids, s2_ids), half=True))
    assert torch.equal(model(x)[3], joined)
    with torch.no_grad():
        assert torch.allclose(model.decode(joined), model(x)[0][1], atol=1e-6)


def test_the_coarse_reconstruction_reads_the_coarse_bits_alone(
    tiny_tokenizer: KronosTokenizer,
) -> None:
    x = torch.randn(1, 12, 6)
    (z_pre, z), *_ = tiny_tokenizer(x)
    with torch.no_grad():  # the fine half of the codes comes from the last five rows
        tiny_tokenizer.quant_embed.weight[5:] *= -1
        tiny_tokenizer.quant_embed.bias[5:] *= -1
    (z_pre_after, z_after), *_ = tiny_tokenizer(x)
    assert torch.equal(z_pre, z_pre_after)
    assert not torch.allclose(z, z_after)


def test_one_block_fewer_than_layers(settings: Settings) -> None:
    model = KronosTokenizer(**settings("tokenizer", n_enc_layers=1, n_dec_layers=4))
    assert (len(model.encoder), len(model.decoder)) == (0, 3)
    assert model(torch.randn(1, 3, 6))[0][1].shape == (1, 3, 6)


def test_encoding_is_causal(tiny_tokenizer: KronosTokenizer) -> None:
    x = torch.randn(1, 20, 6)
    ids = tiny_tokenizer.encode(x)
    x[:, 12:] += 3
    assert torch.equal(tiny_tokenizer.encode(x)[:, :12], ids[:, :12])


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"d_model": 30}, r"d_model must be divisible by n_heads: 30 / 4"),
        ({"d_model": 12}, r"must be even for the rotary embedding: 12 / 4 = 3"),
        ({"d_in": 0}, r"d_in must be a whole number of at least 1, got 0"),
        ({"n_enc_layers": 0}, r"n_enc_layers"),
        ({"n_dec_layers": -1}, r"n_dec_layers"),
        ({"ff_dim": 6.5}, r"ff_dim must be a whole number"),
        ({"ffn_dropout_p": 1.0}, r"ffn_dropout_p must be a probability, .* got 1.0"),
        ({"attn_dropout_p": -0.1}, r"attn_dropout_p"),
        ({"resid_dropout_p": "no"}, r"resid_dropout_p"),
        ({"group_size": 3}, r"divisible by group_size: 10 / 3"),
    ],
)
def test_M6_bad_shapes_fail_in_the_constructor(
    settings: Settings, changes: dict[str, Any], rule: str
) -> None:
    with pytest.raises(ConfigError, match=rule):
        KronosTokenizer(**settings("tokenizer", **changes))


def test_unknown_checkpointing(tiny_tokenizer: KronosTokenizer) -> None:
    with pytest.raises(ConfigError, match="checkpointing"):
        tiny_tokenizer(torch.randn(1, 3, 6), checkpointing="all")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions(tiny_tokenizer: KronosTokenizer, dtype: torch.dtype) -> None:
    model = tiny_tokenizer.to(dtype)
    ids = model.encode(torch.randn(1, 9, 6, dtype=dtype))
    assert ids.dtype == torch.int64
    assert model.decode(ids).dtype == dtype


@pytest.mark.parametrize("checkpointing", ["off", "block"])
def test_a_training_step_needs_no_data(settings: Settings, checkpointing: str) -> None:
    with FakeTensorMode():
        model = KronosTokenizer(**settings("tokenizer", ffn_dropout_p=0.1))
        model.training_loss(torch.randn(2, 16, 6), checkpointing=checkpointing).backward()
        assert model.embed.weight.grad is not None

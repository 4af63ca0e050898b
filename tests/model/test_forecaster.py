"""The forecaster beyond its conformance vectors."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from kronos.errors import ConfigError
from kronos.model import Kronos
from kronos.model.embedding import sinusoids

Settings = Callable[..., dict[str, Any]]
Near = Callable[[Tensor, Tensor], None]


def ids(length: int = 20, series: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(length)
    return (
        torch.randint(32, (series, length), generator=generator),
        torch.randint(32, (series, length), generator=generator),
    )


def forced(model: Kronos, s1_ids: Tensor, s2_ids: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        return model(
            s1_ids, s2_ids, use_teacher_forcing=True, s1_targets=s1_ids.roll(-1, 1), **options
        )


def test_arguments_in_their_order() -> None:
    assert list(inspect.signature(Kronos).parameters) == [
        *("s1_bits", "s2_bits", "n_layers", "d_model", "n_heads", "ff_dim", "ffn_dropout_p"),
        *("attn_dropout_p", "resid_dropout_p", "token_dropout_p", "learn_te"),
    ]


@pytest.mark.parametrize("training", [False, True])
def test_M1_the_last_token_does_not_move_earlier_logits(
    tiny_forecaster: Kronos, training: bool
) -> None:
    model = tiny_forecaster.train(training)
    s1_ids, s2_ids = ids()
    targets = s1_ids.roll(-1, 1)
    changed_ids, changed_targets = s1_ids.clone(), targets.clone()
    changed_ids[:, -1] = (s1_ids[:, -1] + 7) % 32
    changed_targets[:, -1] = (targets[:, -1] + 7) % 32
    both = []
    for first, second in ((s1_ids, targets), (changed_ids, changed_targets)):
        with torch.no_grad():
            both.append(model(first, s2_ids, use_teacher_forcing=True, s1_targets=second))
    for before, after in zip(*both, strict=True):
        assert torch.allclose(before[:, :-1], after[:, :-1], atol=1e-6)
        assert not torch.allclose(before[:, -1], after[:, -1], atol=1e-3)


def test_M1_only_the_switch_lets_the_fine_logits_see_the_future(tiny_forecaster: Kronos) -> None:
    s1_ids, s2_ids = ids()
    changed = s1_ids.clone()
    changed[:, -1] = (changed[:, -1] + 7) % 32
    before = forced(tiny_forecaster, s1_ids, s2_ids, cross_attention_sees_future=True)
    after = forced(tiny_forecaster, changed, s2_ids, cross_attention_sees_future=True)
    assert torch.allclose(before[0][:, :-1], after[0][:, :-1], atol=1e-6)
    assert not torch.allclose(before[1][:, :5], after[1][:, :5], atol=1e-4)


@pytest.mark.parametrize("sees_future", [False, True])
def test_M4_padded_bars_change_nothing(tiny_forecaster: Kronos, sees_future: bool) -> None:
    s1_ids, s2_ids = ids()
    padding = torch.zeros(2, 20, dtype=torch.bool)
    padding[:, :4] = True
    padding[1, 15:] = True
    options = {"padding_mask": padding, "cross_attention_sees_future": sees_future}
    targets = s1_ids.roll(-1, 1)
    other = torch.where(padding, (s1_ids + 5) % 32, s1_ids)
    both = []
    for first in (s1_ids, other):
        with torch.no_grad():
            both.append(
                tiny_forecaster(
                    first, s2_ids, use_teacher_forcing=True, s1_targets=targets, **options
                )
            )
    for before, after in zip(*both, strict=True):
        assert before.isfinite().all()
        assert torch.allclose(before[~padding], after[~padding], atol=1e-5)
        assert not torch.allclose(before[padding], after[padding], atol=1e-3)


def test_M4_padding_when_decoding(tiny_forecaster: Kronos) -> None:
    s1_ids, s2_ids = ids()
    padding = torch.zeros(2, 20, dtype=torch.bool)
    padding[:, 3:6] = True
    other = torch.where(padding, (s1_ids + 5) % 32, s1_ids)
    both = []
    for first in (s1_ids, other):
        with torch.no_grad():
            coarse, context = tiny_forecaster.decode_s1(first, s2_ids, None, padding)
            fine = tiny_forecaster.decode_s2(context, s1_ids[:, :1], padding, last_only=True)
            several = tiny_forecaster.decode_s2(context, s1_ids, padding)
        both.append((coarse[~padding], fine, several[~padding]))
    for before, after in zip(*both, strict=True):
        assert torch.allclose(before, after, atol=1e-5)


def test_forward_draws_the_coarse_ids_it_is_conditioned_on(tiny_forecaster: Kronos) -> None:
    s1_ids, s2_ids = ids(30)
    with torch.no_grad():
        torch.manual_seed(3)
        s1_logits, s2_logits = tiny_forecaster(s1_ids, s2_ids)
        torch.manual_seed(3)
        drawn = torch.multinomial(torch.softmax(s1_logits, -1).flatten(0, 1), 1).view(2, 30)
        again = tiny_forecaster(s1_ids, s2_ids, use_teacher_forcing=True, s1_targets=drawn)[1]
        other = tiny_forecaster(s1_ids, s2_ids)[1]
    assert torch.equal(s2_logits, again)
    assert not torch.equal(s2_logits, other)


def test_teacher_forcing_needs_targets(tiny_forecaster: Kronos) -> None:
    with pytest.raises(ConfigError, match="s1_targets"):
        tiny_forecaster(*ids(), use_teacher_forcing=True)


def test_decode_s2_for_every_bar_is_causal_and_rotated(tiny_forecaster: Kronos) -> None:
    s1_ids, s2_ids = ids()
    with torch.no_grad():
        _, context = tiny_forecaster.decode_s1(s1_ids, s2_ids)
        fine = tiny_forecaster.decode_s2(context, s1_ids.roll(-1, 1))
        last = tiny_forecaster.decode_s2(context, s1_ids.roll(-1, 1), last_only=True)
    assert torch.allclose(fine, forced(tiny_forecaster, s1_ids, s2_ids)[1], atol=1e-6)
    assert torch.allclose(last, fine[:, -1:], atol=1e-6)
    with pytest.raises(ConfigError, match="20 bars, got 3"):
        tiny_forecaster.decode_s2(context, s1_ids[:, :3])


def test_initial_weights(settings: Settings) -> None:
    torch.manual_seed(0)
    model = Kronos(**settings("predictor", d_model=256, ff_dim=512))
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert (parameter == 0).all()
        elif "norm" in name:
            assert (parameter == 1).all()
        elif "emb_s" in name or "_embed" in name:
            assert parameter.std().item() == pytest.approx(256**-0.5, rel=0.1)
        else:
            rows, columns = parameter.shape
            assert parameter.std().item() == pytest.approx((2 / (rows + columns)) ** 0.5, rel=0.1)


def test_M5_sinusoids_survive_the_initialisation(settings: Settings) -> None:
    model = Kronos(**settings("predictor", learn_te=False))
    assert torch.equal(model.time_emb.minute_embed.emb.weight, sinusoids(60, 32))
    assert torch.equal(model.time_emb.month_embed.emb.weight, sinusoids(13, 32))
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert not any(name.startswith("time_emb") for name in trained)
    state = model.state_dict() | {"time_emb.minute_embed.emb.weight": torch.ones(60, 32)}
    model.load_state_dict(state)
    assert (model.time_emb.minute_embed.emb.weight == 1).all()  # loaded weights win


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"d_model": 36, "n_heads": 6}, r"dependency layer's 4 heads must be even.*36 / 4 = 9"),
        ({"d_model": 30, "n_heads": 3}, r"divisible by the dependency layer's 4 heads: 30 / 4"),
        ({"d_model": 32, "n_heads": 3}, r"d_model must be divisible by n_heads: 32 / 3"),
        ({"d_model": 24, "n_heads": 8}, r"must be even for the rotary embedding: 24 / 8 = 3"),
        ({"n_layers": 0}, r"n_layers must be a whole number of at least 1, got 0"),
        ({"n_heads": "4"}, r"n_heads must be a whole number"),
        ({"s1_bits": 0}, r"s1_bits"),
        ({"token_dropout_p": 1.5}, r"token_dropout_p must be a probability"),
        ({"learn_te": 1}, r"learn_te must be true or false, got 1"),
    ],
)
def test_M6_bad_shapes_fail_in_the_constructor(
    settings: Settings, changes: dict[str, Any], rule: str
) -> None:
    with pytest.raises(ConfigError, match=rule):
        Kronos(**settings("predictor", **changes))


def test_unequal_bits_give_logits_of_their_own_sizes(settings: Settings) -> None:
    model = Kronos(**settings("predictor", s1_bits=3, s2_bits=6))
    s1_logits, s2_logits = model(torch.zeros(1, 4, dtype=torch.long), torch.full((1, 4), 63))
    assert (s1_logits.shape, s2_logits.shape) == ((1, 4, 8), (1, 4, 64))


def test_loss_leaves_padding_out_and_is_the_mean_of_both(tiny_forecaster: Kronos) -> None:
    s1_logits, s2_logits = torch.randn(1, 3, 32), torch.randn(1, 3, 32)
    targets = torch.tensor([[4, 5, 6]])
    padding = torch.tensor([[False, True, False]])
    loss, s1_loss, s2_loss = tiny_forecaster.head.compute_loss(
        s1_logits, s2_logits, targets, targets, padding
    )
    rows = -torch.log_softmax(s1_logits, -1)[0]
    assert s1_loss.item() == pytest.approx(((rows[0, 4] + rows[2, 6]) / 2).item(), rel=1e-5)
    assert loss.item() == pytest.approx((s1_loss.item() + s2_loss.item()) / 2)


def test_loss_of_half_precision_logits_is_float32(tiny_forecaster: Kronos) -> None:
    logits, targets = torch.randn(1, 50, 32).bfloat16(), torch.zeros(1, 50, dtype=torch.long)
    loss = tiny_forecaster.head.compute_loss(logits, logits, targets, targets)[0]
    wanted = tiny_forecaster.head.compute_loss(logits.float(), logits.float(), targets, targets)[0]
    assert loss.dtype == torch.float32
    assert torch.equal(loss, wanted)


@pytest.mark.parametrize("checkpointing", ["off", "block"])
@pytest.mark.parametrize("padded", [False, True])
def test_a_training_step_needs_no_data(
    settings: Settings, checkpointing: str, padded: bool
) -> None:
    with FakeTensorMode():
        model = Kronos(**settings("predictor", attn_dropout_p=0.1, token_dropout_p=0.1))
        codes = torch.zeros(2, 16, dtype=torch.long)
        padding = torch.zeros(2, 16, dtype=torch.bool) if padded else None
        stamp = torch.zeros(2, 16, 5, dtype=torch.long)
        logits = model(codes, codes, stamp, padding, checkpointing=checkpointing)
        model.head.compute_loss(*logits, codes, codes, padding)[0].backward()
        assert model.embedding.emb_s1.weight.grad is not None


def test_unknown_checkpointing(tiny_forecaster: Kronos) -> None:
    with pytest.raises(ConfigError, match="checkpointing"):
        tiny_forecaster(*ids(), checkpointing="Block")


def test_bfloat16_stays_near_float32(tiny_forecaster: Kronos) -> None:
    s1_ids, s2_ids = ids(400, 1)
    wanted, _ = forced(tiny_forecaster, s1_ids, s2_ids)
    got, _ = forced(tiny_forecaster.bfloat16(), s1_ids, s2_ids)
    assert got.dtype == torch.bfloat16
    assert (got.float() - wanted).abs().mean() < 0.05 * wanted.abs().mean()

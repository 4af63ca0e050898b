"""The training step: accumulation, checkpointing and precision keep the gradient."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from kronos.errors import ConfigError
from kronos.measure import StorageMeter
from kronos.model import Kronos
from kronos.train.step import (
    StepOptions,
    TokenBatch,
    autocast,
    forecaster_loss,
    make_optimizer,
    tokenize,
    training_step,
)

TEACHER = StepOptions(teacher_forcing=True)


def _forecaster(seed=0, **changes):
    torch.manual_seed(seed)
    shape = {"n_layers": 2, "d_model": 16, "n_heads": 2, "ff_dim": 32} | changes
    return Kronos(
        s1_bits=4,
        s2_bits=4,
        ffn_dropout_p=0.0,
        attn_dropout_p=0.0,
        resid_dropout_p=0.0,
        token_dropout_p=0.0,
        learn_te=True,
        **shape,
    )


def _tokens(samples, length=9, seed=1):
    generator = torch.Generator().manual_seed(seed)

    def ids():
        return torch.randint(16, (samples, length), generator=generator)

    stamps = torch.randint(7, (samples, length, 5), generator=generator)
    return TokenBatch(ids(), ids(), stamps)


def _part(tokens, first, last):
    return TokenBatch(*(part[first:last] for part in tokens))


class _KeepGradients(torch.optim.SGD):
    """An optimizer that writes the gradients down and moves nothing."""

    def step(self, closure=None):
        self.seen = [
            parameter.grad.clone()
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]


def _gradients(model, micro_batches, options):
    optimizer = _KeepGradients(model.parameters(), lr=1.0)
    result = training_step(
        lambda tokens: forecaster_loss(model, tokens, options), micro_batches, optimizer, options
    )
    return result, optimizer.seen


@settings(max_examples=20)
@given(samples=st.integers(2, 9), data=st.data())
def test_micro_batches_give_the_whole_batch_s_gradient(samples, data):
    cuts = sorted(data.draw(st.sets(st.integers(1, samples - 1), max_size=3)))
    edges = list(zip([0, *cuts], [*cuts, samples], strict=True))
    tokens = _tokens(samples)
    whole, expected = _gradients(_forecaster(), [(tokens, samples)], TEACHER)
    parts = [(_part(tokens, first, last), last - first) for first, last in edges]
    split, gradients = _gradients(_forecaster(), parts, TEACHER)
    torch.testing.assert_close(split.loss, whole.loss, rtol=1e-6, atol=1e-6)
    for ours, theirs in zip(gradients, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_checkpointing_keeps_the_gradient_and_frees_activations():
    tokens = _tokens(8, length=33)
    results, peaks = [], []
    for checkpointing in ("off", "block"):
        options = StepOptions(teacher_forcing=True, checkpointing=checkpointing)
        model = _forecaster(n_layers=4)
        with StorageMeter() as meter:
            results.append(_gradients(model, [(tokens, 8)], options))
        peaks.append(meter.peak().bytes)
    for ours, theirs in zip(results[0][1], results[1][1], strict=True):
        assert torch.equal(ours, theirs)
    assert peaks[1] < 0.8 * peaks[0]


def test_bf16_is_close_to_float32_and_keeps_float32_weights():
    tokens = _tokens(4)
    exact, _ = _gradients(_forecaster(), [(tokens, 4)], TEACHER)
    model = _forecaster()
    mixed, gradients = _gradients(
        model, [(tokens, 4)], StepOptions(teacher_forcing=True, precision="bf16")
    )
    assert mixed.loss != exact.loss
    torch.testing.assert_close(mixed.loss, exact.loss, rtol=0.02, atol=0)
    assert {gradient.dtype for gradient in gradients} == {torch.float32}


def test_gradients_are_clipped_and_freed():
    model = _forecaster()
    tokens = _tokens(4)
    options = StepOptions(teacher_forcing=True, max_grad_norm=1e-3)
    result, gradients = _gradients(model, [(tokens, 4)], options)
    assert result.grad_norm > 1e-3
    norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
    assert norm.item() == pytest.approx(1e-3, rel=1e-3)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_step_lowers_the_loss():
    model = _forecaster()
    tokens = _tokens(8)
    optimizer = make_optimizer(list(model.parameters()), learning_rate=1e-2, weight_decay=0.0)
    losses = [
        training_step(
            lambda batch: forecaster_loss(model, batch, TEACHER), [(tokens, 8)], optimizer, TEACHER
        ).loss.item()
        for _ in range(20)
    ]
    assert losses[-1] < 0.8 * losses[0]


def test_the_optimizer_is_told_rate_and_decay():
    optimizer = make_optimizer(
        [torch.nn.Parameter(torch.ones(2))], learning_rate=0.5, weight_decay=0.25
    )
    defaults = optimizer.defaults
    assert (defaults["lr"], defaults["weight_decay"], defaults["betas"]) == (0.5, 0.25, (0.9, 0.95))


def test_teacher_forcing_decides_what_the_fine_token_is_conditioned_on():
    model, tokens = _forecaster(), _tokens(8)
    torch.manual_seed(0)
    drawn = forecaster_loss(model, tokens, StepOptions())
    assert drawn != forecaster_loss(model, tokens, TEACHER)
    torch.manual_seed(0)
    assert drawn == forecaster_loss(model, tokens, StepOptions())


def test_the_last_bar_is_only_a_target():
    """Its ids decide the loss of the position before it; it is never an input."""
    model, tokens = _forecaster(), _tokens(2)
    seen = []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape))
    forecaster_loss(model, tokens, TEACHER)
    assert seen == [(2, 8)]


def test_the_loss_is_of_the_next_tokens_the_fine_ones_given_their_coarse_ones():
    model, tokens = _forecaster(), _tokens(3)
    s1, s2 = model(
        *(part[:, :-1] for part in tokens),
        use_teacher_forcing=True,
        s1_targets=tokens.s1_ids[:, 1:],
    )
    wanted = [
        cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        for logits, ids in ((s1, tokens.s1_ids), (s2, tokens.s2_ids))
    ]
    torch.testing.assert_close(forecaster_loss(model, tokens, TEACHER), sum(wanted) / 2)


def test_tokens_do_not_depend_on_the_precision_of_the_step(tiny_models):
    torch.manual_seed(0)
    _, tokenizer = tiny_models()
    bars = torch.randn(16, 64, 6)
    stamps = torch.zeros(16, 64, 5, dtype=torch.int64)
    plain = tokenize(tokenizer, bars, stamps)
    with autocast(torch.device("cpu"), "bf16"):
        mixed = tokenize(tokenizer, bars, stamps)
    assert torch.equal(plain.s1_ids, tokenizer.encode_halves(bars)[0])
    assert torch.equal(plain.s1_ids, mixed.s1_ids)
    assert torch.equal(plain.s2_ids, mixed.s2_ids)
    assert not plain.s1_ids.requires_grad


def test_bf16_is_bfloat16():
    with autocast(torch.device("cpu"), "bf16"):
        assert torch.nn.Linear(2, 2)(torch.ones(1, 2)).dtype == torch.bfloat16


def test_an_unknown_precision_is_named():
    with pytest.raises(ConfigError, match="fp8"):
        autocast(torch.device("cpu"), "fp8")

"""Phases, on a small made-up market."""

import numpy as np
import pytest
import torch

from kronos.checkpoint import build_models
from kronos.model import KronosTokenizer
from kronos.train.data import load_data
from kronos.train.phase import forecaster_phase, tokenizer_phase
from kronos.train.step import StepOptions


def _phase(config, make=forecaster_phase):
    return make(
        build_models(config.model, device="cpu", seed=0), load_data(config), config.training
    )


def _rates(phase, steps):
    rates = []
    for _ in range(steps):
        rates.append(phase._optimizer.param_groups[0]["lr"])
        phase()
    return rates


def test_the_rate_rises_then_falls_and_steps_beyond_the_schedule_keep_the_last(small_run):
    config = small_run(steps=99, schedule="one-cycle", batch_size=2)
    rates = _rates(_phase(config, tokenizer_phase), 102)
    assert rates[0] == pytest.approx(3e-4)
    assert max(rates) == rates[2] == pytest.approx(3e-3)
    assert rates[99:] == [pytest.approx(3e-8)] * 3


def test_a_constant_rate_stays(small_run):
    assert _rates(_phase(small_run()), 3) == [3e-3] * 3


def test_a_step_is_made_as_the_configuration_says(small_run, monkeypatch):
    seen = []
    monkeypatch.setattr("kronos.train.phase.training_step", lambda *given: seen.append(given))
    options = {
        "precision": "bf16",
        "checkpointing": "block",
        "max_grad_norm": 0.75,
        "teacher_forcing": True,
    }
    _phase(small_run(accumulation=3, batch_size=5, weight_decay=0.25, **options))()
    ((_, batches, optimizer, given),) = seen
    assert [count for _, count in batches] == [5, 5, 5]
    assert given == StepOptions(**options)
    assert (optimizer.defaults["lr"], optimizer.defaults["weight_decay"]) == (3e-3, 0.25)


def test_the_tokenizer_recomputes_its_blocks_where_told(small_run, monkeypatch):
    seen = []
    training_loss = KronosTokenizer.training_loss

    def spy(self, x, **options):
        seen.append(options)
        return training_loss(self, x, **options)

    monkeypatch.setattr(KronosTokenizer, "training_loss", spy)
    _phase(small_run(checkpointing="block"), tokenizer_phase)()
    assert seen == [{"checkpointing": "block"}]


def test_what_was_drawn_before_a_phase_does_not_matter(small_run):
    config = small_run()
    data, losses = load_data(config), []
    for drawn in (0, 5):
        models = build_models(config.model, device="cpu", seed=0)
        torch.rand(drawn)
        losses.append(forecaster_phase(models, data, config.training)().loss)
    assert losses[0] == losses[1]


def test_validation_is_in_the_precision_of_the_run(small_run):
    exact, mixed = (
        _phase(small_run(precision=precision)).validate() for precision in ("float32", "bf16")
    )
    assert mixed != exact
    assert mixed == pytest.approx(exact, rel=0.05)


def test_validation_neither_draws_nor_changes_anything(small_run):
    config = small_run()
    data = load_data(config)
    models = build_models(config.model, device="cpu", seed=0)
    phase = forecaster_phase(models, data, config.training)
    state = torch.get_rng_state()
    first = phase.validate()
    assert torch.equal(state, torch.get_rng_state())
    assert phase.validate() == first
    assert models.forecaster.training
    assert not models.tokenizer.training
    assert not any(parameter.requires_grad for parameter in models.tokenizer.parameters())


def test_the_tokenizer_validates_on_the_full_reconstruction_alone(small_run):
    config = small_run()
    data = load_data(config)
    models = build_models(config.model, device="cpu", seed=0)
    phase = tokenizer_phase(models, data, config.training)
    value = phase.validate()
    torch.nn.init.zeros_(models.tokenizer.head.weight)
    torch.nn.init.zeros_(models.tokenizer.head.bias)
    starts = data.validation.spread(256)
    expected = np.square(data.windows.batch(starts).features).mean()
    assert phase.validate() == pytest.approx(expected, rel=1e-5)
    assert value != pytest.approx(expected, rel=1e-5)

"""What a hidden feature costs a model."""

import pytest
import torch

from kronos.checkpoint import build_models
from kronos.data.features import rank_features
from kronos.recipes import baseline
from kronos.train.data import load_data
from kronos.train.effects import hidden_loss
from kronos.train.phase import forecaster_phase


@pytest.fixture(scope="module")
def shipped():
    config = baseline()
    return build_models(config.model, device="cpu", seed=0), load_data(config)


def test_with_nothing_hidden_it_is_the_validation_loss(shipped):
    models, data = shipped
    starts = data.validation.spread(256)
    batch = data.windows.batch(starts)
    phase = forecaster_phase(models, data, baseline().training)
    assert hidden_loss(models)(batch, batch) == pytest.approx(phase.validate(), rel=1e-5)
    assert models.forecaster.training, "the mode is given back"


def test_the_shipped_model_misses_the_close_more_than_the_month(shipped):
    models, data = shipped
    models.forecaster.eval()
    state = torch.get_rng_state()
    ranks = rank_features(data.windows, data.validation.spread(48), hidden_loss(models))
    effects = {rank.name: rank.effect for rank in ranks}
    assert torch.equal(state, torch.get_rng_state())
    assert effects["close"] > 0.05
    assert effects["close"] > effects["month"]
    again = rank_features(data.windows, data.validation.spread(48), hidden_loss(models))
    assert again == ranks

"""Feeds, phases and the loop, on a small made-up market."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch

from kronos.checkpoint import FORECASTER, TOKENIZER, best_model, build_models
from kronos.config import DataConfig, ForecasterShape, ModelConfig, RunConfig, TokenizerShape
from kronos.config import TrainingConfig as Training
from kronos.errors import ConfigError, DataError, WeightsError
from kronos.model import Kronos, KronosTokenizer
from kronos.train import TrainingStopped, train
from kronos.train.feed import Feed, load_data, spread
from kronos.train.phase import forecaster_phase, tokenizer_phase


@pytest.fixture(scope="module")
def bars_file(tmp_path_factory):
    rng = np.random.default_rng(0)
    close = 50 + np.sin(np.arange(300) / 5) * 5 + rng.normal(0, 0.2, 300)
    frame = pd.DataFrame(
        {
            "timestamps": pd.date_range("2024-01-01", periods=300, freq="D"),
            "open": close,
            "high": close + 0.5,
            "low": close - 0.5,
            "close": close,
            "volume": rng.uniform(100, 200, 300),
        }
    )
    path = tmp_path_factory.mktemp("bars") / "market.csv"
    frame.to_csv(path, index=False)
    return path


def _config(bars_file, **training):
    values = {
        "window": 20,
        "horizon": 4,
        "batch_size": 16,
        "steps": 12,
        "learning_rate": 3e-3,
        "validate_every": 4,
    }
    return RunConfig(
        name="small",
        model=ModelConfig(
            name="small",
            tokenizer=TokenizerShape(
                d_model=16,
                n_heads=2,
                ff_dim=32,
                n_enc_layers=2,
                n_dec_layers=2,
                s1_bits=4,
                s2_bits=4,
                group_size=4,
            ),
            forecaster=ForecasterShape(
                s1_bits=4,
                s2_bits=4,
                n_layers=1,
                d_model=16,
                n_heads=2,
                ff_dim=32,
                resid_dropout_p=0.1,
            ),
            max_context=32,
        ),
        data=DataConfig(bars=str(bars_file)),
        training=Training(**(values | training)),
    )


def test_both_phases_lower_their_validation_loss_and_keep_the_best(bars_file, tmp_path):
    shown = []
    results = train(_config(bars_file), tmp_path, device="cpu", show=shown.append)
    assert [result.part for result in results] == [TOKENIZER, FORECASTER]
    for result in results:
        assert result.best_validation < result.first_validation
        assert result.best_step in (4, 8, 12)
        assert sorted(path.name for path in result.folder.iterdir()) == [
            "config.json",
            "model.safetensors",
        ]
    assert [one.step for one in shown] == [*range(1, 13)] * 2
    assert all(one.steps_per_hour > 0 and math.isfinite(one.loss) for one in shown)


def test_T8_the_forecaster_learns_on_the_tokenizer_just_trained(bars_file, tmp_path, monkeypatch):
    seen = []

    def keep(models, data, training):
        seen.append({name: value.clone() for name, value in models.tokenizer.state_dict().items()})
        return forecaster_phase(models, data, training)

    monkeypatch.setattr("kronos.train.loop.forecaster_phase", keep)
    train(_config(bars_file), tmp_path, device="cpu")
    saved = KronosTokenizer.from_pretrained(best_model(tmp_path, TOKENIZER)).state_dict()
    assert all(torch.equal(saved[name], value) for name, value in seen[0].items())


def test_one_seed_gives_one_model(bars_file, tmp_path):
    config = _config(bars_file, steps=4, accumulation=2)
    for name in ("one", "other"):
        train(config, tmp_path / name, device="cpu")
    files = [
        best_model(tmp_path / name, part) / "model.safetensors"
        for part in (TOKENIZER, FORECASTER)
        for name in ("one", "other")
    ]
    contents = [path.read_bytes() for path in files]
    assert contents[0] == contents[1]
    assert contents[2] == contents[3]
    train(config.with_overrides(["training.seed=1"]), tmp_path / "third", device="cpu")
    third = best_model(tmp_path / "third", FORECASTER) / "model.safetensors"
    assert third.read_bytes() != contents[2]


def test_pretrained_weights_are_fine_tuned_and_the_tokenizer_stays(bars_file, tmp_path):
    config = _config(bars_file, steps=4)
    train(config, tmp_path / "first", device="cpu")
    again = config.with_overrides([f"model.pretrained={tmp_path / 'first'}"])
    (result,) = train(again, tmp_path / "second", device="cpu")
    assert result.part == FORECASTER
    before, after = (
        KronosTokenizer.from_pretrained(best_model(tmp_path / name, TOKENIZER)).state_dict()
        for name in ("first", "second")
    )
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_pretrained_weights_of_another_shape_are_refused(bars_file, tmp_path):
    config = _config(bars_file, steps=1)
    train(config, tmp_path, device="cpu")
    other = config.with_overrides([f"model.pretrained={tmp_path}", "model.forecaster.d_model=32"])
    with pytest.raises(WeightsError, match="embedding"):
        build_models(other.model, device="cpu", seed=0)


def test_a_loss_that_is_no_number_stops_and_names_the_step(bars_file, tmp_path):
    config = _config(bars_file, learning_rate=1e30, max_grad_norm=1e30)
    with pytest.raises(TrainingStopped, match=r"step \d+.*best weights.*learning_rate") as caught:
        train(config, tmp_path, device="cpu")
    assert "\n" not in str(caught.value)
    saved = KronosTokenizer.from_pretrained(best_model(tmp_path, TOKENIZER))
    assert all(torch.isfinite(value).all() for value in saved.state_dict().values())


def test_steps_beyond_the_schedule_go_on_at_its_last_rate(bars_file):
    config = _config(bars_file, steps=2, schedule="one-cycle")
    phase = tokenizer_phase(
        build_models(config.model, device="cpu", seed=0), load_data(config), config.training
    )
    for _ in range(5):
        phase()


def test_T4_too_few_bars_to_validate_are_refused_before_training(bars_file, tmp_path):
    config = _config(bars_file, window=200, horizon=50).with_overrides(
        ["data.validation_share=0.1"]
    )
    with pytest.raises((ConfigError, DataError), match="30"):
        train(config, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_T16_a_batch_larger_than_the_windows_is_refused(bars_file, tmp_path):
    config = _config(bars_file, batch_size=1000)
    train(_config(bars_file, steps=1), tmp_path / "first", device="cpu")
    pretrained = config.with_overrides([f"model.pretrained={tmp_path / 'first'}"])
    for one in (config, pretrained):
        with pytest.raises(ConfigError, match="1000"):
            train(one, tmp_path / "run", device="cpu")
        assert not (tmp_path / "run").exists()


def test_missing_pretrained_weights_are_named(bars_file, tmp_path):
    config = _config(bars_file).with_overrides([f"model.pretrained={tmp_path / 'nowhere'}"])
    with pytest.raises(WeightsError, match="nowhere"):
        train(config, tmp_path / "run", device="cpu")


def test_an_epoch_shows_every_window_once_and_the_next_in_another_order(bars_file):
    config = _config(bars_file, batch_size=8)
    data = load_data(config)
    feed = Feed(data, config.training, "cpu")
    per_epoch = len(data.train) // 8
    first = [batch.stamps[:, 0] for batch, _ in feed.take(per_epoch)]
    second = [batch.stamps[:, 0] for batch, _ in feed.take(per_epoch)]
    one, other = torch.cat(first), torch.cat(second)
    assert not torch.equal(one, other)
    assert len(one) == per_epoch * 8


def test_no_training_sample_holds_a_validation_target(bars_file):
    data = load_data(_config(bars_file))
    length = data.windows.sample_length
    assert data.train[-1] + length <= data.validation[0] + data.windows.window


def test_spread_takes_the_ends_and_never_repeats():
    assert spread(range(10, 20), 3).tolist() == [10, 14, 19]
    assert spread(range(5), 100).tolist() == [0, 1, 2, 3, 4]


def test_validation_neither_draws_nor_changes_anything(bars_file):
    config = _config(bars_file)
    data = load_data(config)
    models = build_models(config.model, device="cpu", seed=0)
    phase = forecaster_phase(models, data, config.training)
    state = torch.get_rng_state()
    first = phase.validate()
    assert torch.equal(state, torch.get_rng_state())
    assert phase.validate() == first
    assert models.forecaster.training
    assert not models.tokenizer.training


def test_the_tokenizer_validates_on_the_full_reconstruction_alone(bars_file):
    config = _config(bars_file)
    data = load_data(config)
    models = build_models(config.model, device="cpu", seed=0)
    phase = tokenizer_phase(models, data, config.training)
    value = phase.validate()
    torch.nn.init.zeros_(models.tokenizer.head.weight)
    torch.nn.init.zeros_(models.tokenizer.head.bias)
    starts = spread(data.validation, 256)
    expected = np.square(data.windows.batch(starts).features).mean()
    assert phase.validate() == pytest.approx(expected, rel=1e-5)
    assert value != pytest.approx(expected, rel=1e-5)


def test_the_saved_configuration_is_the_shape(bars_file, tmp_path):
    config = _config(bars_file, steps=1)
    train(config, tmp_path, device="cpu")
    saved = json.loads((best_model(tmp_path, FORECASTER) / "config.json").read_text())
    assert saved == config.model.forecaster.model_dump()
    assert isinstance(Kronos.from_pretrained(best_model(tmp_path, FORECASTER)), Kronos)

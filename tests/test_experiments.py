"""What the gate runs: fine-tuning the shipped tiny model and scoring it on held-out bars."""

import numpy as np
import pytest
import torch

from kronos import experiments, samples
from kronos.data import Market, read_bars
from kronos.experiments import Experiment, bars_per_year, golden_columns
from kronos.predict import KronosPredictor
from kronos.recipes import baseline, full, small_gpu
from pytest_kronos.golden import COLUMNS

SMALL = ["training.batch_size=8", "scoring.windows=6", "scoring.sample_count=2"]


@pytest.fixture(scope="module")
def experiment():
    return Experiment(baseline().with_overrides(SMALL), "cpu")


def test_scores_are_those_of_the_contract_and_finite(experiment):
    scores, forecast = experiment.score()
    assert set(scores) == {
        "mae",
        "rmse",
        "direction_accuracy",
        "cumulative_return",
        "max_drawdown",
        "sharpe",
        "stability",
    }
    assert all(np.isfinite(value) for value in scores.values())
    assert list(forecast.columns) == ["open", "high", "low", "close", "volume", "amount"]
    assert len(forecast) == 24
    assert np.isfinite(forecast.to_numpy()).all()


def test_the_forecast_is_of_the_latest_held_out_bars(experiment):
    _, forecast = experiment.score()
    bars = read_bars(samples.ibm_daily())
    last_start = int(experiment.data.validation.every()[-1])
    expected = bars.index[last_start + 120 : last_start + 144]
    assert forecast.index.equals(expected)


def test_scoring_twice_gives_the_same_and_moves_nothing(experiment):
    state = torch.get_rng_state()
    first, _ = experiment.score()
    assert experiment.score()[0] == first
    assert torch.equal(state, torch.get_rng_state())
    assert experiment.models.forecaster.training


def test_the_shipped_model_forecasts_about_as_well_as_the_last_close(experiment):
    """Daily prices are near a random walk: a sound forecast's error is near the naive one's."""
    config = baseline().with_overrides(["scoring.windows=24"])
    sound = Experiment(config, "cpu")
    scores, _ = sound.score()
    assert scores["mae"] < 0.04
    for parameter in sound.models.forecaster.parameters():
        torch.nn.init.normal_(parameter)
    assert sound.score()[0]["mae"] > 1.5 * scores["mae"]


def test_forecasts_are_made_and_scored_as_the_configuration_says(monkeypatch):
    scoring = ["temperature=0.5", "top_p=0.75", "sample_count=3", "seed=7"]
    overrides = [*SMALL, *(f"scoring.{one}" for one in scoring), "model.max_context=200"]
    seen = {}
    predict_batch, score = KronosPredictor.predict_batch, experiments.score_forecasts

    def predicting(self, histories, *times, **options):
        seen.update(options, histories=histories, max_context=self.max_context)
        return predict_batch(self, histories, *times, **options)

    def scoring_them(closes, futures, forecasts, **options):
        seen.update(options, closes=closes, futures=futures)
        return score(closes, futures, forecasts, **options)

    monkeypatch.setattr(KronosPredictor, "predict_batch", predicting)
    monkeypatch.setattr(experiments, "score_forecasts", scoring_them)
    experiment = Experiment(baseline().with_overrides(overrides), "cpu")
    experiment.score()
    assert (seen["T"], seen["top_k"], seen["top_p"]) == (0.5, None, 0.75)
    assert (seen["sample_count"], seen["max_context"]) == (3, 200)
    assert seen["seed"] == [7, 8, 9, 10, 11, 12]
    bars, starts = read_bars(samples.ibm_daily()), seen["starts"]
    assert len(starts) == 6
    assert seen["closes"].tolist() == [bars["close"].iloc[start + 119] for start in starts]
    for start, history, future in zip(starts, seen["histories"], seen["futures"], strict=True):
        assert history.equals(bars.iloc[start : start + 120])
        assert np.array_equal(future, bars.iloc[start + 120 : start + 144])
    assert seen["bars_per_year"] == bars_per_year(experiment.data.windows.market)


def test_a_harmless_jitter_of_the_weights_hardly_moves_the_error():
    """Another CPU's rounding, imitated: the golden's tolerance of 5 % must be far away."""
    errors = []
    for jitter in (0.0, 1e-6, -1e-6):
        experiment = Experiment(baseline().with_overrides(["scoring.windows=12"]), "cpu")
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in experiment.models.forecaster.parameters():
                parameter *= 1 + jitter * torch.randn(parameter.shape, generator=generator)
        errors.append(experiment.score()[0]["mae"])
    assert max(errors) / min(errors) - 1 < 0.01


def test_steps_train_the_forecaster_and_leave_the_tokenizer():
    experiment = Experiment(baseline().with_overrides(SMALL), "cpu")
    before = {
        part: {name: value.clone() for name, value in model.state_dict().items()}
        for part, model in experiment.models._asdict().items()
    }
    result = experiment()
    assert torch.isfinite(result.loss)
    assert torch.isfinite(result.grad_norm)
    after = {part: model.state_dict() for part, model in experiment.models._asdict().items()}
    assert all(
        torch.equal(before["tokenizer"][name], value) for name, value in after["tokenizer"].items()
    )
    assert any(
        not torch.equal(before["forecaster"][name], value)
        for name, value in after["forecaster"].items()
    )


@pytest.mark.parametrize("recipe", [baseline, small_gpu, full])
def test_golden_columns_are_of_the_schema(recipe):
    assert set(golden_columns(recipe())) <= set(COLUMNS)


def test_golden_columns_are_the_settings_of_the_run():
    settings = {
        "precision": "bf16",
        "window": 100,
        "horizon": 20,
        "batch_size": 8,
        "accumulation": 3,
        "checkpointing": "block",
        "seed": 7,
    }
    config = baseline().with_overrides([f"training.{name}={settings[name]}" for name in settings])
    others = {"parallel": "none", "world_size": 1, "config_sha256": config.sha256()}
    assert golden_columns(config) == settings | others


def test_bars_per_year(experiment):
    assert bars_per_year(experiment.data.windows.market) == pytest.approx(251.5, abs=0.5)
    hours = np.arange(24 * 30) * 3600 * 10**9
    market = Market(
        ("short", "long"),
        np.array([0, 3, 3 + len(hours)]),
        np.concatenate([[0, 1, 2], hours]),
        np.ones((3 + len(hours), 6)),
        np.zeros((3 + len(hours), 5), np.uint8),
        None,
    )
    assert bars_per_year(market) == pytest.approx(24 * 365.25)

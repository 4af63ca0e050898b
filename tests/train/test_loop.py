"""The loop: whole runs on a small made-up market, and one on losses told beforehand."""

import json
import math
from types import SimpleNamespace

import pytest
import torch

from kronos.checkpoint import FORECASTER, TOKENIZER, best_model, build_models
from kronos.errors import ConfigError, WeightsError
from kronos.model import Kronos, KronosTokenizer
from kronos.train import TrainingStopped, train
from kronos.train.loop import PhaseResult, _fit
from kronos.train.phase import forecaster_phase
from kronos.train.step import StepResult


def test_both_phases_lower_their_validation_loss_and_keep_the_best(small_run, tmp_path):
    shown = []
    results = train(small_run(), tmp_path, device="cpu", show=shown.append)
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


def test_T8_the_forecaster_learns_on_the_tokenizer_just_trained(small_run, tmp_path, monkeypatch):
    seen = []

    def keep(models, *others):
        seen.append({name: value.clone() for name, value in models.tokenizer.state_dict().items()})
        return forecaster_phase(models, *others)

    monkeypatch.setattr("kronos.train.loop.forecaster_phase", keep)
    train(small_run(), tmp_path, device="cpu")
    saved = KronosTokenizer.from_pretrained(best_model(tmp_path, TOKENIZER)).state_dict()
    assert all(torch.equal(saved[name], value) for name, value in seen[0].items())


def test_one_seed_gives_one_model(small_run, tmp_path):
    config = small_run(steps=4, accumulation=2)
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


def test_pretrained_weights_are_fine_tuned_and_the_tokenizer_stays(small_run, tmp_path):
    config = small_run(steps=4)
    train(config, tmp_path / "first", device="cpu")
    again = config.with_overrides([f"model.pretrained={tmp_path / 'first'}"])
    (result,) = train(again, tmp_path / "second", device="cpu")
    assert result.part == FORECASTER
    before, after = (
        KronosTokenizer.from_pretrained(best_model(tmp_path / name, TOKENIZER)).state_dict()
        for name in ("first", "second")
    )
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_pretrained_weights_of_another_shape_are_refused(small_run, tmp_path):
    config = small_run(steps=1)
    train(config, tmp_path, device="cpu")
    other = config.with_overrides([f"model.pretrained={tmp_path}", "model.forecaster.d_model=32"])
    with pytest.raises(WeightsError, match="embedding"):
        build_models(other.model, device="cpu", seed=0)


def test_a_loss_that_is_no_number_stops_and_names_the_step(small_run, tmp_path):
    config = small_run(learning_rate=1e30, max_grad_norm=1e30)
    with pytest.raises(TrainingStopped, match=r"step \d+.*best weights.*learning_rate") as caught:
        train(config, tmp_path, device="cpu")
    assert "\n" not in str(caught.value)
    saved = KronosTokenizer.from_pretrained(best_model(tmp_path, TOKENIZER))
    assert all(torch.isfinite(value).all() for value in saved.state_dict().values())


def test_T4_too_few_bars_to_validate_are_refused_before_training(small_run, tmp_path):
    config = small_run(window=200, horizon=50).with_overrides(["data.validation_share=0.1"])
    with pytest.raises(ConfigError, match=r"no window to validate on: one takes 251 .* most 230;"):
        train(config, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_T16_a_batch_larger_than_the_windows_is_refused(small_run, tmp_path):
    config = small_run(batch_size=1000)
    train(small_run(steps=1), tmp_path / "first", device="cpu")
    pretrained = config.with_overrides([f"model.pretrained={tmp_path / 'first'}"])
    for one in (config, pretrained):
        with pytest.raises(ConfigError, match="1000"):
            train(one, tmp_path / "run", device="cpu")
        assert not (tmp_path / "run").exists()


def test_missing_pretrained_weights_are_named(small_run, tmp_path):
    config = small_run().with_overrides([f"model.pretrained={tmp_path / 'nowhere'}"])
    with pytest.raises(WeightsError, match="nowhere"):
        train(config, tmp_path / "run", device="cpu")


def test_the_saved_configuration_is_the_shape(small_run, tmp_path):
    config = small_run(steps=1)
    train(config, tmp_path, device="cpu")
    saved = json.loads((best_model(tmp_path, FORECASTER) / "config.json").read_text())
    assert saved == config.model.forecaster.model_dump()
    assert isinstance(Kronos.from_pretrained(best_model(tmp_path, FORECASTER)), Kronos)


class _Scripted:
    """A phase that is told its losses; `saved` says after how many steps weights were kept."""

    def __init__(self, validations, losses):
        self.model = self
        self.feed = SimpleNamespace(seconds_waited=0.0)
        self.steps = 0
        self.saved = []
        self.validate = iter(validations).__next__
        self.losses = iter(losses)

    def __call__(self):
        self.steps += 1
        self.feed.seconds_waited += 0.25 * self.steps  # a quarter of each step
        return StepResult(torch.tensor(next(self.losses)), torch.tensor(0.0))

    def parameters(self):
        yield torch.zeros(1)

    def save_pretrained(self, folder):
        self.saved.append(self.steps)


@pytest.fixture
def slower_and_slower(monkeypatch):
    """Steps that take 1, 2, 3, ... seconds."""
    seconds = iter(range(1, 100))
    watch = SimpleNamespace(timed=lambda call: (call(), next(seconds)))
    monkeypatch.setattr("kronos.train.loop.Stopwatch", lambda device: watch)


@pytest.mark.usefixtures("slower_and_slower")
def test_the_best_weights_are_kept_and_progress_is_told(small_run, tmp_path):
    training = small_run(steps=7, validate_every=2).training
    phase = _Scripted([5.0, 4.0, 4.0, 6.0, 3.0], [0.5 + step for step in range(7)])
    shown = []
    result = _fit(phase, TOKENIZER, training, tmp_path, shown.append)
    folder = best_model(tmp_path, TOKENIZER)
    assert result == PhaseResult(TOKENIZER, 5.0, 3.0, best_step=7, data_wait=0.25, folder=folder)
    assert phase.saved == [0, 2, 7]
    assert [one.best for one in shown] == [5.0, 4.0, 4.0, 4.0, 4.0, 4.0, 3.0]
    assert [one.loss for one in shown] == [0.5 + step for step in range(7)]
    assert [one.steps for one in shown] == [7] * 7
    rates = [3600 * step / sum(range(step + 1)) for step in range(1, 8)]
    assert [one.steps_per_hour for one in shown] == pytest.approx(rates)
    assert [one.data_wait for one in shown] == [0.25] * 7


@pytest.mark.usefixtures("slower_and_slower")
@pytest.mark.parametrize(
    ("validations", "losses", "text"),
    [
        ([5.0, 4.0], [1.0, math.nan], "the loss is nan at step 2"),
        ([5.0, math.inf], [1.0], "at step 1, in validation inf"),
    ],
)
def test_either_loss_that_is_no_number_stops(small_run, tmp_path, validations, losses, text):
    training = small_run(steps=3, validate_every=1).training
    with pytest.raises(TrainingStopped, match=text):
        _fit(_Scripted([*validations, 4.0], losses), FORECASTER, training, tmp_path, print)

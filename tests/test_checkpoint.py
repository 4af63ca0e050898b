"""A run's folder, and the models built or loaded from one."""

import shutil
from pathlib import Path

import pytest
import torch

from kronos.checkpoint import (
    FORECASTER,
    TOKENIZER,
    best_model,
    build_models,
    load_predictor,
    run_folder,
)
from kronos.errors import ConfigError, WeightsError
from kronos.model import Kronos, KronosTokenizer
from kronos.recipes import baseline


def _model(*overrides):
    return baseline().with_overrides([f"model.{one}" for one in overrides]).model


def test_where_best_weights_are():
    assert best_model(Path("run"), TOKENIZER) == Path("run/tokenizer/best_model")
    assert best_model(Path("run"), FORECASTER) == Path("run/basemodel/best_model")
    assert run_folder("some/run") == Path("some/run")
    assert (best_model(run_folder("tiny"), FORECASTER) / "config.json").is_file()


def test_the_configuration_decides_the_dropouts_of_pretrained_models():
    tokenizer, forecaster = "tokenizer.resid_dropout_p=0.25", "forecaster.ffn_dropout_p=0.375"
    models = build_models(_model(tokenizer, forecaster), device="cpu", seed=0)
    assert models.tokenizer.config["resid_dropout_p"] == 0.25
    assert models.forecaster.config["ffn_dropout_p"] == 0.375


@pytest.mark.parametrize("pretrained", ["tiny", "null"])
def test_models_are_on_the_device_and_in_evaluation_mode(pretrained):
    for model in build_models(_model(f"pretrained={pretrained}"), device="meta", seed=0):
        assert not model.training
        assert next(model.parameters()).device.type == "meta"


def test_new_models_are_drawn_from_the_seed():
    one, again, other = (
        build_models(_model("pretrained=null"), device="cpu", seed=seed) for seed in (1, 1, 2)
    )
    for part in ("tokenizer", "forecaster"):
        weights = [next(getattr(models, part).parameters()) for models in (one, again, other)]
        assert torch.equal(weights[0], weights[1])
        assert not torch.equal(weights[0], weights[2])


def test_a_predictor_is_on_the_device_that_is_named_or_on_the_default_one(monkeypatch):
    monkeypatch.setattr("kronos.checkpoint.default_device", lambda: "meta")
    assert load_predictor("tiny", "cpu").device.type == "cpu"
    assert load_predictor("tiny").device.type == "meta"


def test_a_run_without_weights_is_named(tmp_path):
    with pytest.raises(WeightsError, match="nowhere"):
        load_predictor(str(tmp_path / "nowhere"))


def _model_folder(folder: Path, part: str) -> str:
    shutil.copytree(best_model(run_folder("tiny"), part), folder)
    return str(folder)


def test_a_folder_with_a_model_takes_a_tokenizer(tmp_path):
    forecaster = _model_folder(tmp_path / "model", FORECASTER)
    tokens = _model_folder(tmp_path / "tokens", TOKENIZER)
    with pytest.raises(ConfigError, match=r"no tokenizer is known for the model .*--tokenizer"):
        load_predictor(forecaster)
    predictor = load_predictor(
        forecaster, "cpu", tokenizer=tokens, max_context=99, precision="bfloat16", compile=True
    )
    assert (predictor.max_context, predictor.compile) == (99, True)
    assert next(predictor.model.parameters()).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("name", "tokenizer", "context"),
    [
        ("NeoQuasar/Kronos-mini", "NeoQuasar/Kronos-Tokenizer-2k", 2048),
        ("NeoQuasar/Kronos-small", "NeoQuasar/Kronos-Tokenizer-base", 512),
        ("NeoQuasar/Kronos-base", "NeoQuasar/Kronos-Tokenizer-base", 512),
    ],
)
def test_a_released_model_brings_its_tokenizer_and_its_context(
    monkeypatch, name, tokenizer, context
):
    run = run_folder("tiny")
    hub = {name: best_model(run, FORECASTER), tokenizer: best_model(run, TOKENIZER)}
    for kind in (Kronos, KronosTokenizer):
        load = kind.from_pretrained
        monkeypatch.setattr(kind, "from_pretrained", lambda one, load=load: load(hub[one]))
    assert load_predictor(name, "cpu").max_context == context
    assert load_predictor(name, "cpu", max_context=100).max_context == 100

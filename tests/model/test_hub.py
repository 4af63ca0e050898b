"""Loading and saving."""

import copy
import json
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from kronos.errors import ConfigError, WeightsError
from kronos.model import Kronos, KronosTokenizer

Settings = Callable[..., dict[str, Any]]


@pytest.fixture
def saved(tiny_forecaster: Kronos, tmp_path: Path) -> Path:
    tiny_forecaster.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_save_and_load(tiny_forecaster: Kronos, saved: Path) -> None:
    loaded: Kronos = Kronos.from_pretrained(saved)
    assert type(loaded) is Kronos
    assert not loaded.training
    assert loaded.config == tiny_forecaster.config
    state = loaded.state_dict()
    for name, tensor in tiny_forecaster.state_dict().items():
        assert torch.equal(state[name], tensor)
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    ids = torch.zeros(1, 4, dtype=torch.long)
    assert torch.equal(loaded.decode_s1(ids, ids)[0], tiny_forecaster.decode_s1(ids, ids)[0])


def test_the_two_files(saved: Path, settings: Settings, tiny_forecaster: Kronos) -> None:
    assert sorted(path.name for path in saved.iterdir()) == ["config.json", "model.safetensors"]
    text = (saved / "config.json").read_text(encoding="utf-8")
    assert json.loads(text) == settings("predictor")
    assert list(json.loads(text)) == sorted(settings("predictor"))
    assert text.endswith("}\n")
    assert tiny_forecaster.save_pretrained(saved) is None  # writing over is fine
    assert Kronos.from_pretrained(str(saved)).config == settings("predictor")


def test_positional_arguments_are_saved_too(settings: Settings, tmp_path: Path) -> None:
    wanted = settings("tokenizer", s1_bits=3, s2_bits=2)
    KronosTokenizer(*wanted.values()).save_pretrained(tmp_path)
    loaded = KronosTokenizer.from_pretrained(tmp_path)
    assert loaded.config == wanted
    assert loaded.encode(torch.zeros(1, 2, 6)).shape == (1, 2)


def test_conformance_weights_load(conformance: Path, settings: Settings, tmp_path: Path) -> None:
    for model, which, name in (
        (KronosTokenizer, "tokenizer", "tiny_tokenizer"),
        (Kronos, "predictor", "tiny_predictor"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(settings(which)), encoding="utf-8")
        save_file(load_file(conformance / f"{name}.safetensors"), folder / "model.safetensors")
        model.from_pretrained(folder)  # the names are those of the released weights


def test_dropout_may_be_overridden_but_not_an_unknown_setting(saved: Path) -> None:
    assert Kronos.from_pretrained(saved, resid_dropout_p=0.25).config["resid_dropout_p"] == 0.25
    with pytest.raises(WeightsError, match="does not know: dropout"):
        Kronos.from_pretrained(saved, dropout=0.25)


def test_a_copy_keeps_its_settings(tiny_forecaster: Kronos) -> None:
    assert copy.deepcopy(tiny_forecaster).config == tiny_forecaster.config
    assert pickle.loads(pickle.dumps(tiny_forecaster)).config == tiny_forecaster.config


def test_weights_saved_from_half_precision_keep_exact_frequencies(
    tiny_forecaster: Kronos, tmp_path: Path
) -> None:
    wanted = tiny_forecaster.transformer[0].self_attn.rotary.inv_freq.clone()
    tiny_forecaster.bfloat16().save_pretrained(tmp_path)
    assert load_file(tmp_path / "model.safetensors")["norm.weight"].dtype == torch.bfloat16
    loaded = Kronos.from_pretrained(tmp_path)
    assert loaded.norm.weight.dtype == torch.float32
    assert torch.equal(loaded.transformer[0].self_attn.rotary.inv_freq, wanted)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_M8_a_missing_file_is_named_with_its_folder(saved: Path, name: str) -> None:
    (saved / name).unlink()
    with pytest.raises(WeightsError, match=rf"{name} is missing: looked in the folder {saved}"):
        Kronos.from_pretrained(saved)


def test_M8_a_pickle_beside_is_never_read(saved: Path) -> None:
    (saved / "model.safetensors").rename(saved / "pytorch_model.bin")
    with pytest.raises(WeightsError, match=r"model\.safetensors is missing"):
        Kronos.from_pretrained(saved)


def unreachable(*_: object, **__: object) -> None:
    raise ConnectionError("[Errno -2] Name or service not known\nand a second line")


def test_M8_an_unreachable_hub_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("kronos.model.hub.get_hf_file_metadata", unreachable)
    start = time.monotonic()
    with pytest.raises(WeightsError) as caught:
        Kronos.from_pretrained("NeoQuasar/Kronos-none", cache_dir=tmp_path)
    assert time.monotonic() - start < 5
    text = str(caught.value)
    assert "config.json" in text
    assert "'NeoQuasar/Kronos-none' is no folder here" in text
    assert "the hub cannot be reached (ConnectionError: [Errno -2]" in text
    assert "\n" not in text


def test_M8_a_hub_that_never_answers_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = threading.Event()
    monkeypatch.setattr("kronos.model.hub.ANSWER_S", 0.1)
    monkeypatch.setattr("kronos.model.hub.get_hf_file_metadata", lambda *_, **__: asked.wait(30))
    start = time.monotonic()
    with pytest.raises(WeightsError, match=r"cannot be reached \(TimeoutError: no answer in 0"):
        Kronos.from_pretrained("owner/name", cache_dir=tmp_path)
    asked.set()
    assert time.monotonic() - start < 5


def test_M8_local_files_only_asks_no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("kronos.model.hub.get_hf_file_metadata", unreachable)
    with pytest.raises(WeightsError, match=r"config\.json.*cache lacks it \(local_files_only"):
        Kronos.from_pretrained("owner/name", cache_dir=tmp_path, local_files_only=True)


def test_the_hubs_cache_serves_without_the_hub(saved: Path, tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--owner--name"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.parent.mkdir(parents=True)
    saved.rename(snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40, encoding="utf-8")
    loaded = Kronos.from_pretrained("owner/name", cache_dir=tmp_path / "hub", local_files_only=True)
    assert not loaded.training


@pytest.mark.parametrize("path", ["/no/such/folder", "../no/such/folder", "bad name!"])
def test_M8_a_wrong_path_is_no_hub_id(path: str) -> None:
    with pytest.raises(WeightsError, match="is no folder here, and no hub id"):
        Kronos.from_pretrained(path)


@pytest.mark.parametrize("name", ["head.proj_s2.weight", "dep_layer.cross_attn.rotary.inv_freq"])
def test_M9_a_missing_tensor_is_named(saved: Path, name: str) -> None:
    tensors = load_file(saved / "model.safetensors")
    del tensors[name]
    save_file(tensors, saved / "model.safetensors")
    with pytest.raises(WeightsError, match=f"lacks tensor {name}"):
        Kronos.from_pretrained(saved)


def test_M9_an_unexpected_tensor_and_a_wrong_shape_are_named(saved: Path) -> None:
    tensors = load_file(saved / "model.safetensors")
    save_file(tensors | {"extra.weight": torch.ones(1)}, saved / "model.safetensors")
    with pytest.raises(WeightsError, match=r"unexpected tensor extra\.weight"):
        Kronos.from_pretrained(saved)
    save_file(tensors | {"norm.weight": torch.ones(31)}, saved / "model.safetensors")
    with pytest.raises(WeightsError, match=r"norm\.weight \(31,\) instead of \(32,\)"):
        Kronos.from_pretrained(saved)


def test_M9_many_missing_tensors_are_counted(saved: Path) -> None:
    save_file({"norm.weight": torch.ones(32)}, saved / "model.safetensors")
    with pytest.raises(WeightsError, match=r"lacks \d+ tensors: .*, \.\.\."):
        Kronos.from_pretrained(saved)


def test_damaged_files(saved: Path) -> None:
    (saved / "model.safetensors").write_bytes(b"\x10")
    with pytest.raises(WeightsError, match="damaged or no safetensors"):
        Kronos.from_pretrained(saved)
    for text, rule in (("{", "is not JSON"), ("[1]", "must hold a JSON object")):
        (saved / "config.json").write_text(text, encoding="utf-8")
        with pytest.raises(WeightsError, match=rule):
            Kronos.from_pretrained(saved)


def test_settings_must_be_all_and_no_other(saved: Path, settings: Settings) -> None:
    config = settings("predictor")
    lacking = {key: value for key, value in config.items() if key not in ("n_heads", "ff_dim")}
    for changed, rule in (
        (lacking, r"lacks settings of Kronos: ff_dim, n_heads"),
        (config | {"n_kv_heads": 2}, r"Kronos does not know: n_kv_heads"),
        (config | {"d_model": 36, "n_heads": 6}, r"config\.json: .*36 / 4 = 9"),
        (settings("tokenizer"), r"lacks settings of Kronos: learn_te, n_layers"),
    ):
        (saved / "config.json").write_text(json.dumps(changed), encoding="utf-8")
        with pytest.raises(WeightsError, match=rule):
            Kronos.from_pretrained(saved)


def test_a_failed_save_leaves_the_old_file(
    tiny_forecaster: Kronos, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (saved / "model.safetensors").read_bytes()

    def half_written(tensors: object, path: Path, **_: object) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("kronos.model.hub.save_file", half_written)
    with pytest.raises(OSError, match="disk full"):
        tiny_forecaster.save_pretrained(saved)
    assert (saved / "model.safetensors").read_bytes() == before
    assert sorted(path.name for path in saved.iterdir()) == ["config.json", "model.safetensors"]


def test_config_errors_are_value_errors(settings: Settings) -> None:
    with pytest.raises(ValueError, match="d_model"):
        Kronos(**settings("predictor", d_model=0))
    assert issubclass(ConfigError, ValueError)

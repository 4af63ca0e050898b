"""Tokens made once: the same training as with tokens made for every batch, and never stale ones."""

import pickle

import numpy as np
import pytest
import torch
from test_feed import numbered_market

from kronos.checkpoint import build_models
from kronos.data import Windows
from kronos.model import KronosTokenizer
from kronos.plan import training_build
from kronos.recipes import baseline
from kronos.train import tokens as tokens_module
from kronos.train import train
from kronos.train.data import load_data
from kronos.train.phase import forecaster_phase
from kronos.train.step import tokenize
from kronos.train.tokens import TokenSource, run_tokens, token_table


@pytest.fixture
def tokenizer(small_run):
    return build_models(small_run().model, device="cpu", seed=0).tokenizer


@pytest.fixture
def windows():
    return Windows(numbered_market([30, 9, 20]), 3, 1)


def made_anew(tokenizer, windows, starts):
    batch = windows.batch(starts)
    return tokenize(tokenizer, torch.from_numpy(batch.features), torch.from_numpy(batch.stamps))


def test_the_table_has_the_tokens_of_every_window(tokenizer, windows, tmp_path, monkeypatch):
    monkeypatch.setattr(tokens_module, "_AT_ONCE", 7)
    source = TokenSource(token_table(tokenizer, windows, tmp_path), windows, windows.starts)
    starts = windows.starts.every()[::-1].copy()
    for found, expected in zip(
        source.gather(starts), made_anew(tokenizer, windows, starts), strict=True
    ):
        assert found.dtype == torch.int64
        assert torch.equal(found, expected)
    assert len(set(source.gather(starts).s1_ids.flatten().tolist())) > 4


def test_the_next_start_makes_none(tokenizer, windows, tmp_path, monkeypatch):
    first = token_table(tokenizer, windows, tmp_path)
    (path,) = tmp_path.iterdir()
    monkeypatch.setattr(tokens_module, "tokenize", lambda *given: pytest.fail("made again"))
    numbers = np.arange(len(windows))
    again = token_table(tokenizer, windows, tmp_path)
    np.testing.assert_array_equal(again.rows(numbers), first.rows(numbers))
    sent = pickle.dumps(again)
    assert len(sent) < 1000, "a worker gets the name of the file"
    np.testing.assert_array_equal(pickle.loads(sent).rows(numbers), first.rows(numbers))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("damage", ["cut short", "of another kind", "a byte changed"])
def test_a_file_that_is_damaged_is_made_again(tokenizer, windows, tmp_path, damage):
    numbers = np.arange(len(windows))
    expected = token_table(tokenizer, windows, tmp_path).rows(numbers)
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(
        {
            "cut short": path.read_bytes()[:-5],
            "of another kind": b"something else",
            "a byte changed": bytes(content),
        }[damage]
    )
    np.testing.assert_array_equal(token_table(tokenizer, windows, tmp_path).rows(numbers), expected)


def test_other_weights_or_windows_have_other_tokens(tokenizer, windows, tmp_path):
    token_table(tokenizer, windows, tmp_path)
    token_table(tokenizer, Windows(windows.market, 3, 2), tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    with torch.no_grad():
        tokenizer.quant_embed.bias += 1.0
    changed = token_table(tokenizer, windows, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    starts = windows.starts.every()
    expected = made_anew(tokenizer, windows, starts)
    assert (changed.rows(np.arange(len(windows)))[..., 0] == expected.s1_ids.numpy()).all()


def test_training_on_the_table_is_the_same_training(small_run, tmp_path):
    config = small_run(steps=4, accumulation=2)
    once = config.with_overrides(
        [f"data.cache={tmp_path / 'cache'}", "data.precompute_tokens=true", "data.workers=1"]
    )
    results = [
        train(config, tmp_path / "anew", device="cpu"),
        train(once, tmp_path / "once", device="cpu"),
    ]
    for anew, kept in zip(*results, strict=True):
        assert anew.best_validation == kept.best_validation
        assert anew.best_step == kept.best_step
        model = "model.safetensors"
        assert (anew.folder / model).read_bytes() == (kept.folder / model).read_bytes()


def test_the_tokenizer_is_not_asked_in_a_step(small_run, tmp_path, monkeypatch):
    config = small_run().with_overrides([f"data.cache={tmp_path}", "data.precompute_tokens=true"])
    models, data = build_models(config.model, device="cpu", seed=0), load_data(config)
    tokens = run_tokens(models.tokenizer, data, config)
    phase = forecaster_phase(models, data, config.training, tokens)
    monkeypatch.setattr(KronosTokenizer, "encode_halves", lambda *given: pytest.fail("asked"))
    phase()
    phase.validate()


def test_a_plan_knows_of_tokens_made_once(tmp_path):
    """Without the tokenizer's pass there is nothing of it to hold, and nothing is written."""
    config = baseline().with_overrides(
        [f"data.cache={tmp_path}", "data.precompute_tokens=true", "training.batch_size=2"]
    )
    step = training_build(config)("cpu")
    assert isinstance(step._source, TokenSource)
    step()
    assert list(tmp_path.iterdir()) == []

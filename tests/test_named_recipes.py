"""The named runs have the numbers they promise, and the shapes those of the released models."""

import inspect

import pytest

from kronos.errors import ConfigError
from kronos.recipes import (
    RECIPES,
    SHAPES,
    baseline,
    full,
    model_shape,
    recipe,
    small_gpu,
    tiny_pretraining,
)

NUMBERS = {
    baseline: {"window": 120, "batch_size": 50, "accumulation": 1, "checkpointing": "off"},
    small_gpu: {"window": 90, "batch_size": 32, "accumulation": 4, "checkpointing": "block"},
    full: {"window": 512, "horizon": 48, "batch_size": 16, "precision": "bf16"},
}
RELEASED = {  # layers, width, heads, feed-forward width, context
    "mini": (4, 256, 4, 512, 2048),
    "small": (8, 512, 8, 1024, 512),
    "base": (12, 832, 16, 2048, 512),
    "large": (18, 1664, 32, 3072, 512),
}


@pytest.mark.parametrize("shape", ["tiny", "mini", "small", "base", "large"])
@pytest.mark.parametrize("make", NUMBERS, ids=lambda make: make.__name__)
def test_a_recipe_has_its_numbers_on_every_shape(make, shape):
    run = make(shape)
    training = run.training.model_dump()
    assert {name: training[name] for name in NUMBERS[make]} == NUMBERS[make]
    assert run.model == SHAPES[shape]
    assert run.model.name == shape
    assert make().training == run.training


@pytest.mark.parametrize("make", [baseline, small_gpu], ids=lambda make: make.__name__)
def test_only_the_full_run_leaves_single_precision(make):
    assert make().training.precision == "float32"


@pytest.mark.parametrize("name", RELEASED)
def test_a_released_shape_is_that_of_its_config(name):
    model = SHAPES[name]
    forecaster, tokenizer = model.forecaster, model.tokenizer
    shape = forecaster.n_layers, forecaster.d_model, forecaster.n_heads, forecaster.ff_dim
    assert (*shape, model.max_context) == RELEASED[name]
    assert forecaster.learn_te
    assert (forecaster.s1_bits, forecaster.s2_bits) == (10, 10)
    assert model.pretrained is None
    assert tokenizer.model_dump() == {
        "d_in": 6,
        "d_model": 256,
        "n_heads": 4,
        "ff_dim": 512,
        "n_enc_layers": 4,
        "n_dec_layers": 4,
        "ffn_dropout_p": 0.0,
        "attn_dropout_p": 0.0,
        "resid_dropout_p": 0.0,
        "s1_bits": 10,
        "s2_bits": 10,
        "beta": 0.05,
        "gamma0": 1.0,
        "gamma": 1.1,
        "zeta": 0.05,
        "group_size": 4,
    }


def test_the_models_take_the_shapes_names():
    from kronos import Kronos, KronosTokenizer

    tiny = SHAPES["tiny"]
    assert set(inspect.signature(Kronos).parameters) == set(tiny.forecaster.model_dump())
    assert set(inspect.signature(KronosTokenizer).parameters) == set(tiny.tokenizer.model_dump())


@pytest.mark.parametrize(
    ("name", "millions"), [("mini", 4.108), ("small", 24.741), ("base", 102.311), ("large", 499.2)]
)
def test_a_released_shape_has_its_number_of_weights(name, millions):
    import torch

    from kronos import Kronos, KronosTokenizer

    with torch.device("meta"):
        forecaster = Kronos(**SHAPES[name].forecaster.model_dump())
        tokenizer = KronosTokenizer(**SHAPES[name].tokenizer.model_dump())
    for model, wanted in ((forecaster, millions), (tokenizer, 3.958)):
        count = sum(weight.numel() for weight in model.parameters())
        assert count / 1e6 == pytest.approx(wanted, rel=2e-4)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_found_by_the_name_it_bears(name):
    run = recipe(name)
    assert run == RECIPES[name]()
    assert run.name == name
    assert run.model.name == "tiny"


def test_recipes_differ_in_their_digests():
    runs = [make(shape) for make in NUMBERS for shape in SHAPES]
    digests = {run.sha256() for run in [*runs, tiny_pretraining()]}
    assert len(digests) == len(runs) + 1


def test_tiny_weights_are_made_from_scratch_and_used_by_the_recipes():
    assert tiny_pretraining().model.pretrained is None
    assert baseline().model.pretrained == "tiny"
    assert tiny_pretraining().model.forecaster == baseline().model.forecaster


@pytest.mark.parametrize("ask", [recipe, model_shape, baseline, full, small_gpu])
@pytest.mark.parametrize("name", ["", "huge", "two\nlines", "x" * 5000])
def test_an_unknown_name_is_told_in_one_line_with_the_known_ones(ask, name):
    with pytest.raises(ConfigError) as caught:
        ask(name)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 200
    assert repr(name)[:20] in text
    assert ", ".join(RECIPES if ask is recipe else SHAPES) in text

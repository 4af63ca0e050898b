"""Evaluation mode for a while."""

import gc

import pytest
from torch import nn

from kronos.model import mode
from kronos.model.mode import evaluating


def test_each_submodule_is_put_back_as_it_was() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout()))
    model[1].eval()
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == [True, True, False, False]


def test_it_is_put_back_after_an_error_too() -> None:
    model = nn.Dropout()
    with pytest.raises(ValueError, match="on purpose"), evaluating(model):
        raise ValueError("on purpose")
    assert model.training


def test_overlapping_uses_end_with_the_last() -> None:
    model = nn.Dropout()
    first, second = evaluating(model), evaluating(model)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not model.training
    second.__exit__(None, None, None)
    assert model.training


def test_nothing_is_remembered_of_a_model_that_is_gone() -> None:
    model = nn.Dropout()
    with evaluating(model):
        assert len(mode._visits) == 1
    del model
    gc.collect()
    assert len(mode._visits) == 0

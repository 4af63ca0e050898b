"""The main job: each recipe keeps its memory, its speed and its accuracy."""

import pytest

from kronos.recipes import baseline, full, small_gpu


@pytest.mark.parametrize("recipe", [baseline, small_gpu, full], ids=lambda make: make.__name__)
def test_recipe(regression, recipe):
    regression.check(recipe())

"""The reference's stream of random numbers, and the reference itself where it is installed."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from kronos.model import Kronos, KronosTokenizer
from kronos.model.sampling import ReferenceDraws, Sampling, filter_logits
from kronos.predict import KronosPredictor

Frame = pd.DataFrame
MakeBars = Callable[..., Frame]
TinyModels = Callable[[], tuple[Kronos, KronosTokenizer]]

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = [
    {"T": 1.0, "top_k": 0, "top_p": 0.9},
    {"T": 0.7, "top_k": 0, "top_p": 1.0},
    {"T": 1.3, "top_k": 7, "top_p": 1.0},
    {"T": 1.0, "top_k": 1, "top_p": 1.0},
]


@pytest.fixture(scope="module")
def peer() -> ModuleType:
    """kronos-model-arch and the means to give it our weights."""
    if importlib.util.find_spec("model") is None:
        pytest.skip("kronos-model-arch is not installed; see benchmarks/peer.py")
    path = Path(__file__).parents[2] / "benchmarks" / "peer.py"
    spec = importlib.util.spec_from_file_location("peer", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def some_batch(make_bars: MakeBars, series: int) -> tuple[list[Frame], list[Any], list[Any]]:
    frames = [make_bars(60, seed) for seed in range(series)]
    times = [frame["timestamps"] for frame in frames]
    return [f[:50] for f in frames], [t[:50] for t in times], [t[50:] for t in times]


# Its code uses what pandas deprecates.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("max_context", [512, 54])
def test_the_reference_draws_what_we_draw(
    peer: ModuleType,
    tiny_models: TinyModels,
    make_bars: MakeBars,
    settings: dict[str, Any],
    max_context: int,
) -> None:
    model, tokenizer = tiny_models()
    package = peer.load_peer()
    theirs = package.KronosPredictor(
        *peer.same_weights(package, model, tokenizer), device="cpu", max_context=max_context
    )
    ours = KronosPredictor(model, tokenizer, max_context=max_context)
    frames, past, future = some_batch(make_bars, 3)
    batch = [frame.drop(columns="timestamps") for frame in frames]
    options = settings | {"sample_count": 4, "verbose": False}
    torch.manual_seed(11)
    wanted = theirs.predict_batch(batch, past, future, 10, **options)
    got = ours.predict_batch(batch, past, future, 10, seed=11, reference_draws=True, **options)
    torch.manual_seed(11)
    unseeded = ours.predict_batch(batch, past, future, 10, reference_draws=True, **options)
    for one, other, third in zip(got, wanted, unseeded, strict=True):
        assert np.allclose(one, other, rtol=1e-4)
        assert one.equals(third)


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_stream_restated(settings: dict[str, Any]) -> None:
    """All rows in turn, the coarse ids of a step before its fine ones."""
    logits = torch.randn(4, 2, 6, 40)
    draw = ReferenceDraws(Sampling(**settings), torch.Generator().manual_seed(3))
    steps = list(enumerate(logits))
    got = [draw(rows, step, half) for step, both in steps for half, rows in enumerate(both)]
    torch.manual_seed(3)
    for both in logits:
        for rows in both:
            kept = filter_logits(rows / settings["T"], settings["top_k"], settings["top_p"])
            wanted = torch.multinomial(torch.softmax(kept, dim=-1), num_samples=1).squeeze(-1)
            assert torch.equal(got.pop(0), wanted)


def test_the_stream_goes_on_from_series_to_series(
    tiny_models: TinyModels, make_bars: MakeBars
) -> None:
    """So a series draws otherwise in another batch, as in the reference."""
    predictor = KronosPredictor(*tiny_models())
    frames, past, future = some_batch(make_bars, 2)
    options: dict[str, Any] = {"seed": 2, "reference_draws": True, "verbose": False}
    both = predictor.predict_batch(frames, past, future, 10, **options)
    again = predictor.predict_batch(frames, past, future, 10, **options)
    assert all(one.equals(other) for one, other in zip(both, again, strict=True))
    turned = predictor.predict_batch(frames[::-1], past[::-1], future[::-1], 10, **options)
    assert not np.allclose(turned[1], both[0], rtol=1e-4)
    state = torch.random.get_rng_state()
    predictor.predict_batch(frames, past, future, 10, **options)
    assert torch.equal(torch.random.get_rng_state(), state)  # a seed has a generator of its own

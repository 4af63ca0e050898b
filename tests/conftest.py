"""The predictor over the tiny models, bars for it to forecast from, and Hypothesis's profiles.

`pytest --help` loads this file, so torch is imported when a test first asks.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from kronos.model import Kronos, KronosTokenizer
    from kronos.predict import KronosPredictor

CONFORMANCE = Path(__file__).parent / "conformance"
COLUMNS = ["open", "high", "low", "close", "volume", "amount"]

# A busy neighbour makes any example slow, and that says nothing of the code.
settings.register_profile(
    "explore", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
# The same examples each time: what passed before a change was not luck, nor what fails after it.
settings.register_profile("repeatable", settings.get_profile("explore"), derandomize=True)
settings.load_profile("explore")

Frame = pd.DataFrame
TinyModels = Callable[[], "tuple[Kronos, KronosTokenizer]"]


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """The models are tiny: several threads would only wait for one another."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny_config() -> dict[str, Any]:
    """Constructor arguments by "predictor" and "tokenizer"."""
    return json.loads((CONFORMANCE / "tiny_config.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def tiny_models(tiny_config: dict[str, Any]) -> TinyModels:
    """tiny_models(): new ones each time, with the reference's made-up weights."""
    from safetensors.torch import load_file

    from kronos.model import Kronos, KronosTokenizer

    def load() -> "tuple[Kronos, KronosTokenizer]":
        model = Kronos(**tiny_config["predictor"])
        model.load_state_dict(load_file(CONFORMANCE / "tiny_predictor.safetensors"))
        tokenizer = KronosTokenizer(**tiny_config["tokenizer"])
        tokenizer.load_state_dict(load_file(CONFORMANCE / "tiny_tokenizer.safetensors"))
        return model.eval(), tokenizer.eval()

    return load


@pytest.fixture
def predictor(tiny_models: TinyModels) -> "KronosPredictor":
    from kronos.predict import KronosPredictor

    return KronosPredictor(*tiny_models())


@pytest.fixture(scope="session")
def make_bars() -> Callable[..., Frame]:
    """make_bars(count, seed): a random walk with a `timestamps` column of five-minute bars."""

    def walk(count: int, seed: int = 0) -> Frame:
        chance = np.random.Generator(np.random.PCG64(seed))
        close = 20 * np.exp(0.002 * chance.standard_normal(count).cumsum())
        opens = close * np.exp(0.001 * chance.standard_normal(count))
        spread = np.exp(0.001 * np.abs(chance.standard_normal((2, count))))
        volume = chance.uniform(100, 5000, count)
        return pd.DataFrame(
            {
                "timestamps": pd.date_range("2024-06-17 23:00", periods=count, freq="5min"),
                "open": opens,
                "high": np.maximum(opens, close) * spread[0],
                "low": np.minimum(opens, close) / spread[1],
                "close": close,
                "volume": volume,
                "amount": volume * close,
            }
        )

    return walk


@pytest.fixture
def bars(make_bars: Callable[..., Frame]) -> Frame:
    return make_bars(80)


@pytest.fixture
def batch_arguments(
    make_bars: Callable[..., Frame],
) -> Callable[[int], tuple[list[Frame], list[pd.Series], list[pd.Series]]]:
    """batch_arguments(count): series of 50 bars each, their times, and 10 times to come."""

    def arguments(count: int) -> tuple[list[Frame], list[pd.Series], list[pd.Series]]:
        frames = [make_bars(60, seed) for seed in range(count)]
        return (
            [frame[:50] for frame in frames],
            [frame["timestamps"][:50] for frame in frames],
            [frame["timestamps"][50:] for frame in frames],
        )

    return arguments


@pytest.fixture
def predict(predictor: "KronosPredictor", bars: Frame) -> Callable[..., Frame]:
    """predict(volume=..., T=...): 64 bars and 10 to come; a column None is left out."""

    def run(pred_len: int = 10, **options: Any) -> Frame:
        history = bars[:64].copy()
        for name in [key for key in options if key in COLUMNS]:
            value = options.pop(name)
            history = (
                history.drop(columns=name) if value is None else history.assign(**{name: value})
            )
        times = {
            "x_timestamp": bars["timestamps"][:64],
            "y_timestamp": bars["timestamps"][64:74],
        }
        settings = {"top_k": 1, "verbose": False} | times | options
        return predictor.predict(history, pred_len=pred_len, **settings)

    return run


@pytest.fixture(scope="session")
def same() -> Callable[..., bool]:
    """same(one, other, rtol): whether two forecasts are of the same bars and values."""

    def compare(one: Frame, other: Frame, rtol: float = 1e-6) -> bool:
        return bool(np.allclose(one, other, rtol=rtol, atol=0)) and one.index.equals(other.index)

    return compare

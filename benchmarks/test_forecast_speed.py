"""What a forecast costs, side by side with the reference's own code (`peer`), in one run.

Run with `tox -e bench -- benchmarks/test_forecast_speed.py`; it takes about six minutes, nearly
all of them the peer's. Both have the same weights, of the shape of Kronos-small, and two threads.
Compare the figures of one run only: the table gives each as a multiple of the faster one.
"""

import numpy as np
import pandas as pd
import pytest
import torch
from peer import load_peer, same_weights

from kronos.measure import MemoryMeter
from kronos.model import Kronos, KronosTokenizer
from kronos.predict import KronosPredictor
from kronos.recipes import model_shape

# The peer's own.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

MIB = 2**20
KNOWN = 380
CASES = {
    "1 path, 120 bars": (1, 1, 120),
    "5 paths, 120 bars": (1, 5, 120),
    "32 series": (32, 1, 24),
}
"""Series, paths of each and bars to come, behind 380 known ones."""


@pytest.fixture(scope="module", autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def models():
    torch.manual_seed(0)
    shape = model_shape("small")
    model = Kronos(**shape.forecaster.model_dump()).eval()
    return model, KronosTokenizer(**shape.tokenizer.model_dump()).eval()


@pytest.fixture(scope="module")
def predictors(models):
    """By name; the peer's where it is installed."""
    found = {"kronos": KronosPredictor(*models)}
    try:
        package = load_peer()
    except ImportError:
        return found
    theirs = same_weights(package, *models)
    return found | {"peer": package.KronosPredictor(*theirs, device="cpu", max_context=512)}


def some_bars(seed, bars):
    draw = np.random.default_rng(seed)
    close = 100 * np.exp(np.cumsum(draw.normal(0, 0.01, bars)))
    opened, volume = close * (1 + draw.normal(0, 0.003, bars)), draw.uniform(1e4, 1e5, bars)
    high, low = np.maximum(opened, close) * 1.003, np.minimum(opened, close) * 0.997
    prices = {"open": opened, "high": high, "low": low, "close": close}
    return pd.DataFrame(prices | {"volume": volume, "amount": volume * close})


def forecast(predictor, series, paths, steps, known=KNOWN, **options):
    times = pd.Series(pd.date_range("2024-01-01", periods=known + steps, freq="1h"))
    return predictor.predict_batch(
        [some_bars(seed, known) for seed in range(series)],
        [times[:known]] * series,
        [times[known:]] * series,
        steps,
        sample_count=paths,
        verbose=False,
        **options,
    )


@pytest.mark.parametrize("who", ["kronos", "peer"])
@pytest.mark.parametrize("case", CASES)
def test_forecast(request, benchmark, predictors, case, who):
    if who not in predictors:
        pytest.skip("kronos-model-arch is not installed; see benchmarks/peer.py")
    benchmark.group = f"{KNOWN} bars known: {case}"
    rounds = {"kronos": 5, "peer": 1}[who]
    warm = {"kronos": 1, "peer": 0}[who]
    call = (predictors[who], *CASES[case])
    benchmark.pedantic(forecast, call, rounds=rounds, warmup_rounds=warm)


def test_compiled(benchmark, models):
    benchmark.group = f"{KNOWN} bars known: 1 path, 120 bars"
    compiled = KronosPredictor(*models, compile=True)
    benchmark.pedantic(forecast, (compiled, 1, 1, 120), rounds=5, warmup_rounds=2)


def test_greedy_forecasts_are_the_same(predictors):
    if "peer" not in predictors:
        pytest.skip("kronos-model-arch is not installed; see benchmarks/peer.py")
    ours, theirs = (forecast(one, 2, 1, 8, top_k=1)[1] for one in predictors.values())
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)


def peak(predictor, paths, steps, known=KNOWN):
    """Bytes of live tensors at most, beyond the weights."""
    with MemoryMeter("cpu") as meter:
        forecast(predictor, 1, paths, steps, known)
    modules = predictor.model, predictor.tokenizer
    weights = sum(one.numel() * one.itemsize for part in modules for one in part.parameters())
    return meter.reading.peak_allocated - weights


def test_memory_of_20_paths(predictors, capsys):
    ours = peak(predictors["kronos"], 20, 120)
    more = ours - peak(predictors["kronos"], 20, 120, known=KNOWN // 2)
    model = predictors["kronos"].model
    layers = len(model.transformer) + 1  # the dependency layer's keys and values too
    prompt = 2 * layers * (KNOWN // 2) * model.norm.weight.numel() * 4
    with capsys.disabled():
        print(f"\n20 paths, {KNOWN} -> 120: at most {ours / MIB:.1f} MiB beyond the weights")
        print(f"with half the bars known: {more / MIB:.1f} MiB less; their keys and values take")
        print(f"{prompt / MIB:.1f} MiB once, {20 * prompt / MIB:.1f} MiB twenty times")
    assert more < 2 * prompt
    if "peer" in predictors:
        theirs = peak(predictors["peer"], 20, 3)
        with capsys.disabled():
            print(f"the peer, {KNOWN} -> 3: {theirs / MIB:.1f} MiB")
        assert ours <= theirs / 2

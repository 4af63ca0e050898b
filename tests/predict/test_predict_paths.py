"""All paths, their mean and quantiles, batches of any lengths, and windows that slide."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kronos.errors import ConfigError
from kronos.model import Kronos, KronosTokenizer
from kronos.predict import KronosPredictor
from kronos.predict.outputs import mean_frame, paths_frame, sane

COLUMNS = ["open", "high", "low", "close", "volume", "amount"]

Frame = pd.DataFrame
Predict = Callable[..., Frame]
Same = Callable[..., bool]
MakeBars = Callable[..., Frame]
TinyModels = Callable[[], tuple[Kronos, KronosTokenizer]]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def history(bars: Frame) -> Frame:
    return bars[:64].set_index("timestamps")


def test_the_forecast_is_the_mean_of_the_paths(predictor: KronosPredictor, history: Frame) -> None:
    options = {"pred_len": 9, "sample_count": 5, "seed": 3, "verbose": False}
    paths = predictor.predict_paths(history, **options)
    assert paths.index.names == ["path", "timestamps"]
    assert list(paths.columns) == COLUMNS
    assert (paths.dtypes == np.float32).all()
    mean = predictor.predict(history, **options)
    assert paths.loc[0].index.equals(mean.index)
    by_path = paths.to_numpy().reshape(5, 9, 6)
    assert np.allclose(by_path.mean(axis=0), mean, rtol=1e-6)
    assert len({path.tobytes() for path in by_path}) == 5


def test_P17_a_path_is_the_same_however_many_there_are(
    predictor: KronosPredictor, history: Frame
) -> None:
    options = {"pred_len": 6, "seed": 3, "verbose": False}
    few, many = (
        predictor.predict_paths(history, sample_count=count, **options) for count in (3, 20)
    )
    assert np.allclose(few, many[: len(few)], rtol=1e-5)
    default = predictor.predict_paths(history, **options)
    assert default.equals(many)  # twenty


def test_quantiles_are_those_of_the_paths(predictor: KronosPredictor, history: Frame) -> None:
    options = {"pred_len": 6, "sample_count": 11, "seed": 3, "verbose": False}
    paths = predictor.predict_paths(history, **options).to_numpy(np.float64).reshape(11, 6, 6)
    plain = predictor.predict(history, **options)
    frame = predictor.predict(history, quantiles=(0.1, 0.5, 0.95), **options)
    assert frame[COLUMNS].equals(plain)
    names = [f"{name}_q{quantile}" for name in COLUMNS for quantile in ("0.1", "0.5", "0.95")]
    assert list(frame.columns) == COLUMNS + names
    assert (frame.dtypes == np.float32).all()
    for number, name in enumerate(COLUMNS):
        assert np.allclose(frame[f"{name}_q0.5"], np.median(paths[..., number], axis=0), rtol=1e-6)
        assert (frame[f"{name}_q0.1"] <= frame[f"{name}_q0.5"]).all()
        low = np.sort(paths[..., number], axis=0)[1]  # the second of eleven
        assert np.allclose(frame[f"{name}_q0.1"], low, rtol=1e-6)


def test_quantiles_in_a_batch_and_not_of_all_paths(
    predictor: KronosPredictor, history: Frame
) -> None:
    options: dict[str, Any] = {"pred_len": 3, "sample_count": 4, "seed": 1, "verbose": False}
    both = predictor.predict_batch([history, history[20:]], quantiles=[0.5], **options)
    alone = predictor.predict(history[20:], quantiles=[0.5], **options)
    assert np.allclose(both[1], alone, rtol=1e-5)
    with pytest.raises(ConfigError, match="quantiles are for predict and predict_batch"):
        predictor.predict_paths(history, quantiles=[0.5], **options)


# P7 and P10: sane outputs, on demand.


def some_values(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((4, 5, 6))


@given(seed=st.integers(0, 1000), clip=st.booleans(), repair=st.booleans())
@settings(max_examples=50)
def test_P7_P10_sane_paths(seed: int, clip: bool, repair: bool) -> None:
    values = some_values(seed)
    before = values.copy()
    done = sane(values, clip, repair)
    assert np.array_equal(values, before)
    high, low = done[..., 1], done[..., 2]
    assert np.array_equal(done[..., [0, 3]], before[..., [0, 3]])
    if clip:
        assert np.array_equal(done[..., 4:], before[..., 4:].clip(0))
    else:
        assert np.array_equal(done[..., 4:], before[..., 4:])
    if repair:
        assert np.array_equal(high, before[..., :4].max(axis=-1))
        assert np.array_equal(low, before[..., :4].min(axis=-1))
        mean = mean_frame(done, pd.date_range("2024", periods=5), (0.1,))
        assert (mean["high"] >= mean[["open", "close"]].max(axis=1) - 1e-6).all()
        assert (mean["high_q0.1"] >= mean["low_q0.1"]).all()
    else:
        assert np.array_equal(done[..., :4], before[..., :4])


def test_P7_P10_hold_for_every_path(predictor: KronosPredictor, history: Frame) -> None:
    given = history.assign(volume=np.arange(64.0) ** 3, amount=np.arange(64.0) ** 3)
    options = {"pred_len": 10, "seed": 1, "verbose": False}
    raw = predictor.predict_paths(given, **options)
    assert (raw["volume"] < 0).any()
    assert (raw["high"] < raw[["open", "close"]].max(axis=1)).any()
    done = predictor.predict_paths(given, clip_volume=True, repair_ohlc=True, **options)
    assert (done[["volume", "amount"]] >= 0).all(axis=None)
    assert (done["high"] == raw[COLUMNS[:4]].max(axis=1)).all()
    assert (done["low"] == raw[COLUMNS[:4]].min(axis=1)).all()


def test_a_frame_of_paths_keeps_the_name_of_its_times() -> None:
    times = pd.date_range("2024", periods=5, name="when", tz="UTC")
    frame = paths_frame(some_values(0), times)
    assert frame.index.names == ["path", "when"]
    assert frame.loc[(2, times[3]), "close"] == np.float32(some_values(0)[2, 3, 3])


# Batches.


def test_P17_series_of_any_lengths_in_one_batch(
    tiny_models: TinyModels, make_bars: MakeBars
) -> None:
    """In order, each as if alone; some windows slide, others do not."""
    predictor = KronosPredictor(*tiny_models(), max_context=40)
    lengths = (17, 64, 33, 1, 64, 40, 39)
    series = [
        make_bars(length, seed).set_index("timestamps") for seed, length in enumerate(lengths)
    ]
    futures = [pd.date_range("2025", periods=10, freq="h")] * len(series)
    options: dict[str, Any] = {"sample_count": 3, "verbose": False}
    for more in ({"seed": 5, "top_p": 0.95}, {"T": 0}, {"seed": 5, "context_stride": 4}):
        batch = predictor.predict_batch(series, None, futures, 10, **options, **more)
        for one, future, frame in zip(series, futures, batch, strict=True):
            alone = predictor.predict(one, None, future, 10, **options, **more)
            assert np.allclose(frame, alone, rtol=1e-4)


def test_P20_the_prompts_of_a_batch_are_encoded_together(
    predictor: KronosPredictor, history: Frame, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, ...]] = []
    encode = predictor.tokenizer.encode_halves

    def counting(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append(tuple(x.shape))
        return encode(x)

    monkeypatch.setattr(predictor.tokenizer, "encode_halves", counting)
    series = [history, history[10:], history * 2, history[:54]]
    predictor.predict_batch(series, pred_len=2, sample_count=3, verbose=False)
    assert seen == [(2, 54, 6), (2, 64, 6)]


@pytest.mark.parametrize("seeds", [(1, 2), range(1, 3)])
def test_a_seed_for_each_of_several_lengths(
    predictor: KronosPredictor, history: Frame, seeds: Sequence[int]
) -> None:
    """The seeds go by the order given, not by that of the lengths."""
    options: dict[str, Any] = {"pred_len": 4, "verbose": False}
    batch = predictor.predict_batch([history[30:], history], seed=seeds, **options)
    for one, seed, frame in zip((history[30:], history), seeds, batch, strict=True):
        assert np.allclose(predictor.predict(one, seed=seed, **options), frame, rtol=1e-5)


# Windows.


def test_a_stride_beyond_the_window_is_the_whole_window(
    tiny_models: TinyModels, history: Frame
) -> None:
    predictor = KronosPredictor(*tiny_models(), max_context=16)
    options: dict[str, Any] = {"pred_len": 12, "T": 0, "verbose": False}
    whole = predictor.predict(history, context_stride=16, **options)
    assert whole.equals(predictor.predict(history, context_stride=1000, **options))
    assert not whole.equals(predictor.predict(history, **options))


def test_a_horizon_as_long_as_the_window(tiny_models: TinyModels, history: Frame) -> None:
    """Then nothing known is left to decode the values with."""
    predictor = KronosPredictor(*tiny_models(), max_context=8)
    frame = predictor.predict(history, pred_len=8, sample_count=2, seed=0, verbose=False)
    assert np.isfinite(frame).all(axis=None)
    one_bar = KronosPredictor(*tiny_models(), max_context=1)
    assert len(one_bar.predict(history, pred_len=1, verbose=False)) == 1

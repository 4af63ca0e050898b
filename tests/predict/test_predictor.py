"""The predictor's forecasts: conformance, decoding restated slowly, seeds, batches, precisions."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from kronos.errors import ConfigError
from kronos.model import Kronos, KronosTokenizer
from kronos.model.sampling import path_uniforms
from kronos.predict import KronosPredictor

CONFORMANCE = Path(__file__).parents[1] / "conformance"
BARS = Path(__file__).parents[3] / "shared" / "data" / "XSHG_5min_600977.csv"
CONFIG = json.loads((CONFORMANCE / "tiny_config.json").read_text(encoding="utf-8"))
COLUMNS = ["open", "high", "low", "close", "volume", "amount"]

Frame = pd.DataFrame
Predict = Callable[..., Frame]
Same = Callable[..., bool]
Batch = Callable[[int], tuple[list[Frame], list[pd.Series], list[pd.Series]]]
TinyModels = Callable[[], tuple[Kronos, KronosTokenizer]]
MakeBars = Callable[..., Frame]

pytestmark = pytest.mark.usefixtures("one_thread")


# Conformance.


@pytest.mark.skipif(not BARS.exists(), reason=f"the bars {BARS.name} are not beside the project")
@pytest.mark.parametrize("name", list(CONFIG["cases"]))
def test_reference_forecasts(name: str, tiny_models: TinyModels) -> None:
    case = CONFIG["cases"][name]
    bars = pd.read_csv(BARS, parse_dates=["timestamps"])
    wanted = pd.read_csv(CONFORMANCE / f"predict_{name}.csv", parse_dates=["timestamps"])
    predictor = KronosPredictor(*tiny_models(), max_context=case["max_context"])
    ends = [(start, start + case["context"]) for start in case["offsets"]]
    future = [bars["timestamps"][end : end + case["pred_len"]] for _, end in ends]
    frames = predictor.predict_batch(
        [bars.loc[start : end - 1, case["columns"]] for start, end in ends],
        [bars["timestamps"][start:end] for start, end in ends],
        future,
        case["pred_len"],
        verbose=False,
        **{key: case[key] for key in ("T", "top_k", "top_p", "sample_count")},
    )
    for start, frame in zip(case["offsets"], frames, strict=True):
        theirs = wanted[wanted["series"] == start].set_index("timestamps")
        assert list(frame.index) == list(theirs.index)
        for column in COLUMNS:
            error = np.abs(frame[column] - theirs[column]).max()
            if name == "no_volume" and column in ("volume", "amount"):
                assert (frame[column] == 0).all()  # mended: the reference prints noise
                assert error < 1e-4
            else:
                assert error <= 1e-5 * np.abs(theirs[column]).max()


# The whole of it, restated.


def slow_forecast(
    predictor: KronosPredictor,
    history: Frame,
    stamps: list[list[int]],
    steps: int,
    draws: list[torch.Tensor] | None = None,
    T: float = 1.0,
) -> np.ndarray:
    """One path at a time, one bar at a time, all in Python lists; draws None is greedy."""
    values = history[COLUMNS].to_numpy()
    mean, std = values.mean(0), values.std(0)
    scores = np.clip((values - mean) / (std + 1e-5), -5, 5)
    ids = predictor.tokenizer.encode(torch.tensor(scores[None], dtype=torch.float32), half=True)
    room, paths = predictor.max_context, []
    for draw in draws or [None]:
        s1, s2 = ids[0][0].tolist(), ids[1][0].tolist()
        for step in range(steps):
            window = [torch.tensor([part[-room:]]) for part in (s1, s2, stamps[: len(s1)])]
            logits, context = predictor.model.decode_s1(*window)
            one = pick(logits[0, -1], T, None if draw is None else draw[step, 0].item())
            logits = predictor.model.decode_s2(context, torch.tensor([[one]]))
            two = pick(logits[0, -1], T, None if draw is None else draw[step, 1].item())
            s1.append(one)
            s2.append(two)
        halves = torch.tensor([s1[-room:]]), torch.tensor([s2[-room:]])
        paths.append(predictor.tokenizer.decode(halves, half=True)[0, -steps:].numpy())
    return np.mean(paths, axis=0) * (std + 1e-5) + mean


def pick(logits: torch.Tensor, T: float, uniform: float | None) -> int:
    if uniform is None:
        return int(logits.argmax())
    chances = sorted(enumerate(torch.softmax(logits / T, -1).tolist()), key=lambda pair: -pair[1])
    for one, chance in chances:
        if uniform < chance:
            return one
        uniform -= chance
    raise AssertionError("the chances sum up to less than the draw")


def stamp_lists(times: pd.Series) -> list[list[int]]:
    return [[t.minute, t.hour, t.weekday(), t.day, t.month] for t in times]


@pytest.mark.parametrize("max_context", [16, 40, 68, 512])
@torch.no_grad()
def test_greedy_decoding_restated(bars: Frame, max_context: int, tiny_models: TinyModels) -> None:
    predictor = KronosPredictor(*tiny_models(), max_context=max_context)
    times = bars["timestamps"]
    got = predictor.predict(bars[:64], times[:64], times[64:76], 12, T=0, verbose=False)
    wanted = slow_forecast(predictor, bars[:64], stamp_lists(times), 12)
    assert np.allclose(got, wanted, rtol=1e-5)
    assert (got.dtypes == np.float32).all()
    assert list(got.columns) == COLUMNS
    assert got.index.equals(pd.DatetimeIndex(times[64:76]))


@torch.no_grad()
def test_sampled_decoding_restated(predictor: KronosPredictor, bars: Frame) -> None:
    times = bars["timestamps"]
    options = {"T": 0.8, "top_k": None, "top_p": None, "sample_count": 3, "seed": 11}
    got = predictor.predict(bars[:64], times[:64], times[64:72], 8, verbose=False, **options)
    draws = [path_uniforms(11, path, 8) for path in range(3)]
    wanted = slow_forecast(predictor, bars[:64], stamp_lists(times), 8, draws, T=0.8)
    assert np.allclose(got, wanted, rtol=1e-5)


def test_greedy_is_deterministic_and_ignores_the_seed(predict: Predict) -> None:
    assert predict(seed=1).equals(predict(seed=2))
    two_paths = predict(T=0, top_k=None, sample_count=2)
    pd.testing.assert_frame_equal(two_paths, predict(), rtol=1e-5)


# Chance: settings, seeds and batches.


def test_P11_none_is_off(predict: Predict) -> None:
    plain = predict(top_k=0, top_p=1.0, seed=3)
    assert predict(top_k=None, top_p=None, seed=3).equals(plain)


def test_P17_a_series_has_the_same_path_alone_and_in_any_batch(
    predictor: KronosPredictor, same: Same, batch_arguments: Batch
) -> None:
    frames, past, future = batch_arguments(4)
    options = {"pred_len": 10, "T": 1.0, "top_p": 0.95, "sample_count": 2, "verbose": False}
    batch = predictor.predict_batch(frames, past, future, seed=5, **options)
    backwards = predictor.predict_batch(frames[::-1], past[::-1], future[::-1], seed=5, **options)
    for i in range(4):
        alone = predictor.predict(frames[i], past[i], future[i], seed=5, **options)
        assert same(alone, batch[i], rtol=1e-5)
        assert same(alone, backwards[3 - i], rtol=1e-5)
        other = predictor.predict(frames[i], past[i], future[i], seed=6, **options)
        assert not same(alone, other, rtol=1e-5)


def test_a_seed_for_each_series(
    predictor: KronosPredictor, same: Same, batch_arguments: Batch
) -> None:
    frames, past, future = batch_arguments(2)
    options = {"pred_len": 10, "verbose": False}
    batch = predictor.predict_batch(frames, past, future, seed=[5, 6], **options)
    alone = predictor.predict(frames[1], past[1], future[1], seed=6, **options)
    assert same(batch[1], alone, rtol=1e-5)
    with pytest.raises(ConfigError, match="one for each of 2, got 3"):
        predictor.predict_batch(frames, past, future, seed=[1, 2, 3], **options)


def test_without_a_seed_torchs_generator_decides(predict: Predict) -> None:
    torch.manual_seed(0)
    first, second = predict(top_k=0), predict(top_k=0)
    torch.manual_seed(0)
    assert predict(top_k=0).equals(first)
    assert not second.equals(first)


# The models: context, precision, mode and shapes.


def test_P19_what_counts_of_a_long_history(
    tiny_models: TinyModels, make_bars: MakeBars, same: Same
) -> None:
    """All bars are normalised and encoded; the forecaster sees the last max_context."""
    bars = make_bars(3010)
    predictor = KronosPredictor(*tiny_models(), max_context=32)

    def run(history: Frame) -> Frame:
        times = history["timestamps"]
        future = bars["timestamps"][3000:]
        return predictor.predict(history, times, future, 10, top_k=1, verbose=False)

    whole = run(bars[:3000])
    assert not same(whole, run(bars[2968:3000]), rtol=1e-3)  # the early bars count
    assert "early ones count in the normalisation" in (KronosPredictor.__doc__ or "")


def test_P20_the_prompt_is_encoded_once(
    predict: Predict, predictor: KronosPredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, ...]] = []
    encode = predictor.tokenizer.encode_halves

    def counting(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append(tuple(x.shape))
        return encode(x)

    monkeypatch.setattr(predictor.tokenizer, "encode_halves", counting)
    predict(sample_count=5, top_k=0)
    assert seen == [(1, 64, 6)]


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_P21_a_precision_is_the_forecasters_alone(
    bars: Frame, name: str, tiny_models: TinyModels
) -> None:
    """Half precision would turn bits of the codes: their signs are near zero."""
    model, tokenizer = tiny_models()
    predictor = KronosPredictor(model, tokenizer, precision=name)
    assert {p.dtype for p in model.parameters()} == {getattr(torch, name)}
    assert {p.dtype for p in tokenizer.parameters()} == {torch.float32}
    times = bars["timestamps"]
    frame = predictor.predict(bars[:64], times[:64], times[64:70], 6, T=0, verbose=False)
    plain = KronosPredictor(*tiny_models())
    wanted = plain.predict(bars[:64], times[:64], times[64:70], 6, T=0, verbose=False)
    assert (frame.dtypes == np.float32).all()
    assert np.allclose(frame["close"], wanted["close"], rtol=0.02)


@pytest.mark.parametrize("name", ["fp32", "double", ""])
def test_P21_a_precision_that_there_is_not(name: str, tiny_models: TinyModels) -> None:
    with pytest.raises(ConfigError, match=f"float32, bfloat16, float16 or None, got '{name}'"):
        KronosPredictor(*tiny_models(), precision=name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_P21_other_precisions(bars: Frame, dtype: torch.dtype, tiny_models: TinyModels) -> None:
    model, tokenizer = tiny_models()
    predictor = KronosPredictor(model.to(dtype), tokenizer.to(dtype))
    times = bars["timestamps"]
    frame = predictor.predict(bars[:64], times[:64], times[64:70], 6, verbose=False, seed=0)
    assert (frame.dtypes == np.float32).all()
    assert np.isfinite(frame).all(axis=None)
    assert next(model.parameters()).dtype == dtype


def test_P22_predicting_before_and_after_a_change_of_precision(
    predictor: KronosPredictor,
    predict: Predict,
    tiny_models: TinyModels,
    same: Same,
) -> None:
    before = predict()
    predictor.model.bfloat16()
    predictor.tokenizer.bfloat16()
    predict(pred_len=10)
    predictor.model.double()
    predictor.tokenizer.double()
    predict(pred_len=10)
    predictor.model.load_state_dict(tiny_models()[0].state_dict())
    predictor.tokenizer.load_state_dict(tiny_models()[1].state_dict())
    predictor.model.float()
    predictor.tokenizer.float()
    assert same(predict(), before)


def test_P23_threads_share_a_predictor_that_is_in_training(
    bars: Frame, tiny_models: TinyModels
) -> None:
    """Eight threads, fifty forecasts each, of lengths in turn: to the bit what one thread gives."""
    model, tokenizer = tiny_models()
    model.token_drop.p = 0.9
    model.train()
    predictor = KronosPredictor(model, tokenizer, max_context=60)
    times = bars["timestamps"]
    lengths = (40, 55, 59, 64)

    def run(length: int) -> Frame:
        future = times[length : length + 3]
        options = {"sample_count": 2, "seed": length, "verbose": False}
        return predictor.predict(bars[:length], times[:length], future, 3, **options)

    wanted = {length: run(length) for length in lengths}
    faults: list[object] = []

    def work(number: int) -> None:
        for turn in range(50):
            length = lengths[(number + turn) % len(lengths)]
            try:
                if not run(length).equals(wanted[length]):
                    faults.append(length)
            except Exception as error:
                faults.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert model.training
    assert not tokenizer.training


def test_a_bar_only_when_verbose(predict: Predict, capfd: pytest.CaptureFixture[str]) -> None:
    predict()
    assert capfd.readouterr() == ("", "")
    predict(verbose=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "predicting" in err or err.strip() == ""  # no terminal here: rich may draw nothing


def test_a_model_and_a_tokenizer_that_do_not_belong_together(tiny_models: TinyModels) -> None:
    model, tokenizer = tiny_models()
    other = KronosTokenizer(**(CONFIG["tokenizer"] | {"s1_bits": 4, "s2_bits": 6}))
    with pytest.raises(ConfigError, match=r"5 \+ 5 and 4 \+ 6"):
        KronosPredictor(model, other)
    with pytest.raises(ConfigError, match="its d_in is 5"):
        KronosPredictor(model, KronosTokenizer(**(CONFIG["tokenizer"] | {"d_in": 5})))
    with pytest.raises(ConfigError, match="max_context"):
        KronosPredictor(model, tokenizer, max_context=0)
    with pytest.raises(ConfigError, match="clip must be above 0, got 0"):
        KronosPredictor(model, tokenizer, clip=0)


def test_the_models_stay_where_they_are_unless_told(tiny_models: TinyModels) -> None:
    model, tokenizer = tiny_models()
    assert KronosPredictor(model, tokenizer).device == torch.device("cpu")
    assert KronosPredictor(model, tokenizer, "meta").model.norm.weight.device.type == "meta"
    assert tokenizer.embed.weight.device.type == "meta"

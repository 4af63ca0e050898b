"""The predictor: conformance, the cases it mends, and its decoding restated slowly."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from kronos.errors import ConfigError, DataError
from kronos.model import Kronos, KronosTokenizer
from kronos.model.sampling import path_uniforms
from kronos.predict import KronosPredictor

CONFORMANCE = Path(__file__).parent / "conformance"
BARS = Path(__file__).parents[2] / "shared" / "data" / "XSHG_5min_600977.csv"
CONFIG = json.loads((CONFORMANCE / "tiny_config.json").read_text(encoding="utf-8"))
COLUMNS = ["open", "high", "low", "close", "volume", "amount"]

Frame = pd.DataFrame
Predict = Callable[..., Frame]


def tiny_models() -> tuple[Kronos, KronosTokenizer]:
    model = Kronos(**CONFIG["predictor"])
    model.load_state_dict(load_file(CONFORMANCE / "tiny_predictor.safetensors"))
    tokenizer = KronosTokenizer(**CONFIG["tokenizer"])
    tokenizer.load_state_dict(load_file(CONFORMANCE / "tiny_tokenizer.safetensors"))
    return model.eval(), tokenizer.eval()


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """The models are tiny: several threads would only wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def predictor() -> KronosPredictor:
    return KronosPredictor(*tiny_models())


def make_bars(count: int, seed: int = 0) -> Frame:
    """A random walk with a `timestamps` column of five-minute bars."""
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


@pytest.fixture
def bars() -> Frame:
    return make_bars(80)


@pytest.fixture
def predict(predictor: KronosPredictor, bars: Frame) -> Predict:
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


def same(first: Frame, second: Frame, rtol: float = 1e-6) -> bool:
    return bool(np.allclose(first, second, rtol=rtol, atol=0)) and first.index.equals(second.index)


# Conformance.


@pytest.mark.skipif(not BARS.exists(), reason=f"the bars {BARS.name} are not beside the project")
@pytest.mark.parametrize("name", list(CONFIG["cases"]))
def test_reference_forecasts(name: str) -> None:
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
def test_greedy_decoding_restated(bars: Frame, max_context: int) -> None:
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
    assert predict(T=0, top_k=None, sample_count=2).equals(predict())


def test_scaled_bars_give_scaled_forecasts(predict: Predict, bars: Frame) -> None:
    """What normalisation takes out is put back: prices times 1000 forecast times 1000."""
    plain = predict()
    scaled = predict(**{name: bars[name][:64] * 1000 for name in COLUMNS})
    assert np.allclose(scaled / 1000, plain, rtol=1e-4)


# The cases of users elsewhere.


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, None, 1e39, "n/a"])
@pytest.mark.parametrize("column", COLUMNS)
def test_P2_a_value_that_is_no_number(
    predict: Predict, bars: Frame, column: str, value: object
) -> None:
    values = bars[column][:64].astype(object)
    values[17] = value
    with pytest.raises(DataError, match=rf"column {column}, row 18 \(2024-06-18 00:25:00\)"):
        predict(**{column: values})


def test_P2_an_amount_too_large_for_float32(predict: Predict) -> None:
    with pytest.raises(DataError, match=r"column amount .*, row 1"):
        predict(volume=3e38, amount=None)


def test_P3_any_kind_of_timestamps(predict: Predict, bars: Frame) -> None:
    times = bars["timestamps"]
    wanted = predict()
    for kind in (
        pd.DatetimeIndex,
        list,
        lambda t: [str(one) for one in t],
        lambda t: t.to_numpy(),
        lambda t: t.astype(str),
        lambda t: [one.to_pydatetime() for one in t],
        lambda t: t.set_axis(range(100, 100 + len(t))),
    ):
        got = predict(x_timestamp=kind(times[:64]), y_timestamp=kind(times[64:74]))
        assert isinstance(got.index, pd.DatetimeIndex)
        assert same(got, wanted, rtol=0)


@pytest.mark.parametrize("count", [59, 69])
def test_P4_timestamp_count_must_match(predict: Predict, bars: Frame, count: int) -> None:
    with pytest.raises(DataError, match=rf"{count} timestamps for 64 bars"):
        predict(x_timestamp=bars["timestamps"][:count])
    with pytest.raises(DataError, match=r"9 timestamps for pred_len 10"):
        predict(y_timestamp=bars["timestamps"][64:73])


def test_P6_flat_bars_stay_flat(predict: Predict) -> None:
    flat = predict(open=50000.1, high=50000.1, low=50000.1, close=50000.1, volume=3.0, amount=7.0)
    assert (flat[["open", "high", "low", "close"]] == np.float32(50000.1)).all(axis=None)
    assert (flat["volume"] == 3).all()


def test_P7_negative_volume_is_clamped_on_demand(predict: Predict) -> None:
    raw = predict(volume=np.arange(64.0) ** 3, amount=np.arange(64.0) ** 3)
    assert (raw[["volume", "amount"]] < 0).any(axis=None)
    clipped = predict(volume=np.arange(64.0) ** 3, amount=np.arange(64.0) ** 3, clip_volume=True)
    assert (clipped[["volume", "amount"]] >= 0).all(axis=None)
    assert clipped.equals(raw.assign(volume=raw.volume.clip(0), amount=raw.amount.clip(0)))


def test_P8_no_volume_column_gives_exact_zeros(predict: Predict) -> None:
    for options in ({"volume": None, "amount": None}, {"volume": 0.0, "amount": 0.0}):
        frame = predict(**options)
        assert (frame[["volume", "amount"]] == 0).all(axis=None)


def test_P9_amount_without_volume_is_kept(predict: Predict) -> None:
    with_amount = predict(volume=None)
    assert (with_amount["volume"] == 0).all()
    assert with_amount["amount"].abs().min() > 1
    assert same(with_amount, predict(volume=0.0))


def test_missing_amount_is_volume_times_the_mean_price(predict: Predict, bars: Frame) -> None:
    amount = bars["volume"] * bars[["open", "high", "low", "close"]].mean(axis=1)
    assert same(predict(amount=None), predict(amount=amount[:64]))


def test_P10_ohlc_is_repaired_on_demand(predict: Predict) -> None:
    raw, repaired = predict(), predict(repair_ohlc=True)
    prices = raw[["open", "high", "low", "close"]]
    assert (raw["high"] < prices.max(axis=1)).any()
    wanted = raw.assign(high=prices.max(axis=1), low=prices.min(axis=1))
    assert repaired.equals(wanted)


def test_P11_none_is_off(predict: Predict) -> None:
    plain = predict(top_k=0, top_p=1.0, seed=3)
    assert predict(top_k=None, top_p=None, seed=3).equals(plain)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"T": -1}, "T must be"),
        ({"top_p": 2}, "top_p must be"),
        ({"top_k": -3}, "top_k must be"),
        ({"sample_count": 0}, "sample_count must be a whole number of at least 1, got 0"),
        ({"seed": 0.5}, "seed must be a whole number or None, got 0.5"),
        ({"pred_len": 600}, r"pred_len must not exceed max_context.*600 > 512"),
    ],
)
def test_P13_bad_settings(predict: Predict, settings: dict[str, Any], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        predict(**settings)


@pytest.mark.parametrize("pred_len", [0, -1, 2.5, None, True])
def test_P14_nothing_to_predict(predict: Predict, pred_len: Any) -> None:
    with pytest.raises(ConfigError, match=f"pred_len must be .* at least 1, got {pred_len}"):
        predict(pred_len, y_timestamp=[])
    with pytest.raises(DataError, match="0 timestamps for pred_len 10"):
        predict(y_timestamp=[])


def test_P15_an_empty_batch_gives_an_empty_list(predictor: KronosPredictor, bars: Frame) -> None:
    assert predictor.predict_batch([], [], [], 5) == []
    with pytest.raises(DataError, match="must be equally long, got 1, 0 and 0"):
        predictor.predict_batch([bars], [], [], 5)


@pytest.mark.parametrize("missing", [pd.NaT, None, ""])
def test_P16_a_missing_timestamp_is_named(predict: Predict, bars: Frame, missing: object) -> None:
    times = list(bars["timestamps"][:64])
    times[5] = missing
    with pytest.raises(DataError, match="x_timestamp, row 6"):
        predict(x_timestamp=times)
    future = list(bars["timestamps"][64:74])
    future[9] = missing
    with pytest.raises(DataError, match="y_timestamp, row 10"):
        predict(y_timestamp=future)


def batch_arguments(count: int) -> tuple[list[Frame], list[pd.Series], list[pd.Series]]:
    frames = [make_bars(60, seed) for seed in range(count)]
    return (
        [frame[:50] for frame in frames],
        [frame["timestamps"][:50] for frame in frames],
        [frame["timestamps"][50:] for frame in frames],
    )


def test_P17_a_series_has_the_same_path_alone_and_in_any_batch(predictor: KronosPredictor) -> None:
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


def test_a_seed_for_each_series(predictor: KronosPredictor) -> None:
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


def test_P18_one_clock(predict: Predict, bars: Frame) -> None:
    past, future = bars["timestamps"][:64], bars["timestamps"][64:74]
    with pytest.raises(DataError, match="one clock, got zone UTC and no zone"):
        predict(x_timestamp=past.dt.tz_localize("UTC"))
    with pytest.raises(DataError, match="one clock, got zone Asia/Shanghai and zone UTC"):
        predict(
            x_timestamp=past.dt.tz_localize("Asia/Shanghai"),
            y_timestamp=future.dt.tz_localize("UTC"),
        )
    # The model reads the wall clock, whatever the zone.
    aware = predict(
        x_timestamp=past.dt.tz_localize("UTC"), y_timestamp=future.dt.tz_localize("UTC")
    )
    assert str(aware.index.tz) == "UTC"
    assert np.array_equal(aware, predict())


def test_P19_what_counts_of_a_long_history() -> None:
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_P21_other_precisions(bars: Frame, dtype: torch.dtype) -> None:
    model, tokenizer = tiny_models()
    predictor = KronosPredictor(model.to(dtype), tokenizer.to(dtype))
    times = bars["timestamps"]
    frame = predictor.predict(bars[:64], times[:64], times[64:70], 6, verbose=False, seed=0)
    assert (frame.dtypes == np.float32).all()
    assert np.isfinite(frame).all(axis=None)
    assert next(model.parameters()).dtype == dtype


def test_P22_predicting_before_and_after_a_change_of_precision(
    predictor: KronosPredictor, predict: Predict
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


def test_P23_threads_share_a_predictor_that_is_in_training(bars: Frame) -> None:
    model, tokenizer = tiny_models()
    model.token_drop.p = 0.9
    model.train()
    predictor = KronosPredictor(model, tokenizer)
    times = bars["timestamps"]

    def run(length: int) -> Frame:
        return predictor.predict(
            bars[:length], times[:length], times[length : length + 5], 5, top_k=1, verbose=False
        )

    wanted = {length: run(length) for length in (40, 55, 64)}
    faults: list[object] = []

    def work(length: int) -> None:
        for _ in range(15):
            try:
                if not same(run(length), wanted[length], rtol=1e-5):
                    faults.append(length)
            except Exception as error:
                faults.append(error)

    threads = [threading.Thread(target=work, args=(length,)) for length in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert model.training
    assert not tokenizer.training


# Other promises.


def test_series_of_other_lengths_and_faults_are_named_by_their_place(
    predictor: KronosPredictor,
) -> None:
    frames, past, future = batch_arguments(2)
    with pytest.raises(DataError, match=r"equally long, got \[49, 50\] bars"):
        predictor.predict_batch(
            [frames[0], frames[1][1:]], [past[0], past[1][1:]], future, 10, verbose=False
        )
    frames[1] = frames[1].assign(close=np.nan)
    with pytest.raises(DataError, match="series 1: column close, row 1"):
        predictor.predict_batch(frames, past, future, 10, verbose=False)


def test_columns_that_are_missing_repeated_or_no_numbers(predict: Predict, bars: Frame) -> None:
    with pytest.raises(DataError, match="the bars lack high, close; they have timestamps, open"):
        predict(high=None, close=None)
    with pytest.raises(DataError, match="column open must hold numbers, not datetime64"):
        predict(open=bars["timestamps"][:64])


def test_bars_that_are_no_bars(predictor: KronosPredictor, bars: Frame) -> None:
    future = bars["timestamps"][:3]
    with pytest.raises(DataError, match="no bars to predict from"):
        predictor.predict(bars[:0], [], future, 3)
    with pytest.raises(DataError, match="must be a pandas DataFrame, got dict"):
        predictor.predict({"open": [1.0]}, future, future, 3)  # type: ignore[arg-type]
    twice = pd.concat([bars[:3], bars[["low"]][:3]], axis=1)
    with pytest.raises(DataError, match="more than one column low"):
        predictor.predict(twice, future, future, 3)
    one = predictor.predict(bars[:1], future[:1], future, 3, verbose=False)
    assert np.allclose(one, bars[COLUMNS][:1].to_numpy(), rtol=1e-6)  # nothing moved yet


def test_the_arguments_are_left_alone(predict: Predict, bars: Frame) -> None:
    before = bars.copy()
    predict(amount=None)
    assert bars.equals(before)


def test_a_bar_only_when_verbose(predict: Predict, capfd: pytest.CaptureFixture[str]) -> None:
    predict()
    assert capfd.readouterr() == ("", "")
    predict(verbose=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "predicting" in err or err.strip() == ""  # no terminal here: rich may draw nothing


def test_a_model_and_a_tokenizer_that_do_not_belong_together() -> None:
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


def test_the_models_stay_where_they_are_unless_told() -> None:
    model, tokenizer = tiny_models()
    assert KronosPredictor(model, tokenizer).device == torch.device("cpu")
    assert KronosPredictor(model, tokenizer, "meta").model.norm.weight.device.type == "meta"
    assert tokenizer.embed.weight.device.type == "meta"


def test_clip_bounds_what_the_tokenizer_sees(predict: Predict, bars: Frame) -> None:
    volume = bars["volume"][:64].copy()
    volume[30] = 1e7
    larger = volume.copy()
    larger[30] = 1e9  # one outlier of 64 is at most 7.9 deviations away: clipped at 5 both times
    first, second = predict(volume=volume, amount=0.0), predict(volume=larger, amount=0.0)
    assert same(first[["open", "close"]], second[["open", "close"]], rtol=1e-3)

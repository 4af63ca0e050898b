"""The predictor's inputs: the bars, times and settings of users elsewhere, mended or refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kronos.errors import ConfigError, DataError
from kronos.predict import KronosPredictor

COLUMNS = ["open", "high", "low", "close", "volume", "amount"]

Frame = pd.DataFrame
Predict = Callable[..., Frame]
Same = Callable[..., bool]
Batch = Callable[[int], tuple[list[Frame], list[pd.Series], list[pd.Series]]]

pytestmark = pytest.mark.usefixtures("one_thread")


def test_scaled_bars_give_scaled_forecasts(predict: Predict, bars: Frame) -> None:
    """What normalisation takes out is put back: prices times 1000 forecast times 1000."""
    plain = predict()
    scaled = predict(**{name: bars[name][:64] * 1000 for name in COLUMNS})
    assert np.allclose(scaled / 1000, plain, rtol=1e-4)


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


def test_P3_any_kind_of_timestamps(predict: Predict, bars: Frame, same: Same) -> None:
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


def test_P9_amount_without_volume_is_kept(predict: Predict, same: Same) -> None:
    with_amount = predict(volume=None)
    assert (with_amount["volume"] == 0).all()
    assert with_amount["amount"].abs().min() > 1
    assert same(with_amount, predict(volume=0.0))


def test_missing_amount_is_volume_times_the_mean_price(
    predict: Predict, bars: Frame, same: Same
) -> None:
    amount = bars["volume"] * bars[["open", "high", "low", "close"]].mean(axis=1)
    assert same(predict(amount=None), predict(amount=amount[:64]))


def test_P10_ohlc_is_repaired_on_demand(predict: Predict) -> None:
    raw, repaired = predict(), predict(repair_ohlc=True)
    prices = raw[["open", "high", "low", "close"]]
    assert (raw["high"] < prices.max(axis=1)).any()
    wanted = raw.assign(high=prices.max(axis=1), low=prices.min(axis=1))
    assert repaired.equals(wanted)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"T": -1}, "T must be"),
        ({"top_p": 2}, "top_p must be"),
        ({"top_k": -3}, "top_k must be"),
        ({"context_stride": 0}, "context_stride must be a whole number of at least 1, got 0"),
        ({"quantiles": [0.5]}, "quantiles take sample_count 2 or more, got 1"),
        ({"quantiles": [0.1, 1.1], "sample_count": 3}, "quantiles must lie .* 0 and 1, got 1.1"),
        (
            {"quantiles": ["0.1"], "sample_count": 3},
            "quantiles must lie between 0 and 1, got '0.1'",
        ),
        ({"quantiles": [0.1, 0.1], "sample_count": 3}, "quantiles must differ, got 0.1, 0.1"),
        ({"reference_draws": True, "T": 0}, "reference_draws takes T above 0, got 0"),
        ({"reference_draws": True, "seed": [1]}, "reference_draws has one stream"),
        ({"sample_count": 0}, "sample_count must be a whole number of at least 1, got 0"),
        ({"seed": 0.5}, "seed must be a whole number or None, got 0.5"),
        ({"pred_len": 600}, r"pred_len must not exceed max_context.*600 > 512"),
    ],
)
def test_P13_bad_settings(predict: Predict, settings: dict[str, Any], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        predict(**settings)


@pytest.mark.parametrize("pred_len", [0, -1, 2.5, True])
def test_P14_nothing_to_predict(predict: Predict, pred_len: Any) -> None:
    with pytest.raises(ConfigError, match=f"pred_len must be .* at least 1, got {pred_len}"):
        predict(pred_len, y_timestamp=[])
    with pytest.raises(DataError, match="0 timestamps for pred_len 10"):
        predict(y_timestamp=[])
    with pytest.raises(ConfigError, match=r"pred_len must be .* at least 1, got 0"):
        predict(None, y_timestamp=[])


def test_P14_the_future_timestamps_say_how_many(predict: Predict, bars: Frame) -> None:
    assert predict(None).equals(predict())
    for none in (None, iter(bars["timestamps"][64:74])):  # an iterator has no length
        with pytest.raises(ConfigError, match="pred_len, the number of bars to predict, is needed"):
            predict(None, y_timestamp=none)


def test_P15_an_empty_batch_gives_an_empty_list(predictor: KronosPredictor, bars: Frame) -> None:
    assert predictor.predict_batch([], [], [], 5) == []
    assert predictor.predict_batch([], pred_len=5) == []
    with pytest.raises(DataError, match="y_timestamp_list must be as long as df_list, got 2 for 1"):
        predictor.predict_batch([bars], y_timestamp_list=[[], []], pred_len=5)
    with pytest.raises(DataError, match="x_timestamp_list must be as long as df_list, got 0 for 1"):
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


def test_faults_of_a_batch_are_named_by_their_place(
    predictor: KronosPredictor,
    batch_arguments: Batch,
) -> None:
    frames, past, future = batch_arguments(2)
    frames[1] = frames[1].assign(close=np.nan)
    with pytest.raises(DataError, match="series 1: column close, row 1"):
        predictor.predict_batch(frames, past, future, 10, verbose=False)


@pytest.mark.parametrize("which", ["x_timestamp", "y_timestamp"])
def test_P4_times_out_of_order_are_named(predict: Predict, bars: Frame, which: str) -> None:
    """A table that begins with the newest bar, or has one twice."""
    times = list(bars["timestamps"][:64] if which == "x_timestamp" else bars["timestamps"][64:74])
    with pytest.raises(DataError, match=f"{which}, row 2: .* is not after .*the oldest first"):
        predict(**{which: times[::-1]})
    times[6] = times[5]
    with pytest.raises(DataError, match=f"{which}, row 7: {times[5]} is not after {times[5]}"):
        predict(**{which: times})


def test_P4_a_future_before_the_end_of_the_bars(predict: Predict, bars: Frame) -> None:
    for shift in (1, 40):
        with pytest.raises(DataError, match=r"must follow the bars: it begins at .*, the bars end"):
            predict(y_timestamp=bars["timestamps"][64 - shift : 74 - shift])


def test_D4_without_times_those_of_the_bars_and_their_sessions_count(
    predictor: KronosPredictor, bars: Frame
) -> None:
    days = pd.bdate_range("2024-06-03", periods=20)  # Mondays to Fridays
    slots = [*pd.timedelta_range("9h35min", "11h30min", freq="5min")]
    slots += [*pd.timedelta_range("13h5min", "15h", freq="5min")]
    times = pd.DatetimeIndex([day + slot for day in days for slot in slots])
    history = pd.concat([bars] * 12, ignore_index=True)[: 19 * 48]
    known, wanted = times[: 18 * 48], times[18 * 48 :][:60]
    given = history[: 18 * 48].assign(timestamps=known)
    plain = predictor.predict(given, known, wanted, 60, top_k=1, verbose=False)
    named = given.rename(columns={"timestamps": "date"})
    for frame in (given, given.set_index("timestamps"), named):
        made = predictor.predict(frame, pred_len=60, top_k=1, verbose=False)
        assert made.equals(plain)
        assert made.index.name == "timestamps"
    free = np.busdaycalendar(holidays=[str(days[18].date())])
    options = {"pred_len": 60, "top_k": 1, "verbose": False, "calendar": free}
    assert predictor.predict(given, **options).index[0] == times[19 * 48]
    with pytest.raises(ConfigError, match="a calendar is for making y_timestamp"):
        predictor.predict(given, known, wanted, **options)
    with pytest.raises(DataError, match="the bars have no times: give x_timestamp"):
        predictor.predict(given.drop(columns="timestamps"), pred_len=2)


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
        predictor.predict(twice, future, bars["timestamps"][3:6], 3)
    one = predictor.predict(bars[:1], future[:1], bars["timestamps"][1:4], 3, verbose=False)
    assert np.allclose(one, bars[COLUMNS][:1].to_numpy(), rtol=1e-6)  # nothing moved yet


def test_the_arguments_are_left_alone(predict: Predict, bars: Frame) -> None:
    before = bars.copy()
    predict(amount=None)
    assert bars.equals(before)


def test_clip_bounds_what_the_tokenizer_sees(predict: Predict, bars: Frame, same: Same) -> None:
    volume = bars["volume"][:64].copy()
    volume[30] = 1e7
    larger = volume.copy()
    larger[30] = 1e9  # one outlier of 64 is at most 7.9 deviations away: clipped at 5 both times
    first, second = predict(volume=volume, amount=0.0), predict(volume=larger, amount=0.0)
    assert same(first[["open", "close"]], second[["open", "close"]], rtol=1e-3)

"""A run's data, from its configuration."""

import numpy as np
import pytest

from kronos import samples
from kronos.data import ReadOptions
from kronos.errors import ConfigError
from kronos.recipes import baseline
from kronos.train.data import bars_path, load_data, read_options


def test_validation_sees_no_bar_of_training(small_run):
    data = load_data(small_run())
    length = data.windows.sample_length
    assert data.train.every()[-1] + length <= data.validation.every()[0]


def test_the_settings_reach_the_windows(small_run):
    run = small_run(window=30).with_overrides(
        ["data.features=[close]", "data.time_features=[hour]", "data.workers=3"]
    )
    data = load_data(run)
    assert data.workers == 3
    assert (data.windows.window, data.windows.horizon) == (30, 4)
    batch = data.windows.batch(data.train.spread(4))
    assert batch.features.any(axis=(0, 1)).tolist() == [False, False, False, True, False, False]
    nothing = load_data(run.with_overrides(["data.time_features=[]"])).windows
    assert not nothing.batch(data.train.spread(4)).stamps.any()
    whole = load_data(small_run()).windows
    assert whole.batch(data.train.spread(4)).features.any(axis=(0, 1)).all()


def test_the_settings_reach_the_reader():
    run = baseline().with_overrides(
        ["data.columns=[open=first]", "data.symbol=A", "data.timezone=UTC", "data.sort=true",
         "data.dedupe=last", "data.fill=drop", "data.repair=true"]
    )  # fmt: skip
    assert read_options(run.data) == ReadOptions(
        columns={"open": "first"},
        symbol="A",
        timezone="UTC",
        sort=True,
        dedupe="last",
        fill="drop",
        repair=True,
    )
    assert read_options(baseline().data) == ReadOptions()
    assert bars_path("ibm") == samples.ibm_daily()
    assert bars_path("ibm.csv") == "ibm.csv"


@pytest.mark.parametrize("text", ["open", "=x", "open=", "open=a,open=b"])
def test_columns_of_another_form_are_refused(text):
    with pytest.raises(ConfigError, match=r"(a column is given as|column open is given twice)"):
        ReadOptions.named(text.split(","))


def test_the_second_start_reads_no_file(small_run, tmp_path, monkeypatch):
    run = small_run().with_overrides([f"data.cache={tmp_path}"])
    first = load_data(run)
    monkeypatch.setattr("kronos.data.cache.read_market", lambda *given: pytest.fail("read again"))
    again = load_data(run)
    assert again.report == first.report
    assert again.train.every().tolist() == first.train.every().tolist()
    starts = again.validation.every()
    np.testing.assert_array_equal(
        again.windows.batch(starts).features, first.windows.batch(starts).features
    )

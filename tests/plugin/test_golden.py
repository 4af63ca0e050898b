"""Golden files: what is written is what is read, and what is damaged is named."""

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kronos.errors import DataError
from pytest_kronos.golden import (
    COLUMNS,
    GoldenStore,
    case_folder,
    describe_changes,
    metrics_of,
)

ROW = {"device": "cpu-avx2", "mae": 0.123456789012, "window": 120, "memory_source": "estimated"}


@pytest.fixture
def store(tmp_path):
    return GoldenStore(tmp_path / "golden")


def test_a_row_comes_back_as_it_was_written(store):
    assert store.row("mine", "cpu-avx2") is None
    assert store.write("mine", {"case": "mine", **ROW}) is None
    row = store.row("mine", "cpu-avx2")
    assert row["mae"] == 0.123456789  # %.9g
    assert (row["window"], row["memory_source"], row["rmse"]) == (120, "estimated", None)
    assert row["recorded_at"].endswith("+00:00")


def test_the_file_is_plain_and_has_the_contract_s_columns(store):
    store.write("mine", {"case": "mine", **ROW})
    data = (store.folder / "mine" / "regression_output.csv").read_bytes()
    assert b"\r" not in data
    assert data.decode("utf-8").splitlines()[0] == ",".join(COLUMNS)
    assert list(pd.read_csv(store.folder / "mine" / "regression_output.csv").columns) == [*COLUMNS]


def test_one_row_per_device_and_others_stay(store):
    store.write("mine", {"case": "mine", **ROW})
    store.write("mine", {"case": "mine", **ROW, "device": "cuda-nvidia-l4", "mae": 2.0})
    old = store.write("mine", {"case": "mine", **ROW, "mae": 3.0})
    assert old["mae"] == 0.123456789
    assert [row["mae"] for row in store.rows("mine")] == [3.0, 2.0]


def test_an_unknown_device_falls_back_on_one_of_its_kind(store):
    store.write("mine", {"case": "mine", **ROW})
    assert store.row("mine", "cpu-avx512")["device"] == "cpu-avx2"
    assert store.row("mine", "cuda-nvidia-l4") is None
    store.write("mine", {"case": "mine", **ROW, "device": "cpu-avx512", "mae": 2.0})
    assert store.row("mine", "cpu-avx512")["mae"] == 2.0


def test_text_stays_text_and_a_mark_at_the_start_is_read_over(store):
    texts = {"torch": "2.9", "precision": "16", "config_sha256": "0123", "parallel": "1"}
    store.write("mine", {"case": "7", **ROW, **texts})
    (row,) = store.rows("mine")
    assert {name: row[name] for name in ("case", *texts)} == {"case": "7", **texts}
    path = store.folder / "mine" / "regression_output.csv"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # as Excel saves
    assert store.rows("mine") == [row]


def test_metrics_of_this_run_are_kept_beside_the_schema(store):
    store.write("mine", {"case": "mine", **ROW, "perplexity": 7.5})
    row = store.row("mine", "cpu-avx2")
    assert metrics_of(row, {"mae": 1.0}) == {"mae": 0.123456789, "perplexity": 7.5}
    expected = {"mae": 0.123456789, "perplexity": 7.5, "rmse": None}
    assert metrics_of(row, {"rmse": 1.0}) == expected
    assert metrics_of({**row, "relative_step_cost": 2.0, "seed": 1}, {"rmse": 1.0}) == expected


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("", "no column case"),
        ("case,device\nmine,cpu\n", "peak_allocated_bytes"),
        (",".join(COLUMNS) + "\n" + "mine,cpu,," + ",".join(["x"] * 24) + "\n", "line 2"),
        (",".join(COLUMNS) + "\n" + "mine," + ",".join([""] * 27) + "\n", "more cells"),
        (b"\xff\xfe\x00", "golden file"),
    ],
)
def test_a_damaged_file_is_named(store, content, named):
    path = store.folder / "mine" / "regression_output.csv"
    path.parent.mkdir(parents=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=named) as caught:
        store.rows("mine")
    assert str(path) in str(caught.value)


def test_a_failing_write_leaves_the_old_file(store, monkeypatch):
    store.write("mine", {"case": "mine", **ROW})
    before = (store.folder / "mine" / "regression_output.csv").read_bytes()

    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", no_space)
    with pytest.raises(OSError, match="No space"):
        store.write("mine", {"case": "mine", **ROW, "mae": 9.0})
    assert (store.folder / "mine" / "regression_output.csv").read_bytes() == before
    assert [path.name for path in (store.folder / "mine").iterdir()] == ["regression_output.csv"]


def test_a_forecast_comes_back(store):
    index = pd.date_range("2024-01-01 09:30", periods=2, freq="5min", name="timestamps")
    frame = pd.DataFrame({"open": [1.5, 2.25], "close": [3.0, math.pi]}, index=index)
    assert store.forecast("mine") is None
    store.write_forecast("mine", frame)
    back = store.forecast("mine")
    pd.testing.assert_frame_equal(back, frame, rtol=1e-8, check_freq=False)


def test_a_damaged_forecast_is_named(store):
    path = store.folder / "mine" / "forecast.csv"
    path.parent.mkdir(parents=True)
    path.write_text("open,close\n1,2\n")
    with pytest.raises(DataError, match="cannot be read as a forecast") as caught:
        store.forecast("mine")
    assert str(path) in str(caught.value)


def test_the_time_of_writing_is_no_change(store):
    store.write("mine", {"case": "mine", **ROW})
    old = store.write("mine", {"case": "mine", **ROW})
    assert describe_changes(old, {"case": "mine", **ROW}) == "nothing moved"


def test_what_moved_is_described():
    assert describe_changes(None, ROW) == "new"
    assert describe_changes(ROW, ROW) == "nothing moved"
    assert describe_changes(ROW, {**ROW, "mae": 0.5}) == "mae 0.123456789 -> 0.5"
    gone = {name: value for name, value in ROW.items() if name != "mae"}
    assert describe_changes(ROW, gone) == "mae 0.123456789 -> -"


NAMES = [
    "a/b",
    "a::b",
    "a",
    "A",
    '["a" "a"]',
    "日本",
    "C:\\x",
    "x" * 100,
    "x" * 300,
    "x" * 301,
    "con",
    "a.",
    "..",
    "",
    " ",
    "nul.txt",
    "a b",
    "a-b",
]


def test_H10_H11_H12_every_name_has_a_folder_of_its_own_valid_everywhere():
    folders = [case_folder(name) for name in NAMES]
    assert len({folder.lower() for folder in folders}) == len(NAMES)
    for folder in folders:
        assert len(folder) <= 80
        assert not set(folder) & set('<>:"/\\|?* ')
        assert not folder.startswith(".")
        assert folder.partition(".")[0] not in {"con", "nul"}
        assert not folder.endswith(".")


@given(st.text(), st.text())
def test_H12_different_names_have_different_folders(one, other):
    same = case_folder(one).lower() == case_folder(other).lower()
    assert same == (one == other)


def test_plain_names_stand_for_themselves():
    assert [case_folder(name) for name in ("baseline", "small-gpu")] == ["baseline", "small-gpu"]


@pytest.mark.parametrize(
    "name",
    [
        *("mae", "rmse", "direction_accuracy", "cumulative_return", "max_drawdown", "sharpe"),
        *("stability", "a_column_of_one_s_own"),
    ],
)
def test_a_metric_of_the_golden_counts_where_the_run_does_not_speak_of_it(name):
    row = {**dict.fromkeys(COLUMNS), "batch_size": 8, "steps_per_hour": 9.0, name: 1}
    assert metrics_of(row, {}) == {name: 1.0}

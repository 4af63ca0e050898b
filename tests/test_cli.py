"""The command line, from its arguments to exit status, stdout, stderr and files."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from kronos import __version__
from kronos.cli import main
from kronos.data.columns import FEATURES
from kronos.hardware import CATALOGUE, GIB, LiveGpu


class Done(NamedTuple):
    status: int
    out: str
    err: str


def kronos(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["kronos", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
    return Done(caught.value.code or 0, out.getvalue(), err.getvalue())


def _refused(*arguments, status=2):
    """The one line on stderr of a command that fails and prints nothing else."""
    done = kronos(*arguments)
    assert (done.status, done.out) == (status, "")
    assert done.err.endswith("\n")
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith("kronos: ")
    return done.err


def _bars(stamps, path):
    close = 50 + 5 * np.sin(np.arange(len(stamps)) / 5)
    prices = {"open": close, "high": close + 1, "low": close - 1, "close": close}
    frame = pd.DataFrame({"timestamps": stamps, **prices, "volume": close * 10})
    frame.to_csv(path, index=False)
    return path


def _sets(*settings):
    return [word for setting in settings for word in ("--set", setting)]


SMALL = _sets(
    *("training.window=8", "training.horizon=2", "training.batch_size=4", "training.steps=2"),
    *("model.pretrained=null", "model.tokenizer.n_enc_layers=2", "model.forecaster.n_layers=1"),
)


@pytest.fixture(scope="module")
def bars(tmp_path_factory):
    days = pd.bdate_range("2024-01-01", periods=60)
    return _bars(days, tmp_path_factory.mktemp("bars") / "bars.csv")


@pytest.fixture(scope="module")
def trained(bars, tmp_path_factory):
    """The folder of a run and what training it printed."""
    out = tmp_path_factory.mktemp("runs")
    done = kronos("train", "baseline", "--bars", bars, "--out", out, "--json", *SMALL)
    assert (done.status, done.err) == (0, "")
    return out / "baseline", done.out


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path  # empty


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_names_the_commands_and_each_has_json(arguments):
    done = kronos(*arguments)
    assert (done.status, done.err) == (0, "")
    for command in ("train", "predict", "gpus"):
        assert command in done.out
        assert "--json" in kronos(command, "--help").out


def test_version():
    assert kronos("--version") == (0, f"kronos {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nosuch"], "'nosuch'"),
        (["--nosuch"], "--nosuch"),
        (["predict"], "--horizon"),
        (["predict", "--horizon", "three"], "--horizon"),
        (["train"], "config"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(arguments, part):
    err = _refused(*arguments)
    assert part.lower() in err.lower()
    assert err.endswith("; see kronos --help\n")


def test_the_process_itself_ends_with_one_line_and_status_2(here):
    code = "from kronos.cli import main; main()"
    command = [sys.executable, "-c", code, "train", "nosuch"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kronos: no recipe 'nosuch'")
    assert len(done.stderr.splitlines()) == 1


SIZES = {"memory_total": 12 * GIB, "memory_used": None}
GPU = LiveGpu(index=0, name="Card", uuid="GPU-1", utilisation=None, **SIZES)


@pytest.mark.parametrize("live", [([], "NVML: no driver"), ([GPU], None)])
def test_gpus_lists_this_machine_and_the_catalogue(monkeypatch, live):
    monkeypatch.setattr("kronos.hardware.live_gpus", lambda: live)
    text, data = kronos("gpus"), kronos("gpus", "--json")
    assert (text.status, text.err, data.status, data.err) == (0, "", 0, "")
    assert all(slug in text.out for slug in CATALOGUE)
    assert ("NVML: no driver" if live[1] else "12.00 GiB") in text.out
    values = json.loads(data.out)
    assert values["reason"] == live[1]
    assert [card["slug"] for card in values["catalogue"]] == [*CATALOGUE]
    assert all(gpu.items() >= SIZES.items() for gpu in values["live"])
    assert len(values["live"]) == len(live[0])


def test_training_writes_both_models_and_says_where(trained):
    folder, printed = trained
    results = json.loads(printed)
    assert [result["part"] for result in results] == ["tokenizer", "basemodel"]
    for result in results:
        best = folder / result["part"] / "best_model"
        assert Path(result["folder"]) == best
        assert sorted(os.listdir(best)) == ["config.json", "model.safetensors"]
        assert result["best_validation"] <= result["first_validation"]


def test_training_from_a_yaml_reads_as_text(bars, here):
    (here / "mine.yaml").write_text("recipe: small-gpu\nname: mine\n", encoding="utf-8")
    done = kronos("train", "mine.yaml", "--model", "tiny", "--bars", bars, *SMALL)
    assert (done.status, done.err) == (0, "")
    tokenizer, forecaster = done.out.splitlines()
    assert tokenizer.startswith("tokenizer: validation loss ")
    assert forecaster.endswith(str(Path("runs", "mine", "basemodel", "best_model")))
    assert (here / "runs" / "mine" / "basemodel" / "best_model" / "config.json").is_file()


def test_a_run_that_fails_ends_in_one_line_and_status_1(bars, here):
    wild = _sets("training.learning_rate=1e30")
    err = _refused("train", "baseline", "--bars", bars, *SMALL, *wild, status=1)
    assert "learning_rate" in err


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["nosuch"], ["no recipe 'nosuch'", "baseline"]),
        (["absent.yaml"], ["absent.yaml", "No such file"]),
        (["baseline", "--model", "huge"], ["no model shape 'huge'"]),
        (["baseline", "--set", "training.batchsize=1"], ["training.batch_size"]),
        (["baseline", "--set", "training.batch_size=none"], ["training.batch_size", "'none'"]),
        (["baseline", "--set", "training.steps"], ["section.setting=value"]),
        (["baseline", "--bars", "absent\nfile.csv"], ["absent file.csv", "No such file"]),
        (["baseline", "--bars", "."], ["no files of bars in the folder .", ".csv"]),
        (["baseline", "--device", "abacus"], ["--device", "'abacus'"]),
        (["baseline", *SMALL, "--set", "training.batch_size=99999"], ["batch_size 99999"]),
        (["baseline", *SMALL, "--set", "training.window=99999"], ["window 99999"]),
        (["baseline", *SMALL, "--set", "model.forecaster.n_heads=3"], ["n_heads", "64 / 3"]),
        (["baseline", "--set", "model.pretrained=nowhere"], ["nowhere"]),
    ],
)
def test_training_refuses_bad_input_and_leaves_nothing(here, arguments, parts):
    err = _refused("train", *arguments)
    assert [part for part in parts if part not in err] == []
    assert os.listdir(here) == []


HEADER = "timestamps,open,high,low,close\n"
DAY_ONE, DAY_TWO = "2024-01-01,2,3,1,2\n", "2024-01-02,2,3,1,2\n"
BAD_BARS = {
    "empty": (b"", ["is empty"]),
    "binary": (b"\xff\xff\x00\x01", ["0xff", "line 1"]),
    "no rows": (HEADER.encode(), ["no rows"]),
    "no close": (b"timestamps,open,high,low\n2024-01-01,2,3,1\n", ["no column close"]),
    "NaN": (f"{HEADER}{DAY_ONE}2024-01-02,2,3,nan,2\n".encode(), ["low", "row 2", "line 3"]),
    "empty cell": (f"{HEADER}{DAY_ONE}2024-01-02,,3,1,2\n".encode(), ["open", "row 2"]),
    "date": (f"{HEADER}{DAY_ONE}yesterday,2,3,1,2\n".encode(), ["timestamps", "row 2"]),
    "order": (f"{HEADER}{DAY_TWO}{DAY_ONE}".encode(), ["timestamps", "row 2", "earlier"]),
}


@pytest.mark.parametrize("fault", BAD_BARS)
def test_bad_bars_are_told_by_file_column_and_row_and_nothing_is_left(here, trained, fault):
    content, parts = BAD_BARS[fault]
    (here / "bad.csv").write_bytes(content)
    for command in (
        ["train", "baseline", *SMALL],
        ["predict", "--model", trained[0], "--horizon", "3", "--out", "forecast.csv"],
    ):
        err = _refused(*command, "--bars", "bad.csv")
        assert [part for part in ("bad.csv", *parts) if part not in err] == []
        assert os.listdir(here) == ["bad.csv"]


def _predict(trained, bars, *arguments):
    return "predict", "--model", trained[0], "--bars", bars, "--horizon", "3", *arguments


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--horizon", "0"], ["--horizon must be at least 1, got 0"]),
        (["--window", "0"], ["--window must be at least 1, got 0"]),
        (["--paths", "0"], ["--paths must be at least 1, got 0"]),
        (["--horizon", "99999999999"], ["99999999999 > 512"]),
        (["--temperature", "nan"], ["T must be", "nan"]),
        (["--top-p", "2"], ["top_p", "2"]),
        (["--model", "nowhere"], ["nowhere", "config.json"]),
        (["--device", "abacus"], ["--device", "'abacus'"]),
    ],
)
def test_predicting_refuses_bad_settings_and_leaves_nothing(here, trained, bars, arguments, parts):
    err = _refused(*_predict(trained, bars, "--out", "forecast.csv", *arguments))
    assert [part for part in parts if part not in err] == []
    assert os.listdir(here) == []


def _csv(text):
    return pd.read_csv(io.StringIO(text), index_col="timestamps", parse_dates=True)


def test_a_forecast_reads_back_from_csv_and_json(trained, bars):
    text, data = (kronos(*_predict(trained, bars, *how)) for how in ([], ["--json"]))
    assert (text.status, text.err, data.status, data.err) == (0, "", 0, "")
    forecast = _csv(text.out)
    assert [*forecast.columns] == [*FEATURES]
    assert [*forecast.index] == [*pd.bdate_range("2024-03-25", periods=3)]
    assert np.isfinite(forecast).all(axis=None)
    rows = json.loads(data.out)["data"]
    assert [pd.Timestamp(row["timestamps"]) for row in rows] == [*forecast.index]
    for name in FEATURES:
        assert [row[name] for row in rows] == pytest.approx(forecast[name].tolist(), rel=1e-6)


def test_a_seed_fixes_the_forecast_and_another_changes_it(trained, bars):
    first, again, other, averaged = (
        kronos(*_predict(trained, bars, *how)).out
        for how in ([], ["--seed", "0"], ["--seed", "1"], ["--paths", "3"])
    )
    assert first == again
    assert len({first, other, averaged}) == 3


def test_out_writes_the_very_text_and_prints_nothing(here, trained, bars):
    printed = kronos(*_predict(trained, bars)).out
    path = Path("new", "forecast.csv")
    assert kronos(*_predict(trained, bars, "--out", path)) == (0, "", "")
    assert path.read_bytes() == printed.encode()
    assert os.listdir(here / "new") == ["forecast.csv"]


def test_a_forecast_that_cannot_be_written_leaves_the_old(here, trained, bars, monkeypatch):
    (here / "forecast.csv").write_text("old", encoding="utf-8")

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kronos.files.os.replace", full)
    err = _refused(*_predict(trained, bars, "--out", "forecast.csv"))
    assert err == "kronos: forecast.csv: No space left on device\n"
    assert (here / "forecast.csv").read_text(encoding="utf-8") == "old"
    assert os.listdir(here) == ["forecast.csv"]
    assert str(here) in _refused(*_predict(trained, bars, "--out", here))


def test_a_short_window_still_knows_the_sessions_of_the_whole_file(here, trained):
    hours = pd.date_range("2024-01-01", periods=24 * 30, freq="h")
    session = hours[(hours.day_of_week < 5) & (hours.hour >= 10) & (hours.hour < 15)]
    path = _bars(session[:-3], here / "hours.csv")
    done = kronos(*_predict(trained, path, "--window", "2", "--horizon", "8"))
    future = _csv(done.out).index
    assert [*future[:3]] == [*session[-3:]]
    assert [stamp.hour for stamp in future[3:]] == [10, 11, 12, 13, 14]
    assert future[3].date() == session[-1].date() + pd.Timedelta(days=1)

"""`kronos predict`: paths, quantiles, calendars, pictures, and models from anywhere."""

import io
import os
import shutil
import socket
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kronos.checkpoint import FORECASTER, TOKENIZER, best_model, run_folder
from kronos.cli import main
from kronos.data.columns import FEATURES

pytestmark = pytest.mark.usefixtures("one_thread", "here")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def predict(*arguments):
    """Exit status, stdout and stderr of a forecast of three bars from twenty."""
    words = ["kronos", "predict", "--horizon", "3", "--window", "20", *map(str, arguments)]
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as caught:
            main()
    return caught.value.code or 0, out.getvalue(), err.getvalue()


def forecast(*arguments):
    status, out, err = predict(*arguments)
    assert (status, err) == (0, "")
    return pd.read_csv(io.StringIO(out), index_col="timestamps", parse_dates=True)


def test_quantiles_are_more_columns_about_the_same_mean():
    plain = forecast("--paths", "5")
    spread = forecast("--paths", "5", "--quantiles", "0.1,0.5,0.9")
    assert spread[[*FEATURES]].equals(plain)
    assert [name for name in spread if name.startswith("close_")] == [
        "close_q0.1",
        "close_q0.5",
        "close_q0.9",
    ]
    assert (spread["close_q0.1"] <= spread["close_q0.9"]).all()


def test_settings_reach_the_forecast():
    drawn = forecast("--temperature", "3", "--paths", "2")
    assert not drawn.equals(forecast("--temperature", "3", "--paths", "2", "--top-k", "1"))
    assert forecast("--top-k", "1").equals(forecast("--temperature", "0"))
    repaired = forecast("--temperature", "5", "--repair-ohlc", "--clip-volume")
    assert (repaired["high"] >= repaired[["open", "close"]].max(axis=1)).all()
    assert (repaired[["volume", "amount"]] >= 0).all(axis=None)
    whole = forecast("--temperature", "0")
    assert not whole.equals(forecast("--temperature", "0", "--max-context", "8"))
    few = "--temperature", "3", "--max-context", "4"
    assert not forecast(*few).equals(forecast(*few, "--context-stride", "3"))
    many = "--temperature", "3", "--paths", "20"
    assert not forecast(*many).equals(forecast(*many, "--precision", "bfloat16"))


def test_D4_holidays_have_no_bars(here):
    (here / "closed.txt").write_text("# Easter\n2013-03-05\n\n2013-03-06  # a Wednesday\n")
    plain = [*forecast().index.strftime("%m-%d")]
    closed = [*forecast("--holidays", "closed.txt").index.strftime("%m-%d")]
    assert plain == ["03-04", "03-05", "03-06"]
    assert closed == ["03-04", "03-07", "03-08"]


@pytest.mark.parametrize("name", ["forecast.png", "forecast.html"])
@pytest.mark.parametrize("how", [[], ["--paths", "3"]])
def test_a_picture_beside_the_same_csv(here, name, how):
    pytest.importorskip("matplotlib")
    pytest.importorskip("plotly")
    text = predict(*how)
    assert predict(*how, "--plot", name) == text
    assert os.listdir(here) == [name]
    if name.endswith("html"):
        page = Path(name).read_text(encoding="utf-8")
        assert ("10 % to 90 % of the paths" in page) == bool(how)
        assert "ibm: 3 bars ahead, " + ("mean of 3 paths" if how else "one path") in page


def test_the_quantiles_asked_for_are_drawn():
    pytest.importorskip("plotly")
    predict("--paths", "3", "--quantiles", "0.25,0.75", "--plot", "forecast.html")
    page = Path("forecast.html").read_text(encoding="utf-8")
    assert "25 % to 75 % of the paths" in page
    assert "10 % to 90 %" not in page


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--quantiles", "0.1,x", "--paths", "2"], ["--quantiles", "'0.1,x'", "0.1,0.5,0.9"]),
        (["--quantiles", "0.1,9", "--paths", "2"], ["between 0 and 1", "9"]),
        (["--quantiles", "0.5"], ["--quantiles take --paths 2 or more, got 1"]),
        (["--plot", "forecast.gif"], [".png, .svg or .html", "forecast.gif"]),
        (["--precision", "int8"], ["precision", "int8", "bfloat16"]),
        (["--context-stride", "0"], ["context_stride", "0"]),
        (["--max-context", "0"], ["max_context", "0"]),
        (["--top-k", "-1"], ["top_k", "-1"]),
        (["--holidays", "days.txt"], ["days.txt, line 2: '25/12/2026' is no day", "2026-12-25"]),
        (["--holidays", "none.txt"], ["none.txt", "No such file"]),
        (["--model", "nowhere"], ["no model 'nowhere'", "config.json", "owner/name"]),
        (["--model", "."], ["no tokenizer is known", "--tokenizer"]),
    ],
)
def test_bad_settings_are_one_line_and_leave_nothing(here, arguments, parts):
    (here / "days.txt").write_text("2026-12-24\n25/12/2026\n")
    status, out, err = predict("--out", "new.csv", *arguments)
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert [part for part in parts if part not in err] == []
    assert os.listdir(here) == ["days.txt"]


def test_a_picture_that_cannot_be_drawn_keeps_the_forecast(here):
    pytest.importorskip("plotly")
    (here / "taken.html").mkdir()
    status, _, err = predict("--out", "new.csv", "--plot", "taken.html")
    assert (status, len(err.splitlines())) == (2, 1)
    assert "taken.html" in err
    assert len(pd.read_csv("new.csv")) == 3
    assert os.listdir("taken.html") == []


def test_a_local_folder_needs_no_hub(here, monkeypatch):
    for name, part in (("model", FORECASTER), ("tokens", TOKENIZER)):
        shutil.copytree(best_model(run_folder("tiny"), part), here / name)
    monkeypatch.setattr("kronos.model.hub.get_hf_file_metadata", None)
    local = forecast("--model", here / "model", "--tokenizer", here / "tokens")
    assert np.array_equal(local, forecast())


def test_M8_a_hub_that_is_silent_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        words = [sys.executable, "-c", "from kronos.cli import main; main()"]
        done = subprocess.run(
            [*words, "predict", "--horizon", "3", "--model", "NeoQuasar/Kronos-small"],
            env=os.environ | {"HF_ENDPOINT": address, "HF_HUB_CACHE": str(Path.cwd())},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "config.json not found: 'NeoQuasar/Kronos-small' is no folder here" in done.stderr
    assert "the hub cannot be reached" in done.stderr

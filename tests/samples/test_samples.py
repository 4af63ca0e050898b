"""The sample bars are the file that PROVENANCE.md describes, and they validate."""

import gzip
import hashlib
import runpy
from pathlib import Path

import numpy as np
import pytest

from kronos.checkpoint import build_models
from kronos.data import read_bars
from kronos.recipes import baseline, tiny_pretraining
from kronos.samples import ibm_daily, tiny_run

PROVENANCE = ibm_daily().parent / "PROVENANCE.md"


def test_ibm_daily_reads_as_3270_valid_bars():
    bars = read_bars(ibm_daily())
    assert len(bars) == 3270
    assert str(bars.index[0]) == "2000-03-01 00:00:00"
    assert str(bars.index[-1]) == "2013-03-01 00:00:00"
    first = bars.iloc[0]
    assert first.tolist()[:5] == [102.0, 105.5, 100.06, 100.25, 10807800.0]
    assert first["amount"] == pytest.approx(10807800 * (102.0 + 105.5 + 100.06 + 100.25) / 4)


def test_ibm_daily_holds_no_split():
    close = read_bars(ibm_daily())["close"].to_numpy()
    assert np.abs(np.diff(np.log(close))).max() < 0.2


def test_provenance_states_the_digests():
    packed = ibm_daily().read_bytes()
    stated = PROVENANCE.read_text(encoding="utf-8")
    assert hashlib.sha256(packed).hexdigest() in stated
    assert hashlib.sha256(gzip.decompress(packed)).hexdigest() in stated


def test_packed_file_holds_neither_time_nor_name_nor_carriage_returns():
    packed = ibm_daily().read_bytes()
    assert packed[3] == 0, "no file name in the gzip header"
    assert packed[4:8] == b"\0\0\0\0", "no time in the gzip header"
    text = gzip.decompress(packed)
    assert b"\r" not in text
    assert text.startswith(b"timestamps,open,high,low,close,volume\n")


def test_script_makes_the_shipped_text_again():
    source = pytest.importorskip("bokeh_sampledata")
    script = Path(__file__).parents[2] / "benchmarks" / "make_ibm_sample.py"
    made = runpy.run_path(str(script))
    packed = (Path(source.__file__).parent / "_data" / "stocks.csv.gz").read_bytes()
    if made["sha256"](packed) != made["SOURCE_SHA256"]:
        pytest.skip("another release of bokeh_sampledata is installed")
    text = made["ibm_text"](gzip.decompress(packed).decode("utf-8"))
    assert text.encode("utf-8") == gzip.decompress(ibm_daily().read_bytes())


@pytest.mark.parametrize("part", ["tokenizer", "basemodel"])
def test_the_tiny_weights_are_the_stated_ones_and_small(part):
    assert tiny_run() == ibm_daily().parent / "tiny"
    weights = tiny_run() / part / "best_model" / "model.safetensors"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() in PROVENANCE.read_text("utf-8")
    everything = sum(path.stat().st_size for path in tiny_run().rglob("*") if path.is_file())
    assert everything < 2_000_000


def test_the_tiny_weights_fit_the_recipe_they_were_made_by():
    made_by, used_by = tiny_pretraining().model, baseline().model
    assert made_by.pretrained is None
    assert made_by.model_copy(update={"pretrained": "tiny"}) == used_by
    build_models(used_by, device="cpu", seed=0)  # strict: every tensor, every shape

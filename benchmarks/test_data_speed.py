"""Bars in, batches out: what it costs, side by side with the reference's way, in one run.

Run with `tox -e bench -- benchmarks/test_data_speed.py -rP`, which prints the figures that are no
times; it takes about two minutes. Compare the figures of one run only: the table gives each as a
multiple of the fastest one of its group.

The reference is the published way of drawing items, restated: each item is a slice of a DataFrame,
its feature and time columns taken by name, normalised, and made two tensors, which the loader
stacks.
"""

import json
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from kronos.checkpoint import build_models
from kronos.data import Market, Windows, load_market
from kronos.data.columns import FEATURES
from kronos.data.mapped import open_market, write_market
from kronos.data.synthetic import synthetic_market
from kronos.data.timestamps import STAMPS, stamp_columns
from kronos.recipes import baseline, model_shape
from kronos.train.data import load_data
from kronos.train.feed import BarSource, Feed
from kronos.train.phase import forecaster_phase
from kronos.train.tokens import token_table

WINDOW, HORIZON, BATCH = 90, 10, 50
LENGTH = WINDOW + HORIZON + 1
MIB = 2**20


@pytest.fixture(scope="module")
def market():
    return synthetic_market(4, 25_000, seed=0)


class Reference:
    """The reference's way, over one series."""

    def __init__(self, market: Market) -> None:
        self.bars = market.frame(market.symbols[0])
        self.bars[list(STAMPS)] = stamp_columns(self.bars.index)
        self.draw = np.random.default_rng(0)

    def item(self):
        first = int(self.draw.integers(len(self.bars) - LENGTH + 1))
        window = self.bars.iloc[first : first + LENGTH]
        features = window[list(FEATURES)].to_numpy().astype(np.float32)
        stamps = window[list(STAMPS)].to_numpy().astype(np.float32)
        mean, std = features.mean(axis=0), features.std(axis=0)
        scaled = np.clip((features - mean) / (std + 1e-5), -5, 5)
        return torch.from_numpy(scaled), torch.from_numpy(stamps)

    def batch(self):
        features, stamps = zip(*(self.item() for _ in range(BATCH)), strict=True)
        return torch.stack(features), torch.stack(stamps)


def feed_over(market, **options):
    windows = Windows(market, WINDOW, HORIZON)
    training = baseline().training.model_copy(update={"batch_size": BATCH})
    return Feed(BarSource(windows, windows.starts), training, "cpu", **options)


@pytest.mark.parametrize("who", ["kronos", "kronos, mapped file", "reference"])
def test_batch(benchmark, market, tmp_path, who):
    benchmark.group = f"one batch of {BATCH} windows of {LENGTH} bars, one process"
    if who == "reference":
        benchmark.pedantic(Reference(market).batch, rounds=30, warmup_rounds=3)
        return
    if who != "kronos":
        write_market(tmp_path / "m.bars", market)
        market = open_market(tmp_path / "m.bars")
    feed = feed_over(market)
    benchmark.pedantic(feed.take, args=(1,), rounds=400, warmup_rounds=20)


@pytest.fixture(scope="module")
def million(tmp_path_factory):
    """A CSV of a million bars of 20 symbols."""
    market = synthetic_market(20, 50_000, seed=0)
    frames = [market.frame(name).assign(symbol=name) for name in market.symbols]
    path = tmp_path_factory.mktemp("million") / "bars.csv"
    for number, frame in enumerate(frames):
        frame.to_csv(path, mode="a", header=number == 0, float_format="%.9g")
    return path


@pytest.mark.parametrize("start", ["second", "first"])
def test_start(benchmark, million, tmp_path, start):
    benchmark.group = "a million bars of CSV, read and checked, or opened from the cache"
    fresh = iter(range(99))
    if start == "second":
        load_market(million, cache=tmp_path)
    rounds = {"first": 3, "second": 10}[start]

    def folder():
        return (million,), {"cache": tmp_path / str(next(fresh)) if start == "first" else tmp_path}

    loaded = benchmark.pedantic(load_market, setup=folder, rounds=rounds)
    assert loaded.how == {"first": "written", "second": "cached"}[start]
    assert len(loaded.market) == 1_000_000


TEN_MILLION = """
import json, sys, time
from pathlib import Path
from kronos.data import load_market
from kronos.train.feed import BarSource, Feed
from kronos.data import Windows, split_by_time
from kronos.recipes import baseline

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

Path("/proc/self/clear_refs").write_text("5")  # VmHWM, the most ever resident, starts anew
before, clock = status("VmRSS"), time.perf_counter()
market = load_market(sys.argv[1]).market
seconds = time.perf_counter() - clock
windows = Windows(market, 90, 10)
split = split_by_time(windows, validation_share=0.1)
feed = Feed(BarSource(windows, split.train), baseline().training, "cpu")
clock = time.perf_counter()
for _ in range(1000):
    feed.take(1)
batches = 1000 / (time.perf_counter() - clock)
print(json.dumps({"bars": len(market), "symbols": len(market.symbols), "open": seconds,
                  "growth": status("VmHWM") - before, "batches": batches}))
"""


def test_ten_million_bars(tmp_path):
    path = tmp_path / "ten.bars"
    write_market(path, synthetic_market(200, 50_000, seed=0))
    done = subprocess.run(
        [sys.executable, "-c", TEN_MILLION, path], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert (found["bars"], found["symbols"]) == (10_000_000, 200)
    print(
        f"ten million bars of 200 symbols, {path.stat().st_size / MIB:.0f} MiB: opened in "
        f"{found['open']:.2f} s; over 1,000 batches the process grew by "
        f"{found['growth'] / MIB:.0f} MiB at most; {found['batches']:.0f} batches a second"
    )


@pytest.fixture
def run(tmp_path):
    """Fine-tuning of the mini shape on made-up bars."""
    write_market(tmp_path / "m.bars", synthetic_market(4, 1_000, seed=0))
    config = baseline("mini").with_overrides(
        [f"data.bars={tmp_path / 'm.bars'}", "training.batch_size=16"]
    )
    models = build_models(model_shape("mini"), device="cpu", seed=0)
    return config, models, load_data(config)


def test_waiting_for_data(run):
    config, models, data = run
    phase = forecaster_phase(models, data, config.training)
    phase()
    waited, start = phase.feed.seconds_waited, time.perf_counter()
    for _ in range(8):
        phase()
    seconds = time.perf_counter() - start
    share = (phase.feed.seconds_waited - waited) / seconds
    print(f"mini shape, batch 16: {seconds / 8:.2f} s a step, {share:.3%} of it waiting for data")


@pytest.mark.parametrize("tokens", ["made once", "made for every batch"])
def test_step(benchmark, run, tmp_path, tokens):
    benchmark.group = "one step of the mini shape, batch 16"
    config, models, data = run
    table = token_table(models.tokenizer, data.windows, tmp_path) if "once" in tokens else None
    phase = forecaster_phase(models, data, config.training, table)
    benchmark.pedantic(phase, rounds=8, warmup_rounds=1)

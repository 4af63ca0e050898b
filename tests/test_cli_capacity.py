"""`kronos estimate` and `kronos snapshot`, from their arguments to what they print."""

import io
import json
import pickle
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest

from kronos.cli import main
from kronos.hardware import CATALOGUE, DEFAULT_CONTEXT, GIB, MIB
from kronos.report import estimate_text

SMALL = tuple(
    "baseline --set training.batch_size=4 --set training.window=24 "
    "--set model.tokenizer.n_enc_layers=2 --set model.forecaster.n_layers=1".split()
)


def run(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["kronos", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
    return caught.value.code or 0, out.getvalue(), err.getvalue()


def values(*arguments):
    status, out, _ = run(*arguments, "--json")
    assert status == 0
    return json.loads(out)


def refused(*arguments):
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    return err


def test_the_breakdown_stands_beside_the_rule_of_thumb():
    status, out, _ = run("estimate", *SMALL, "--gpu", "rtx-3080-12gb")
    assert status == 0
    for part in ("activations", "fragmentation", "CUDA context", "footprint", "left out"):
        assert part in out
    assert "leaves out activations, temporaries, workspaces, fragmentation" in out
    assert "fits 12.00 GiB" in out
    assert "NVIDIA GeForce RTX 3080: estimated, no card was used" in out


def test_the_figures_agree_with_each_other():
    (one,) = values("estimate", *SMALL, "--gpu", "t4")
    assert sum(one["breakdown"].values()) == one["reserved"]
    assert one["footprint"] == one["reserved"] + DEFAULT_CONTEXT
    assert one["allocated"] <= one["reserved"]
    assert one["allocated"] + DEFAULT_CONTEXT <= one["smallest_budget"] <= one["footprint"]
    thumb = one["rule_of_thumb"]
    weights = one["breakdown"]["parameters"]
    assert thumb == {
        "weights": weights,
        "inputs": 24 * 4 * 6 * 4,
        "optimizer": 3 * weights,
        "total": 4 * weights + 24 * 4 * 6 * 4,
    }
    assert (one["card"], one["budget"]) == ("Tesla T4", CATALOGUE["t4"].memory)
    assert (one["fits"], one["outcome"]["fit"]) == (True, "fits")
    assert "remedies" not in one


def test_a_budget_beats_the_card_s_memory_and_none_judges_nothing():
    (capped,) = values("estimate", *SMALL, "--gpu", "h100", "--budget", "12GB")
    assert (capped["budget"], capped["card"]) == (12 * GIB, "NVIDIA H100 80GB HBM3")
    assert capped["breakdown"]["workspaces"] == 2 * 33_554_432
    (free,) = values("estimate", *SMALL)
    assert (free["budget"], free["outcome"], free["card"]) == (None, None, None)
    assert " fits" not in run("estimate", *SMALL)[1]


def test_several_batches_are_compared():
    both = values("estimate", *SMALL, "--batch-size", "2", "--batch-size", "8")
    assert [one["batch_size"] for one in both] == [2, 8]
    assert both[0]["allocated"] < both[1]["allocated"]
    status, out, _ = run("estimate", *SMALL, "--batch-size", 2, "--batch-size", 8, "--gpu", "t4")
    assert status == 0
    assert len(out.splitlines()) == 4
    assert out.count("fits 15.00 GiB") == 2


TIGHT = f"{DEFAULT_CONTEXT // MIB + 40}MB"


def test_what_does_not_fit_gets_remedies_that_were_traced():
    (one,) = values("estimate", *SMALL, "--batch-size", 64, "--budget", TIGHT)
    assert not one["fits"]
    assert one["outcome"]["missing"] > 0
    assert one["outcome"]["operation"].startswith("aten.")
    by_name = {remedy["name"]: remedy for remedy in one["remedies"]}
    assert set(by_name) == {
        *("checkpointing", "mixed precision", "fused optimizer", "accumulation"),
        *("expandable segments", "largest batch"),
    }
    halved = by_name["accumulation"]
    assert halved["change"] == "training.batch_size=32 training.accumulation=2"
    assert halved["footprint"] < one["footprint"]
    largest = by_name["largest batch"]["batch_size"]
    assert 1 < largest < 64
    tried = [
        values("estimate", *SMALL, "--budget", TIGHT, "--batch-size", largest)[0],
        values("estimate", *SMALL, "--batch-size", largest + 1)[0],
    ]
    assert tried[0]["fits"]
    assert tried[1]["smallest_budget"] > int(TIGHT[:-2]) * MIB
    text = estimate_text([one])
    assert "does not fit" in text
    assert f"training.batch_size={largest}" in text


def test_not_even_one_sample_may_fit():
    (one,) = values("estimate", *SMALL, "--budget", "1GB")  # less than the CUDA context
    assert one["remedies"][-1] == {"name": "largest batch", "batch_size": None}
    text = estimate_text([one])
    assert "does not fit 1.00 GiB: the CUDA context alone takes more" in text
    assert "not even a batch of 1 fits" in text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--gpu", "rtx-3080-12g"), "rtx-3080-12gb"),
        (("--budget", "12 potatoes"), "12 potatoes"),
        (("--batch-size", "0"), "--batch-size must be at least 1"),
        (("--picture", "memory.doc"), "memory.doc"),
    ],
)
def test_bad_input_is_one_line(arguments, named):
    assert named in refused("estimate", *SMALL, *arguments)


def dumped(path, sizes=(30 * MIB, 34 * MIB)):
    """A snapshot of a run that held one block after the other, in segments of their own."""
    trace, address = [], 1 << 30
    for size in sizes:
        address += 1 << 28
        common = {"addr": address, "size": size, "stream": 0}
        actions = ("segment_alloc", "alloc", "free_requested", "free_completed")
        trace += [{"action": action, **common} for action in actions]
    segments = [
        {
            "device": 0,
            "address": (1 << 30) + (number + 1) * (1 << 28),
            "total_size": size,
            "stream": 0,
            "segment_type": "large",
            "blocks": [{"size": size, "state": "inactive", "requested_size": 0}],
        }
        for number, size in enumerate(sizes)
    ]
    path.write_bytes(pickle.dumps({"segments": segments, "device_traces": [trace]}, 4))
    return path


def test_a_snapshot_tells_its_peaks_and_whether_it_would_have_fit(tmp_path):
    path = dumped(tmp_path / "run.pickle")
    budget = f"{DEFAULT_CONTEXT // MIB + 40}MB"
    (device,) = values("snapshot", path, "--budget", budget, "--expandable-segments")
    fixed, expandable = device["answers"]
    assert (fixed["peak_allocated"], fixed["peak_reserved"]) == (34 * MIB, 64 * MIB)
    assert fixed["fits"] is True
    assert fixed["flushes"] == 1
    assert expandable["peak_reserved"] == 40 * MIB
    assert expandable["flushes"] == 0
    out = run("snapshot", path, "--budget", budget, "--expandable-segments")[1]
    assert "would have fit" in out
    assert "flushing the cache 1 times" in out
    assert "with expandable segments" in out
    tight = run("snapshot", path, "--budget", f"{DEFAULT_CONTEXT // MIB + 32}MB")[1]
    assert "would not have fit" in tight
    assert "2.00 MiB missing" in tight


def test_a_snapshot_without_a_budget_shows_its_peaks(tmp_path):
    out = run("snapshot", dumped(tmp_path / "run.pickle"))[1]
    assert "allocated 34.00 MiB, reserved 64.00 MiB" in out
    assert "fit" not in out


class _Runs:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), "w")


def test_a_snapshot_that_runs_code_is_refused_and_runs_nothing(tmp_path):
    path, marker = tmp_path / "evil.pickle", tmp_path / "marker"
    path.write_bytes(pickle.dumps({"segments": _Runs(marker)}))
    assert "snapshot" in refused("snapshot", path)
    assert not marker.exists()


def test_no_snapshot_at_all(tmp_path):
    assert "missing.pickle" in refused("snapshot", tmp_path / "missing.pickle")
    text = tmp_path / "bars.csv"
    text.write_text("timestamps,open\n")
    assert "_dump_snapshot" in refused("snapshot", text)

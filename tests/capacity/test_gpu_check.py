"""The script that holds the estimates against a card, as far as it goes without one."""

import csv
import gzip
import importlib.util
import itertools
import math
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kronos.hardware import CATALOGUE, MIB, live_gpus, process_footprint

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu_check.py"
SMALLEST = ["tiny-3x120", "tiny-3x333"]
FIRST = SMALLEST[0]
COLUMNS = [
    *("case", "shape", "batch_size", "window", "precision", "checkpointing", "optimizer"),
    *("attention", "card", "torch"),
    *("estimated_allocated_bytes", "allocated_bytes", "allocated_error"),
    *("estimated_reserved_bytes", "reserved_bytes", "reserved_error"),
    *("estimated_footprint_bytes", "footprint_bytes", "context_bytes", "seconds"),
]
WITHOUT_PACKAGES = """
import runpy, sys

_, packages, *sys.argv = sys.argv

class Hidden:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in packages.split():
            return None
        return self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Hidden, sys.meta_path)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
ABSENT = "huggingface_hub pydantic pynvml pytest rich safetensors tabulate typer yaml"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def dry(script, tmp_path_factory):
    """The table of a dry run over the smallest cases."""
    out = tmp_path_factory.mktemp("dry") / "table.csv"
    arguments = ["--dry-run", "--gpu", "h200", "--only", *SMALLEST, "--out", str(out)]
    assert script.main(arguments) == 0
    return out


@pytest.fixture
def rehearsal(script, monkeypatch, one_thread):
    """rehearsal(*arguments): rows run on the CPU, of which a made-up card tells the memory."""

    class Card:
        name = "NVIDIA H200"

        def __init__(self, index, *, nvml):
            self.peaks = iter([100 * MIB, 50 * MIB])

        def start_peaks(self):
            self.peak = next(self.peaks)

        def synchronize(self):
            pass

        def flushes(self):
            return 0

        def peak_allocated(self):
            return self.peak

        def peak_reserved(self):
            return self.peak + 2 * MIB

        def context(self):
            return 500 * MIB, None

    asked = itertools.count(step=1000)
    monkeypatch.setattr(script, "CudaCard", Card)
    monkeypatch.setattr(script, "DEVICE", "cpu")
    monkeypatch.setattr(script, "requested", lambda: next(asked))

    def rehearse(*arguments):
        options = script.options_of(["--gpu", "h200", *arguments])
        rows = script.estimate_all(options, CATALOGUE["h200"], {}, until=math.inf)
        script.run_all(options, rows, until=math.inf)
        return rows

    return rehearse


def test_the_table_covers_each_level_and_each_pair(script):
    cases = list(script.cases())
    assert len(cases) == len(set(cases)) == len({case.name for case in cases}) == 24
    levels = [Counter(column) for column in zip(*cases, strict=True)]
    assert min(count for column in levels for count in column.values()) >= 3
    assert [len(column) for column in levels] == [4, 3, 4, 2, 2, 2, 5]
    numbers = list(itertools.combinations(range(len(levels)), 2))
    possible = {
        (one, other, first, second)
        for one, other in numbers
        for first, second in itertools.product(levels[one], levels[other])
    }
    seen = {(one, other, case[one], case[other]) for case in cases for one, other in numbers}
    assert possible - seen == {(3, 6, "float32", "flash")}


def test_a_dry_run_writes_estimates_alone(script, dry):
    rows = read(dry)
    assert [row["case"] for row in rows] == SMALLEST
    assert list(rows[0])[: len(COLUMNS)] == COLUMNS
    for row in rows:
        assert (row["card"], row["torch"]) == ("NVIDIA H200", torch.__version__)
        sizes = [int(row[f"estimated_{name}_bytes"]) for name in script.MEASURED]
        assert 0 < sizes[0] <= sizes[1] < sizes[2]
        real = ("allocated_bytes", "allocated_error", "reserved_bytes", "reserved_error")
        assert {row[name] for name in (*real, "footprint_bytes", "context_bytes")} == {""}
        assert row["error"] == ""
    assert rows[1]["estimated_kernels"] == "efficient+flash"


def test_packages_that_are_absent_are_not_missed(dry, tmp_path):
    out = tmp_path / "table.csv"
    arguments = ["--dry-run", "--gpu", "h200", "--only", FIRST, "--out", str(out)]
    command = [sys.executable, "-W", "error", "-c", WITHOUT_PACKAGES, ABSENT, str(SCRIPT)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    same = [name for name in COLUMNS if name != "seconds"]
    (row,), first = read(out), read(dry)[0]
    assert [row[name] for name in same] == [first[name] for name in same]


def test_without_a_card_one_line_says_so(script, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = tmp_path / "table.csv"
    assert script.main(["--out", str(out)]) == 1
    told = capsys.readouterr()
    assert "--dry-run" in told.err
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert not out.exists()


def test_a_run_is_measured_and_looked_at(script, rehearsal, monkeypatch, capsys, tmp_path):
    switched, memory = [], torch.cuda.memory
    monkeypatch.setattr(memory, "_record_memory_history", lambda **how: switched.append(how))
    monkeypatch.setattr(memory, "_snapshot", lambda: {"segments": []})
    out = tmp_path / "table.csv"
    (made,) = rehearsal("--only", FIRST, "--out", str(out), "--snapshots", str(tmp_path))
    (row,) = read(out)
    assert row["error"] == ""
    assert int(row["allocated_bytes"]) == 100 * MIB
    assert int(row["reserved_bytes"]) == 102 * MIB
    assert int(row["footprint_bytes"]) == 602 * MIB
    assert int(row["context_bytes"]) == 500 * MIB
    estimate = int(row["estimated_allocated_bytes"])
    assert float(row["allocated_error"]) == pytest.approx(estimate / (100 * MIB) - 1, abs=1e-6)
    assert capsys.readouterr().out.count(" MiB in a step") == 5  # of the farthest operators
    assert made.asked["run"]["aten.mm"] > made.asked["run"]["aten.multinomial"] == 1000
    packed = (tmp_path / f"{FIRST}.pickle.gz").read_bytes()
    assert pickle.loads(gzip.decompress(packed)) == {"segments": []}
    assert switched == [{"stacks": "python"}, {"enabled": None}]
    assert script.trace_again([made], CATALOGUE["h200"]).endswith(": the same")


def test_a_failure_is_told_in_its_row(script, rehearsal, monkeypatch, tmp_path):
    build_of, other = script.build_of, "tiny-16x64"

    def scarce(case):
        def build(device):
            if case.name == FIRST:
                raise torch.OutOfMemoryError("CUDA out of memory.\nTried")
            return build_of(case)(device)

        return build

    def failing(build, **options):
        raise NotImplementedError("no rule")

    monkeypatch.setattr(script, "build_of", scarce)
    monkeypatch.setattr(script, "estimate_memory", failing)
    rehearsal("--only", FIRST, other, "--out", str(tmp_path / "table.csv"))
    first, second = read(tmp_path / "table.csv")
    assert first["error"] == (
        "estimate failed: NotImplementedError: no rule; "
        "run failed: OutOfMemoryError: CUDA out of memory."
    )
    assert second["error"] == "estimate failed: NotImplementedError: no rule"
    assert int(second["allocated_bytes"]) == 50 * MIB


def test_new_estimates_are_judged_by_an_earlier_run(script, dry, capsys, tmp_path):
    rows = read(dry)
    rows[0] |= {"allocated_bytes": "76000000", "error": "estimate failed: X: y; run: z"}
    rows[0] |= {"card": "Tesla T4", "torch": "2.9.0"}
    measured = tmp_path / "measured.csv"
    with measured.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerow(rows[0])
    out = tmp_path / "again.csv"
    arguments = ["--measured", str(measured), "--only", FIRST, "--out", str(out)]
    assert script.main(arguments) == 0
    (row,) = read(out)
    assert (row["card"], row["torch"], row["error"]) == ("Tesla T4", "2.9.0", "run: z")
    estimate = int(row["estimated_allocated_bytes"])
    assert estimate < int(rows[0]["estimated_allocated_bytes"])  # a T4's workspaces are smaller
    assert float(row["allocated_error"]) == pytest.approx(estimate / 76e6 - 1, abs=1e-6)
    assert "off by more than 1%: 1 of 1: tiny-3x120" in capsys.readouterr().out


def test_without_nvml_the_reason_is_told(script, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert live_gpus(script.nvml())[0] == []
    footprint, reason = process_footprint("GPU-1", 1, script.nvml())
    assert footprint is None
    assert "pynvml" in reason


def test_time_is_kept(script, capsys, tmp_path):
    out = tmp_path / "table.csv"
    assert script.main(["--dry-run", "--seconds", "-1", "--out", str(out)]) == 0
    assert "stopped before tiny-3x120" in capsys.readouterr().out


def test_a_case_that_is_not_there_is_refused(script, capsys):
    with pytest.raises(SystemExit):
        script.main(["--only", "huge-1x1"])
    assert "no case huge-1x1; there are tiny-3x120, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "capability", "architecture"),
    [
        ("NVIDIA L4", (1, 0), "ada"),
        ("NVIDIA Unheard-Of", (9, 0), "hopper"),
        ("NVIDIA Later", (12, 0), "unknown"),
    ],
)
def test_a_card_is_known_by_name_or_by_generation(
    script, monkeypatch, name, capability, architecture
):
    found = [SimpleNamespace(name=name)]
    monkeypatch.setattr(script, "live_gpus", lambda nvml: (found, None))
    major, minor = capability
    properties = SimpleNamespace(total_memory=5 * MIB, major=major, minor=minor)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    card = script.live_card()
    assert (card.name, card.architecture) == (name, architecture)

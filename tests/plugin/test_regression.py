"""All three promises against the golden files, with steps and times that are made up."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

from kronos.experiments import Experiment, golden_columns
from kronos.measure import device_profile
from kronos.recipes import baseline
from pytest_kronos.budget import Promise
from pytest_kronos.comparison import Golden, changed_settings
from pytest_kronos.golden import GoldenStore
from pytest_kronos.regression import Regression, RegressionCase, kronos_case
from pytest_kronos.settings import Settings
from pytest_kronos.throughput import Throughput
from pytest_kronos.verdicts import Finding, GateFailure, Ledger, Record, Verdict

FRAME = pd.DataFrame(
    {"close": [1.5, 2.5, 3.5]}, index=pd.date_range("2024-01-01", periods=3, name="timestamps")
)
CASE = RegressionCase(
    name="mine",
    build=lambda device: lambda: torch.zeros(1000, device=device) + 1,
    evaluate=lambda step: ({"mae": 1.0}, FRAME),
    settings={"precision": "bf16", "batch_size": 8},
)


def _settings(folder, **changes):
    values = {
        "budget": None,
        "card": None,
        "strict": False,
        "golden_dir": folder,
        "golden_update": False,
        "max_accuracy_drop": 0.05,
        "max_slowdown": 2.0,
        "reports": (),
        "allow_unmeasured": False,
        "budget_asked_for": False,
        "gate_asked_for": False,
    }
    return Settings(**(values | changes))


class _Timed:
    """Stands in for the fixture steps_per_hour; `asked` is what it was asked to measure."""

    def __init__(self, cost=2.0):
        self.throughput = _throughput(cost)

    def measure(self, step, **asked):
        self.asked = asked
        return self.throughput


def _throughput(*costs):
    return Throughput(device="cpu", step_seconds=(0.5,), relative_costs=costs, warmup_rounds=0)


@pytest.fixture
def run(tmp_path):
    """run(case, cost=2.0, ...): the record and the text of the failure, "" without one."""

    def check(case=CASE, timed=None, **settings):
        ledger = Ledger("test")
        fixture = Regression(_settings(tmp_path, **settings), Promise(), timed or _Timed(), ledger)
        try:
            fixture.check(case)
            failure = ""
        except GateFailure as error:
            failure = str(error)
        (record,) = map(Record.from_dict, ledger.unreported())
        return record, failure

    return check


def _scored(mae, frame=FRAME):
    return replace(CASE, evaluate=lambda step: ({"mae": mae}, frame))


def test_the_golden_row_says_all_there_is(run, tmp_path):
    record, failure = run(golden_update=True)
    assert not failure
    (row,) = GoldenStore(tmp_path).rows("mine")
    assert (row["case"], row["device"], row["torch"]) == (
        "mine",
        device_profile(),
        torch.__version__,
    )
    assert (row["precision"], row["batch_size"], row["mae"]) == ("bf16", 8, 1.0)
    assert (row["steps_per_hour"], row["relative_step_cost"]) == (7200, 2.0)
    assert row["memory_source"] == record.memory_source
    for name in ("peak_allocated_bytes", "peak_reserved_bytes", "footprint_bytes"):
        assert row[name] == getattr(record, name)
    assert row["peak_allocated_bytes"] < row["peak_reserved_bytes"] < row["footprint_bytes"]
    pd.testing.assert_frame_equal(GoldenStore(tmp_path).forecast("mine"), FRAME, check_freq=False)


def test_a_record_holds_the_figures_and_how_they_moved(run):
    run(golden_update=True)
    record, failure = run(_scored(1.04), _Timed(cost=3.0))
    assert not failure
    assert (record.steps_per_hour, record.slowdown) == (7200, 1.5)
    assert (record.mae, record.mae_change) == (1.04, pytest.approx(0.04))
    assert record.baseline is None
    figures = [finding.figure for finding in record.findings]
    assert figures == ["memory", "accuracy", "memory", "steps per hour", "forecast"]


@pytest.mark.parametrize(
    ("case", "timed", "settings", "named"),
    [
        (_scored(1.06), None, {}, "accuracy"),
        (_scored(1.04), None, {"max_accuracy_drop": 0.03}, "accuracy"),
        (_scored(1.0, FRAME * 1.06), None, {}, "forecast"),
        (_scored(1.0, FRAME * 1.04), None, {"max_accuracy_drop": 0.03}, "forecast"),
        (CASE, _Timed(cost=5.0), {}, "steps per hour"),
        (CASE, _Timed(cost=3.2), {"max_slowdown": 1.5}, "steps per hour"),
        (
            replace(CASE, build=lambda device: lambda: torch.zeros(10**6, device=device) + 1),
            None,
            {},
            "memory",
        ),
    ],
)
def test_each_promise_fails_alone_by_its_own_limit(run, case, timed, settings, named):
    run(golden_update=True)
    record, failure = run(case, timed, **settings)
    assert {finding.figure for finding in record.failures()} == {named}
    assert failure.startswith(f"mine: {named}: regression: ")


def test_limits_may_be_loosened(run):
    run(golden_update=True)
    loose = {"max_accuracy_drop": 0.1, "max_slowdown": 3.0}
    assert run(_scored(1.06, FRAME * 1.06), _Timed(cost=5.0), **loose)[1] == ""


class _Counting:
    made = 0

    def __call__(self):
        self.made += 1
        return torch.zeros(8, device=self.device)


def test_the_steps_of_a_case_are_made_before_it_is_scored(run):
    def build(device):
        step = _Counting()
        step.device = device
        return step

    case = replace(
        CASE, steps=5, build=build, evaluate=lambda step: ({"mae": float(step.made)}, None)
    )
    assert run(case, golden_update=True)[0].mae == 5.0


def test_a_case_is_timed_in_its_precision_until_the_golden_decides(run):
    timed = _Timed()
    run(timed=timed, golden_update=True)
    assert timed.asked["precision"] == "bf16"
    straddling = _throughput(*[1.0, 9.0] * 6)
    assert timed.asked["decided"](straddling)  # against no golden
    run(timed=timed)
    assert timed.asked["decided"](_throughput(2.0))
    assert not timed.asked["decided"](straddling)
    run(timed=timed, max_slowdown=9.0)
    assert timed.asked["decided"](straddling)


def test_out_of_memory_is_neither_scored_nor_timed(run):
    def overrun():
        raise torch.OutOfMemoryError("CUDA out of memory")

    def scored(step):
        raise AssertionError("scored")

    record, failure = run(replace(CASE, build=lambda device: overrun, evaluate=scored))
    assert failure.startswith("mine: memory: regression: limit none, out of memory")
    assert len(record.findings) == 1


def test_a_golden_of_another_device_is_named(run, tmp_path):
    run(golden_update=True)
    store = GoldenStore(tmp_path)
    (row,) = store.rows("mine")
    path = tmp_path / "mine" / "regression_output.csv"
    path.unlink()
    other = device_profile().partition("-")[0] + "-other"
    store.write("mine", row | {"device": other})
    assert run()[0].baseline == other


def test_no_golden_is_no_baseline(run):
    record, failure = run()
    verdicts = {finding.figure: finding.verdict for finding in record.findings}
    assert verdicts["golden"] is verdicts["forecast"] is Verdict.NO_BASELINE
    assert failure.count("--golden-update") == 2


DECIDING = (
    *("precision", "window", "horizon", "batch_size", "accumulation", "checkpointing"),
    *("parallel", "world_size", "seed", "config_sha256"),
)


@pytest.mark.parametrize("name", DECIDING)
def test_a_golden_is_of_one_configuration(name):
    row = dict.fromkeys(DECIDING, "one")
    assert changed_settings(row, row) == ""
    assert changed_settings(row, row | {name: "other"}) == f"{name} one -> other"
    assert changed_settings(row, {}) == ""  # a check of metrics alone says nothing of settings


@pytest.mark.parametrize(
    ("found", "mae", "frame"),
    [
        (Verdict.REGRESSION, 1.0, FRAME),
        (Verdict.PASS, float("nan"), FRAME),
        (Verdict.PASS, 1.0, FRAME * float("nan")),
    ],
)
def test_where_one_part_fails_its_own_test_no_part_becomes_a_golden(tmp_path, found, mae, frame):
    golden = Golden(_settings(tmp_path, golden_update=True), Ledger("test"))
    record = Record(case="mine", findings=[Finding("memory", found, "")])
    golden.judge(record, {"mae": mae}, {}, forecast=frame)
    assert record.failures()
    assert not list(tmp_path.iterdir())


def test_a_forecast_that_fails_writes_no_golden(run, tmp_path):
    _, failure = run(_scored(1.0, FRAME * float("nan")), golden_update=True)
    assert "forecast" in failure
    assert not list(tmp_path.iterdir())


def test_a_forecast_alone_is_written_and_judged(tmp_path):
    def check(frame, update=False):
        golden = Golden(_settings(tmp_path, golden_update=update), Ledger("test"))
        golden.check_forecast("mine", frame)

    with pytest.raises(GateFailure, match="no golden forecast; write it with --golden-update"):
        check(FRAME)
    with pytest.raises(GateFailure, match="forecast"):
        check(FRAME * float("nan"), update=True)
    assert not list(tmp_path.iterdir())
    check(FRAME, update=True)
    check(FRAME)
    with pytest.raises(GateFailure, match="forecast"):
        check(FRAME * 1.06)
    assert not GoldenStore(tmp_path).rows("mine")


def test_which_way_a_metric_is_better_is_told_either_way(tmp_path):
    def check(value, update=False):
        golden = Golden(_settings(tmp_path, golden_update=update), Ledger("test"))
        told = {"lower_is_better": ("perplexity",), "higher_is_better": ("loss",)}
        golden.check("mine", value, **told)

    check({"perplexity": 1.0, "loss": 1.0}, update=True)
    check({"perplexity": 0.8, "loss": 1.2})
    with pytest.raises(GateFailure, match=r"perplexity 1\.2 against 1, 20\.00% worse") as caught:
        check({"perplexity": 1.2, "loss": 0.8})
    assert "loss 0.8 against 1, 20.00% worse" in str(caught.value)


def test_a_configuration_is_a_case():
    config = baseline().with_overrides(["training.steps=3", "training.batch_size=4"])
    case = kronos_case(config)
    assert (case.name, case.steps, case.settings) == ("baseline", 3, golden_columns(config))
    step = case.build("cpu")
    assert isinstance(step, Experiment)
    assert step.config == config

"""The session as a whole: the table, the reports, and failing when nothing was measured."""

import csv
import json

import pytest

from kronos.files import write_text

METRIC = """
    import pytest

    @pytest.mark.parametrize("mae", [{values}])
    def test_metric(golden, mae):
        golden.check("mine", {{"mae": mae, "direction_accuracy": 0.5}})
"""


def _metric_test(pytester, *values):
    pytester.makepyfile(METRIC.format(values=", ".join(map(str, values))))


def test_create_pass_change_fail_update_pass(pytester):
    _metric_test(pytester, 1.0)
    first = pytester.runpytest()
    assert first.ret == 1
    first.stdout.fnmatch_lines(["*no-baseline*--golden-update*"])
    written = pytester.runpytest("--golden-update")
    assert written.ret == 0
    written.stdout.fnmatch_lines(["mine: golden: pass: golden written: new"])
    assert (pytester.path / "golden" / "mine" / "regression_output.csv").exists()
    assert pytester.runpytest().ret == 0

    _metric_test(pytester, 1.06)
    changed = pytester.runpytest()
    assert changed.ret == 1
    changed.stdout.fnmatch_lines(["*accuracy: regression: mae 1.06 against 1, 6.00% worse*"])
    assert pytester.runpytest("--max-accuracy-drop=7%").ret == 0
    updated = pytester.runpytest("--golden-update")
    assert updated.ret == 0
    updated.stdout.fnmatch_lines(["*golden written: mae 1 -> 1.06"])
    assert pytester.runpytest().ret == 0


def test_H4_an_empty_golden_store_is_no_baseline_and_exit_1(pytester):
    _metric_test(pytester, 1.0)
    result = pytester.runpytest("--golden-dir=nowhere")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*no-baseline*"])
    assert not (pytester.path / "nowhere").exists()


def test_a_golden_is_written_by_nothing_but_the_option(pytester):
    _metric_test(pytester, 1.0)
    pytester.runpytest("--golden-update")
    path = pytester.path / "golden" / "mine" / "regression_output.csv"
    before = path.read_bytes()
    _metric_test(pytester, 0.5)
    pytester.runpytest()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "value", ["float('nan')", "float('inf')", "__import__('numpy').float32('nan')", "'abc'"]
)
def test_H7_no_number_is_never_written_as_a_golden(pytester, value):
    _metric_test(pytester, value)
    result = pytester.runpytest("--golden-update")
    assert result.ret == 1
    assert not (pytester.path / "golden").exists()


def test_a_metric_whose_direction_is_unknown_must_be_told(pytester):
    pytester.makepyfile(
        """
    def test_unknown(golden):
        golden.check("mine", {"perplexity": 2.0})

    def test_told(golden):
        golden.check("mine", {"perplexity": 2.0}, lower_is_better=("perplexity",))
    """
    )
    result = pytester.runpytest("--golden-update")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*which way is better for perplexity*"])


def test_H2_a_check_of_no_metrics_is_refused(pytester):
    pytester.makepyfile("def test_none(golden): golden.check('mine', {})")
    for options in (["--golden-update"], []):
        result = pytester.runpytest(*options)
        assert result.ret == 1
        result.stdout.fnmatch_lines(["*no metrics to check 'mine' by*"])


def test_a_damaged_golden_fails_the_test_and_is_named(pytester):
    _metric_test(pytester, 1.0)
    write_text(pytester.path / "golden" / "mine" / "regression_output.csv", "case\nmine\n")
    result = pytester.runpytest()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*regression_output.csv: no column device*"])


def test_a_forecast_is_written_and_compared(pytester):
    source = """
    import pandas as pd

    def test_forecast(golden):
        index = pd.date_range("2024-01-01", periods=3, name="timestamps")
        golden.check_forecast("mine", pd.DataFrame({{"close": [1.0, 2.0, {last}]}}, index=index))
    """
    pytester.makepyfile(source.format(last=3.0))
    assert pytester.runpytest().ret == 1
    assert pytester.runpytest("--golden-update").ret == 0
    assert pytester.runpytest().ret == 0
    pytester.makepyfile(source.format(last=4.0))
    result = pytester.runpytest()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*forecast: regression: prices moved 11.11%*close at 2024-01-03*"])


@pytest.mark.parametrize(
    "body",
    [
        "def test_nothing(): pass",
        "import pytest\ndef test_nothing(gpu_budget): pytest.skip('no')",
        "",
    ],
)
def test_H2_a_gate_that_measured_nothing_fails(pytester, body):
    pytester.makepyfile(body)
    result = pytester.runpytest("--gpu-budget=12GB")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*nothing was measured*"])


def test_H2_everything_deselected_fails(pytester):
    pytester.makepyfile("def test_one(gpu_budget): pass")
    assert pytester.runpytest("--gpu-budget=12GB", "-k", "other").ret == 1


def test_nothing_measured_passes_where_allowed_or_where_no_gate_was_asked_for(pytester):
    pytester.makepyfile("def test_nothing(): pass")
    assert pytester.runpytest("--gpu-budget=12GB", "--allow-unmeasured").ret == 0
    assert pytester.runpytest().ret == 0


@pytest.mark.parametrize(
    "fixture", ["steps_per_hour(lambda: None)", "golden.check('a', {'mae': 1.0})"]
)
def test_a_budget_with_no_memory_measured_fails(pytester, fixture):
    name = fixture.partition("(")[0].partition(".")[0]
    pytester.makepyfile(f"def test_other({name}): {fixture}")
    assert pytester.runpytest("--golden-update").ret in (0, 1)
    result = pytester.runpytest("--gpu-budget=12GB")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*no memory was measured*"])


@pytest.mark.parametrize(
    "option", ["--collect-only", "--setup-plan", "--setup-only", "--fixtures", "--cache-show"]
)
def test_a_look_at_the_tests_is_no_gate_and_writes_no_report(pytester, option):
    pytester.makepyfile("def test_nothing(): pass")
    result = pytester.runpytest("--gpu-budget=12GB", "--capacity-report=out.md", option)
    assert result.ret == 0
    assert "measured" not in result.stdout.str()
    assert not (pytester.path / "out.md").exists()


def test_other_failures_keep_their_exit_status(pytester):
    pytester.makepyfile("def test_syntax(: pass")
    assert pytester.runpytest("--gpu-budget=12GB").ret == pytest.ExitCode.INTERRUPTED


REPORTS = ("out.md", "out.csv", "out.json", "out.html")


def test_capacity_reports(pytester):
    _metric_test(pytester, 2.0, 1.0)
    pytester.runpytest("--golden-update")
    options = [f"--capacity-report={name}" for name in REPORTS]
    result = pytester.runpytest(*options)
    assert result.ret == 1
    text = {name: (pytester.path / name).read_text() for name in REPORTS}
    assert "| mine" in text["out.md"]
    rows = list(csv.DictReader(text["out.csv"].splitlines()))
    assert [row["verdict"] for row in rows] == ["regression", "pass"]
    cases = json.loads(text["out.json"])["cases"]
    assert [case["MAE"] for case in cases] == [2.0, 1.0]
    assert "<td>mine</td>" in text["out.html"]
    assert "http" not in text["out.html"]


def test_a_report_that_cannot_be_written_is_told_before_or_at_the_end(pytester, monkeypatch):
    _metric_test(pytester, 1.0)
    (pytester.path / "folder.md").mkdir()
    (pytester.path / "file").touch()
    for bad in ("folder.md", "file/out.md"):
        result = pytester.runpytest("--golden-update", f"--capacity-report={bad}")
        assert result.ret == pytest.ExitCode.USAGE_ERROR

    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pytest_kronos.session.write_report", no_space)
    result = pytester.runpytest("--golden-update", "--capacity-report=out.md")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["kronos: out.md: No space left on device"])


CASE = """
    from pytest_kronos import RegressionCase

    def test_case(regression):
        import torch

        regression.check(
            RegressionCase(
                name="mine",
                build=lambda device: lambda: torch.ones(1000, device=device) + 1,
                evaluate=lambda step: ({"mae": 1.0}, None),
                settings={"batch_size": ROWS},
            )
        )
"""


def test_a_golden_of_another_configuration_is_no_baseline(pytester):
    pytester.makepyfile(CASE.replace("ROWS", "8"))
    assert pytester.runpytest("--golden-update").ret == 0
    same = pytester.runpytest("--gpu=h100", "--max-slowdown=50")  # its workspaces are larger
    assert same.ret == 0
    pytester.makepyfile(CASE.replace("ROWS", "16"))
    result = pytester.runpytest()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*no-baseline*another configuration (batch_size 8 -> 16)*"])


def test_what_fails_its_own_test_is_written_as_no_golden(pytester):
    pytester.makepyfile(CASE.replace("ROWS", "8"))
    assert pytester.runpytest("--golden-update", "--gpu-budget=100MB").ret == 1
    assert not (pytester.path / "golden").exists()


def test_H13_H35_a_bad_marker_under_xdist_is_a_usage_error_too(pytester):
    pytest.importorskip("xdist")
    pytester.makepyfile(
        """
    import pytest

    @pytest.mark.gpu_budget("12 potatoes")
    def test_mine(): pass
    """
    )
    result = pytester.runpytest_subprocess("-n2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    output = result.stdout.str() + result.stderr.str()
    assert "INTERNALERROR" not in output
    assert output.count("12 potatoes") == 1
    assert "test_mine" in output


def test_H35_under_xdist_the_controller_decides(pytester):
    pytest.importorskip("xdist")
    _metric_test(pytester, 2.0, 1.0)
    assert pytester.runpytest("--golden-update", "-p", "no:xdist").ret == 0
    pytester.makeconftest("""
    def pytest_sessionstart(session):
        judges = session.config.pluginmanager.hasplugin("kronos-session")
        assert judges != hasattr(session.config, "workerinput")  # and so writes the reports
    """)
    ini = "-W", "ignore::pytest_benchmark.logger.PytestBenchmarkWarning"
    result = pytester.runpytest_subprocess("-n2", "--gpu-budget=12GB", *ini)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*regression*", "*pass*"])
    pytester.makepyfile("def test_nothing(): pass")
    result = pytester.runpytest_subprocess("-n2", "--gpu-budget=12GB", *ini)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*nothing was measured*"])

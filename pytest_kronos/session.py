"""What the session found: the table, the reports, and whether it passes. No torch.

Lives on the controller: under xdist the workers' records arrive with their reports.
"""

from typing import Any

import pytest

from kronos.hardware import format_size
from kronos.report import capacity_table, write_report
from pytest_kronos.settings import Settings
from pytest_kronos.verdicts import Record, Verdict

_NOTHING = (
    "nothing was measured: no test used gpu_budget, steps_per_hour, golden or regression "
    "(--allow-unmeasured lets that pass)"
)
_NO_MEMORY = (
    "no memory was measured, though --gpu-budget was given: no test used gpu_budget or regression "
    "(--allow-unmeasured lets that pass)"
)


class Session:
    """Collects the tests' records and judges the session as a whole."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._records: list[Record] = []
        self._bad_marker: str | None = None
        self._unwritten: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":  # the last one holds the properties of all phases
            return
        for name, value in report.user_properties:
            if name == "kronos" and isinstance(value, dict):
                self._records.append(Record.from_dict(value))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Under xdist, hear of a marker that a worker could not read."""
        found = getattr(node, "workeroutput", {}).get("kronos_bad_marker")
        self._bad_marker = self._bad_marker or found

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if not _runs_tests(session.config):
            return
        if self._bad_marker is not None:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
            return
        for path in self._settings.reports:
            try:
                write_report(path, [table_row(record) for record in self.worst_first()])
            except OSError as error:
                self._unwritten.append(f"{path}: {error.strerror or error}")
        ended_well = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if ended_well and (self._unmeasured() or self._unwritten):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> None:
        if not _runs_tests(config):
            return
        if self._bad_marker is not None:
            terminalreporter.write_line(f"ERROR: {self._bad_marker}", red=True)
            return
        if self._records:
            terminalreporter.section("kronos: memory, steps per hour, accuracy")
            rows = [table_row(record) for record in self.worst_first()]
            terminalreporter.write_line(capacity_table(rows))
            for record in self.worst_first():
                for line in _remarks(record):
                    terminalreporter.write_line(line)
        for line in filter(None, (self._unmeasured(), *self._unwritten)):
            terminalreporter.write_line(f"kronos: {line}", red=True)

    def worst_first(self) -> list[Record]:
        """The records, the worst verdict first, in the order of the tests within one."""
        return sorted(self._records, key=lambda record: record.verdict.rank)

    def _unmeasured(self) -> str | None:
        """What the session was asked to measure and did not."""
        if not self._settings.gate_asked_for or self._settings.allow_unmeasured:
            return None
        seen = [one for one in self._records if one.verdict is not Verdict.NOT_MEASURED]
        if not seen:
            return _NOTHING
        memory = any(one.figure == "memory" for record in seen for one in record.findings)
        return _NO_MEMORY if self._settings.budget_asked_for and not memory else None


def _runs_tests(config: pytest.Config) -> bool:
    # --setup-plan sets setuponly too
    inspections = ("collectonly", "setuponly", "showfixtures", "cacheshow")
    return not any(config.getoption(name, None) for name in inspections)


def table_row(record: Record) -> dict[str, object]:
    """A record in the columns of the table; None where there is no figure."""
    return {
        "case": record.case,
        "verdict": str(record.verdict),
        "device": record.device,
        "card": record.card,
        "footprint": record.footprint_bytes,
        "budget": record.budget_bytes,
        "memory source": record.memory_source,
        "steps/hour": record.steps_per_hour,
        "step time vs golden": record.slowdown,
        "MAE": record.mae,
        "MAE vs golden": record.mae_change,
        "breakdown": record.breakdown,
    }


def _remarks(record: Record) -> list[str]:
    lines = []
    if record.baseline is not None:
        lines.append(f"{record.case}: judged against the golden of {record.baseline}")
    for finding in record.findings:
        if finding.verdict is not Verdict.PASS or finding.notable or finding.figure == "golden":
            lines.append(f"{record.case}: {finding.figure}: {finding.verdict}: {finding.text}")
    if record.footprint_bytes is not None and record.budget_bytes is not None:
        left = record.budget_bytes - record.footprint_bytes
        if left >= 0:
            source = f"{record.memory_source}, {record.card}"
            lines.append(f"{record.case}: {format_size(left)} of the budget left ({source})")
    return lines

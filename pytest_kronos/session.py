"""What the session found: the table, the reports, and whether it passes. No torch.

Lives on the controller: under xdist the workers' records arrive with their reports.
"""

from typing import TYPE_CHECKING

from kronos.hardware import format_size
from kronos.report import capacity_table, write_report
from pytest_kronos.settings import Settings
from pytest_kronos.verdicts import Record, Verdict

if TYPE_CHECKING:
    import pytest

_NOTHING = (
    "nothing was measured: no test used gpu_budget, steps_per_hour, golden or regression "
    "(--allow-unmeasured lets that pass)"
)


class Session:
    """Collects the tests' records and judges the session as a whole."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._records: list[Record] = []

    def pytest_runtest_logreport(self, report: "pytest.TestReport") -> None:
        if report.when != "call":
            return
        for name, value in report.user_properties:
            if name == "kronos" and isinstance(value, dict):
                self._records.append(Record.from_dict(value))

    def pytest_sessionfinish(self, session: "pytest.Session", exitstatus: int) -> None:
        if self._unmeasured() and exitstatus in (0, 5):  # passed, or no tests collected
            session.exitstatus = 1
        for path in self._settings.reports:
            write_report(path, [table_row(record) for record in self.worst_first()])

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        if self._records:
            terminalreporter.section("kronos: memory, steps per hour, accuracy")
            rows = [table_row(record) for record in self.worst_first()]
            terminalreporter.write_line(capacity_table(rows))
            for record in self.worst_first():
                for line in _remarks(record):
                    terminalreporter.write_line(line)
        if self._unmeasured():
            terminalreporter.section("kronos")
            terminalreporter.write_line(_NOTHING, red=True)

    def worst_first(self) -> list[Record]:
        """The records, the worst verdict first, in the order of the tests within one."""
        order = list(Verdict)
        return sorted(self._records, key=lambda record: order.index(record.verdict))

    def _unmeasured(self) -> bool:
        wanted = self._settings.gate_asked_for and not self._settings.allow_unmeasured
        seen = any(record.verdict is not Verdict.NOT_MEASURED for record in self._records)
        return wanted and not seen


def table_row(record: Record) -> dict[str, object]:
    """A record in the columns of the table; None where there is no figure."""
    return {
        "case": record.case,
        "verdict": str(record.verdict),
        "device": record.device,
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
        if finding.verdict is not Verdict.PASS or finding.figure == "golden":
            lines.append(f"{record.case}: {finding.figure}: {finding.verdict}: {finding.text}")
    if record.footprint_bytes is not None and record.budget_bytes is not None:
        left = record.budget_bytes - record.footprint_bytes
        if left >= 0:
            lines.append(f"{record.case}: {format_size(left)} of the budget left")
    return lines

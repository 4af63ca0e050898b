"""The words a gate judges with, and the findings it hands on. No pytest, no torch."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self


class Verdict(StrEnum):
    """Judgements, the worst first."""

    REGRESSION = "regression"
    NOT_MEASURED = "not-measured"
    NO_BASELINE = "no-baseline"
    INCONCLUSIVE = "inconclusive"
    IMPROVEMENT = "improvement"
    PASS = "pass"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Verdict).index(self)

    @property
    def fails(self) -> bool:
        """Whether a test with this verdict fails; what was not measured does."""
        return self in (Verdict.REGRESSION, Verdict.NOT_MEASURED, Verdict.NO_BASELINE)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of some verdicts; of none, `NOT_MEASURED`: a gate that saw nothing fails."""
    return min(verdicts, key=lambda one: one.rank, default=Verdict.NOT_MEASURED)


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure judged."""

    figure: str
    """"memory", "steps per hour", "accuracy" or "forecast"."""
    verdict: Verdict
    text: str
    """What was found, with its numbers; the reason where the verdict fails."""
    notable: bool = False
    """Whether it is told under the table although it passes."""


@dataclass(kw_only=True, slots=True)
class Record:
    """All that one test found out, as plain values: a row of the session's table."""

    case: str
    device: str | None = None
    """The profile of the device the test ran on."""
    card: str | None = None
    """The card that was measured, or that the estimate is for."""
    memory_source: str | None = None
    """"measured" on a card, "estimated" elsewhere; None where no memory was looked at."""
    footprint_bytes: int | None = None
    budget_bytes: int | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    breakdown: dict[str, int] = field(default_factory=dict)
    baseline: str | None = None
    """The device profile of the golden row, where it is not this machine's own."""
    steps_per_hour: float | None = None
    slowdown: float | None = None
    """Relative step cost over the golden's; 1 is as fast."""
    mae: float | None = None
    mae_change: float | None = None
    """Relative to the golden's; positive is worse."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """The worst of the findings."""
        return worst(finding.verdict for finding in self.findings)

    def failures(self) -> list[Finding]:
        """The findings that fail the test."""
        return [finding for finding in self.findings if finding.verdict.fails]

    def as_dict(self) -> dict[str, Any]:
        """Builtin values only: xdist's channel and JSON take no others, not even a StrEnum."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return values | {"verdict": str(self.verdict)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `as_dict`."""
        plain = {key: value for key, value in values.items() if key != "verdict"}
        plain["findings"] = [
            Finding(one["figure"], Verdict(one["verdict"]), one["text"], one["notable"])
            for one in plain["findings"]
        ]
        return cls(**plain)


class Ledger:
    """The records of one test: each check opens one of its own."""

    def __init__(self, test: str) -> None:
        self._test = test
        self._records: list[Record] = []
        self._reported = 0

    def open(self, case: str = "") -> Record:
        """A new record; without a case it goes by the test's name."""
        self._records.append(Record(case=case or self._test))
        return self._records[-1]

    def unreported(self) -> list[dict[str, Any]]:
        """The records that have found something since this was last asked, as plain values."""
        fresh = [record for record in self._records[self._reported :] if record.findings]
        self._reported = len(self._records)
        return [record.as_dict() for record in fresh]


class GateFailure(AssertionError):
    """A promise was not kept; the text says which, by how much, and what to look at."""


def raise_failures(record: Record) -> None:
    """Raise one GateFailure that names every failed figure of the record.

    Raises:
        GateFailure: some finding fails.
    """
    __tracebackhide__ = True
    failures = record.failures()
    if failures:
        lines = [f"{record.case}: {one.figure}: {one.verdict}: {one.text}" for one in failures]
        raise GateFailure("\n".join(lines))

"""The session's table, its remarks and its complaint, from records that are made up."""

from types import SimpleNamespace

import pytest

from pytest_kronos.session import Session, _remarks, table_row
from pytest_kronos.verdicts import Finding, Record, Verdict


class _Lines:
    """What a terminal reporter was told to write."""

    def __init__(self):
        self.lines = []

    def section(self, title): ...

    def write_line(self, line, **markup):
        self.lines.append(line)


def _found(figure, verdict, case="mine", **figures):
    return Record(case=case, findings=[Finding(figure, verdict, "text")], **figures)


def test_the_worst_comes_first():
    session = Session(settings=None)
    session._records = [
        Record(case=str(verdict), findings=[Finding("memory", verdict, "")])
        for verdict in (Verdict.PASS, Verdict.REGRESSION, Verdict.INCONCLUSIVE)
    ]
    cases = [record.case for record in session.worst_first()]
    assert cases == ["regression", "inconclusive", "pass"]


def test_remarks_stand_below_the_table_the_worst_first():
    session = Session(settings=SimpleNamespace(gate_asked_for=False))
    session._records = [
        _found("accuracy", Verdict.IMPROVEMENT, "better"),
        _found("memory", Verdict.REGRESSION, "worse"),
    ]
    reporter = _Lines()
    config = SimpleNamespace(getoption=lambda name, default: default)
    session.pytest_terminal_summary(reporter, config)
    assert reporter.lines[1:] == [
        "worse: memory: regression: text",
        "better: accuracy: improvement: text",
    ]


@pytest.mark.parametrize(
    ("record", "remarks"),
    [
        (_found("accuracy", Verdict.PASS), []),
        (_found("golden", Verdict.PASS), ["mine: golden: pass: text"]),
        (_found("memory", Verdict.INCONCLUSIVE), ["mine: memory: inconclusive: text"]),
        (
            _found("accuracy", Verdict.PASS, baseline="cpu-avx2"),
            ["mine: judged against the golden of cpu-avx2"],
        ),
    ],
)
def test_what_is_remarked_on(record, remarks):
    assert _remarks(record) == remarks


@pytest.mark.parametrize(
    ("footprint", "left"),
    [
        (4, ["1 B of the budget left (estimated, t4)"]),
        (5, ["0 B of the budget left (estimated, t4)"]),
        (6, []),
    ],
)
def test_what_is_left_of_a_budget_is_told(footprint, left):
    figures = {"footprint_bytes": footprint, "budget_bytes": 5}
    record = _found("memory", Verdict.PASS, memory_source="estimated", card="t4", **figures)
    assert _remarks(record) == [f"mine: {text}" for text in left]


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        ([], "nothing was measured"),
        ([_found("memory", Verdict.NOT_MEASURED)], "nothing was measured"),
        ([_found("accuracy", Verdict.PASS)], "no memory was measured"),
        (
            [_found("accuracy", Verdict.PASS), _found("memory", Verdict.NOT_MEASURED)],
            "no memory was measured",
        ),
        ([_found("memory", Verdict.PASS)], None),
    ],
)
def test_what_was_not_measured_is_no_measurement(records, complaint):
    asked = {"gate_asked_for": True, "budget_asked_for": True, "allow_unmeasured": False}
    session = Session(settings=SimpleNamespace(**asked))
    session._records = records
    assert (session._unmeasured() or "None").startswith(str(complaint))


def test_a_worker_s_bad_marker_is_kept_when_others_end_well():
    session = Session(settings=None)
    for output in ({"kronos_bad_marker": "12 potatoes"}, {}):
        session.pytest_testnodedown(SimpleNamespace(workeroutput=output))
    assert session._bad_marker == "12 potatoes"


def test_a_row_holds_every_figure_of_its_record():
    figures = {"steps_per_hour": 7.0, "slowdown": 1.5, "mae": 0.25, "mae_change": 0.5}
    memory = {"footprint_bytes": 3, "budget_bytes": 5, "breakdown": {"inputs": 3}}
    words = {"device": "cpu-avx2", "card": "t4", "memory_source": "estimated"}
    assert table_row(_found("memory", Verdict.PASS, **figures, **memory, **words)) == {
        "case": "mine",
        "verdict": "pass",
        "device": "cpu-avx2",
        "card": "t4",
        "footprint": 3,
        "budget": 5,
        "memory source": "estimated",
        "steps/hour": 7.0,
        "step time vs golden": 1.5,
        "MAE": 0.25,
        "MAE vs golden": 0.5,
        "breakdown": {"inputs": 3},
    }


def test_a_missing_figure_is_none_in_the_row_not_zero():
    row = table_row(Record(case="mine"))
    assert {row[name] for name in ("footprint", "budget", "steps/hour", "MAE")} == {None}

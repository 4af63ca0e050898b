"""The order of verdicts and the trip of a record through plain values."""

import json

import pytest

from pytest_kronos.verdicts import (
    Finding,
    GateFailure,
    Ledger,
    Record,
    Verdict,
    raise_failures,
    worst,
)


def test_the_worst_is_the_first_in_the_list_and_nothing_is_not_measured():
    assert worst([Verdict.PASS, Verdict.REGRESSION, Verdict.NO_BASELINE]) is Verdict.REGRESSION
    assert worst([Verdict.PASS, Verdict.IMPROVEMENT]) is Verdict.IMPROVEMENT
    assert worst([]) is Verdict.NOT_MEASURED


def test_the_order_is_that_of_the_table():
    assert [str(verdict) for verdict in Verdict] == [
        "regression",
        "not-measured",
        "no-baseline",
        "inconclusive",
        "improvement",
        "pass",
    ]


def test_what_fails():
    assert {verdict for verdict in Verdict if verdict.fails} == {
        Verdict.REGRESSION,
        Verdict.NOT_MEASURED,
        Verdict.NO_BASELINE,
    }


def test_a_record_survives_json():
    record = Record(case="mine", budget_bytes=3, breakdown={"inputs": 2})
    record.findings.append(Finding("memory", Verdict.REGRESSION, "too much"))
    back = Record.from_dict(json.loads(json.dumps(record.as_dict())))
    assert back == record
    assert back.verdict is Verdict.REGRESSION


def test_a_ledger_hands_on_each_record_once_and_no_empty_ones():
    ledger = Ledger("mine")
    ledger.open().findings.append(Finding("memory", Verdict.PASS, ""))
    ledger.open("nothing found")
    assert [record["case"] for record in ledger.unreported()] == ["mine"]
    assert ledger.unreported() == []
    ledger.open("other").findings.append(Finding("memory", Verdict.PASS, ""))
    assert [record["case"] for record in ledger.unreported()] == ["other"]


def test_every_failure_is_named_at_once():
    record = Record(case="mine")
    raise_failures(record)
    record.findings = [
        Finding("memory", Verdict.REGRESSION, "too much"),
        Finding("accuracy", Verdict.PASS, "fine"),
        Finding("steps per hour", Verdict.REGRESSION, "too slow"),
    ]
    with pytest.raises(GateFailure) as caught:
        raise_failures(record)
    assert str(caught.value).splitlines() == [
        "mine: memory: regression: too much",
        "mine: steps per hour: regression: too slow",
    ]

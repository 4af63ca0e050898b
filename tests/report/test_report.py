"""Tables and files from plain rows."""

import csv
import json

import pytest

from kronos.errors import ConfigError
from kronos.report import capacity_table, card_table, write_report

ROW = {
    "case": "<mine>",
    "verdict": "pass",
    "footprint": 3 * 1024**3,
    "budget": None,
    "memory source": "estimated",
    "steps/hour": 12345.6,
    "step time vs golden": 1.25,
    "MAE": 0.0123456,
    "MAE vs golden": 0.062,
    "breakdown": {"activations": 2 * 1024**3, "parameters": 1024},
}


def test_the_table_says_whether_memory_was_measured_and_shows_gaps():
    table = capacity_table([ROW])
    for part in ("3.00 GiB estimated", "12,346", "1.25 x", "0.01235", "+6.20%"):
        assert part in table
    assert "estimated  -  " in table  # no budget
    assert "breakdown" not in table


def test_cards_show_sizes():
    assert "12.00 GiB" in card_table([{"name": "mine", "memory_total": 12 * 1024**3}])


def test_csv_and_json_keep_the_plain_values(tmp_path):
    write_report(tmp_path / "out.csv", [ROW])
    (row,) = csv.DictReader((tmp_path / "out.csv").read_text().splitlines())
    assert row["footprint"] == str(3 * 1024**3)
    assert (row["budget"], row["MAE vs golden"]) == ("", "0.062")
    assert row["recorded at"].endswith("+00:00")
    write_report(tmp_path / "out.json", [ROW])
    assert json.loads((tmp_path / "out.json").read_text())["cases"] == [ROW]


def test_html_escapes_and_stands_alone(tmp_path):
    write_report(tmp_path / "out.html", [ROW])
    page = (tmp_path / "out.html").read_text()
    assert "&lt;mine&gt;" in page
    assert "<mine>" not in page
    assert "activations" in page
    assert "src=" not in page
    assert "href=" not in page


@pytest.mark.parametrize("name", ["out.md", "out.csv", "out.json", "out.html"])
def test_no_rows_are_a_report_too(tmp_path, name):
    write_report(tmp_path / name, [])
    assert (tmp_path / name).exists()


def test_another_suffix_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ConfigError, match=r"\.pdf"):
        write_report(tmp_path / "out.pdf", [ROW])
    assert not list(tmp_path.iterdir())

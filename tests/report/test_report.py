"""Tables and files from plain rows."""

import csv
import json
import re

import pytest

from kronos.errors import ConfigError
from kronos.report import capacity_table, card_table, write_report

ROW = {
    "case": "<mine>",
    "verdict": "pass",
    "card": "the card",
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
    assert "1.00 GiB" in capacity_table([ROW | {"budget": 1024**3}])
    for hidden in ("breakdown", "memory source", "card"):
        assert hidden not in table
    header = table.splitlines()[0]
    assert "step time" in header  # and "vs golden" below: long headers take two lines
    assert "step time vs golden" not in table


def test_cards_show_sizes():
    table = card_table([{"name": "mine", "memory_total": 12 * 1024**3, "context": 1024**2}])
    for part in ("memory total", "12.00 GiB", "1.00 MiB"):
        assert part in table


def test_csv_and_json_keep_the_plain_values(tmp_path):
    write_report(tmp_path / "out.csv", [ROW])
    (row,) = csv.DictReader((tmp_path / "out.csv").read_text().splitlines())
    assert row["footprint"] == str(3 * 1024**3)
    assert (row["budget"], row["MAE vs golden"]) == ("", "0.062")
    assert (row["case"], row["MAE"]) == ("<mine>", "0.0123456")
    assert row["recorded at"].endswith("+00:00")
    write_report(tmp_path / "out.json", [ROW])
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["cases"] == [ROW]
    assert report["recorded_at"].endswith("+00:00")


def test_markdown_is_a_table_of_one_line_headers(tmp_path):
    write_report(tmp_path / "out.md", [ROW])
    lines = (tmp_path / "out.md").read_text().splitlines()
    assert lines[0] == "# Capacity report"
    assert lines[2].endswith("+00:00")
    header, rule, row = (line.split("|")[1:-1] for line in lines[4:])
    assert [name.strip() for name in header][-2:] == ["MAE", "MAE vs golden"]
    assert {cell.strip("-") for cell in rule} == {""}
    assert [cell.strip() for cell in row][:2] == ["<mine>", "pass"]


def test_html_escapes_and_stands_alone(tmp_path):
    row = ROW | {"breakdown": {"<layers>": 2 * 1024**3, "parameters": 1024**3, "inputs": 0}}
    write_report(tmp_path / "out.html", [row])
    page = (tmp_path / "out.html").read_text()
    for name in ("mine", "layers"):
        assert f"&lt;{name}&gt;" in page
        assert f"<{name}>" not in page
    assert '<tr class="pass">' in page
    assert "at the peak, estimated</h2>" in page
    assert re.findall("width: (.*?)%", page) == ["100.0", "50.0", "0.0"]
    assert "src=" not in page
    assert "href=" not in page


@pytest.mark.parametrize("name", ["out.md", "out.csv", "out.json", "out.html"])
def test_no_rows_are_a_report_too(tmp_path, name):
    write_report(tmp_path / name, [])
    told = "recorded" if name.endswith((".csv", ".json")) else "Nothing was measured."
    assert told in (tmp_path / name).read_text()


def test_a_breakdown_of_zeros_is_shown(tmp_path):
    write_report(tmp_path / "out.html", [ROW | {"breakdown": {"inputs": 0}}])
    assert "width: 0.0%" in (tmp_path / "out.html").read_text()


def test_another_suffix_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ConfigError, match=r"\.pdf"):
        write_report(tmp_path / "out.pdf", [ROW])
    assert not list(tmp_path.iterdir())

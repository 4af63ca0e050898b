"""Capacity rows as files, written atomically: .md, .csv (opens in Excel), .json, .html."""

import csv
import html
import io
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kronos.errors import ConfigError
from kronos.files import write_text
from kronos.hardware import format_size
from kronos.report.tables import Row, capacity_table, shown

_TITLE: Final = "Capacity report"
_EMPTY: Final = "Nothing was measured."
_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem;
  color: #1b1f24; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; } th, td { text-align: left; padding: .4rem .8rem;
  border-bottom: 1px solid #d0d7de; white-space: nowrap; font-variant-numeric: tabular-nums; }
th { white-space: normal; vertical-align: bottom; }
.pass, .improvement { color: #116329; } .inconclusive { color: #7d4e00; }
.regression, .not-measured, .no-baseline { color: #b3261e; font-weight: 600; }
.part { display: grid; grid-template-columns: 8.5rem 6rem 1fr; gap: .6rem; align-items: center; }
.bar { background: #0969da; height: .8rem; border-radius: 2px; min-width: 1px; }
"""


def write_report(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows in the format that the suffix names.

    Raises:
        ConfigError: another suffix than .md, .csv, .json or .html.
    """
    if path.suffix not in _WRITERS:
        raise ConfigError(f"reports are {', '.join(_WRITERS)}; got {str(path)!r}")
    write_text(path, _WRITERS[path.suffix](rows, _now()))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _as_markdown(rows: Sequence[Row], now: str) -> str:
    table = capacity_table(rows, style="github") if rows else _EMPTY
    return f"# {_TITLE}\n\n{now}\n\n{table}\n"


def _as_csv(rows: Sequence[Row], now: str) -> str:
    buffer = io.StringIO()
    names = [name for name in (rows[0] if rows else {}) if name != "breakdown"]
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*names, "recorded at"])
    for row in rows:
        writer.writerow([*(_cell(row[name]) for name in names), now])
    return buffer.getvalue()


def _cell(value: object) -> object:
    return f"{value:.9g}" if isinstance(value, float) else value


def _as_json(rows: Sequence[Row], now: str) -> str:
    return json.dumps({"recorded_at": now, "cases": [dict(row) for row in rows]}, indent=2) + "\n"


def _as_html(rows: Sequence[Row], now: str) -> str:
    parts = "".join(_breakdown(row) for row in rows)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_TITLE}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{_TITLE}</h1><p>{now}</p>"
        f'<div class="scroll">{_table(rows)}</div>{parts}</body></html>\n'
    )


def _table(rows: Sequence[Row]) -> str:
    if not rows:
        return f"<p>{_EMPTY}</p>"
    head = "".join(f"<th>{html.escape(name)}</th>" for name in shown(rows[0]))
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(map(_line, rows))}</tbody></table>"
    )


def _line(row: Row) -> str:
    kind = html.escape(str(row.get("verdict", "")))
    cells = "".join(f"<td>{html.escape(text or '-')}</td>" for text in shown(row).values())
    return f'<tr class="{kind}">{cells}</tr>'


def _breakdown(row: Row) -> str:
    parts = row.get("breakdown")
    if not isinstance(parts, Mapping) or not parts:
        return ""
    largest = max(1, *parts.values())
    lines = "".join(
        f'<div class="part"><span>{html.escape(str(name))}</span><span>{format_size(size)}</span>'
        f'<span class="bar" style="width: {100 * size / largest:.1f}%"></span></div>'
        for name, size in parts.items()
    )
    source = html.escape(str(row.get("memory source")))
    return (
        f"<h2>{html.escape(str(row['case']))}: what the allocator holds at the peak, "
        f"{source}</h2>{lines}"
    )


_WRITERS: Final[Mapping[str, Callable[[Sequence[Row], str], str]]] = {
    ".md": _as_markdown,
    ".csv": _as_csv,
    ".json": _as_json,
    ".html": _as_html,
}

"""Golden files: reading, writing and finding the row to compare with. No pytest, no torch.

`<golden-dir>/<case>/regression_output.csv` holds one row per device profile,
`<golden-dir>/<case>/forecast.csv` the forecast of the case. UTF-8, `\\n`, UTC, `%.9g`.
"""

import csv
import hashlib
import io
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Flag, auto
from pathlib import Path
from typing import Any, Final

import pandas as pd

from kronos.errors import DataError
from kronos.files import write_text

OUTPUT_FILE: Final = "regression_output.csv"
FORECAST_FILE: Final = "forecast.csv"


class _Is(Flag):
    """What a column holds: numbers where nothing else is said, a project's own columns too."""

    NUMBER = 0
    TEXT = auto()
    SETTING = auto()
    ACCURACY = auto()


_SCHEMA: Final = {
    "case": _Is.TEXT,
    "device": _Is.TEXT,
    "precision": _Is.TEXT | _Is.SETTING,
    "torch": _Is.TEXT,
    "window": _Is.SETTING,
    "horizon": _Is.SETTING,
    "batch_size": _Is.SETTING,
    "accumulation": _Is.SETTING,
    "checkpointing": _Is.TEXT | _Is.SETTING,
    "parallel": _Is.TEXT | _Is.SETTING,
    "world_size": _Is.SETTING,
    "peak_allocated_bytes": _Is.NUMBER,
    "peak_reserved_bytes": _Is.NUMBER,
    "footprint_bytes": _Is.NUMBER,
    "memory_source": _Is.TEXT,
    "steps_per_hour": _Is.NUMBER,
    "relative_step_cost": _Is.NUMBER,
    "mae": _Is.ACCURACY,
    "rmse": _Is.ACCURACY,
    "direction_accuracy": _Is.ACCURACY,
    "cumulative_return": _Is.ACCURACY,
    "max_drawdown": _Is.ACCURACY,
    "sharpe": _Is.ACCURACY,
    "stability": _Is.ACCURACY,
    "seed": _Is.SETTING,
    "config_sha256": _Is.TEXT | _Is.SETTING,
    "recorded_at": _Is.TEXT,
}
COLUMNS: Final = tuple(_SCHEMA)
SETTINGS: Final = tuple(name for name, kind in _SCHEMA.items() if _Is.SETTING in kind)
"""Columns that must be the golden's for its figures to be comparable."""
_ACCURACY: Final = tuple(name for name, kind in _SCHEMA.items() if _Is.ACCURACY in kind)

Value = str | int | float | None
Row = Mapping[str, Value]


class GoldenStore:
    """The golden files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rows(self, case: str) -> list[dict[str, Value]]:
        """All rows of a case, none where it has no file.

        Raises:
            DataError: the file is not a golden file; names it and what is wrong.
        """
        path = self._path(case, OUTPUT_FILE)
        if not path.exists():
            return []
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                reader = csv.DictReader(file)
                missing = [name for name in COLUMNS if name not in (reader.fieldnames or [])]
                if missing:
                    raise DataError(
                        f"{path}: no column {', '.join(missing)}; restore the file, or delete it "
                        "and write it anew with --golden-update"
                    )
                return [_parsed(path, line, row) for line, row in enumerate(reader, start=2)]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"{path}: cannot be read as a golden file: {error}") from error

    def row(self, case: str, device: str) -> dict[str, Value] | None:
        """The row of that device profile, else one of the same kind of device, else None."""
        rows = self.rows(case)
        for row in rows:
            if row["device"] == device:
                return row
        kind = device.partition("-")[0]
        return next((row for row in rows if str(row["device"]).partition("-")[0] == kind), None)

    def write(self, case: str, row: Row) -> dict[str, Value] | None:
        """Put a row in the place of its device's, leave the others, return the one replaced."""
        rows = self.rows(case)
        old = next((one for one in rows if one["device"] == row["device"]), None)
        kept = [one for one in rows if one["device"] != row["device"]]
        stamped = dict(row) | {"recorded_at": datetime.now(UTC).isoformat(timespec="seconds")}
        everything = sorted([*kept, stamped], key=lambda one: str(one["device"]))
        write_text(self._path(case, OUTPUT_FILE), _as_csv(everything))
        return old

    def forecast(self, case: str) -> pd.DataFrame | None:
        """The forecast of a case, indexed by UTC-naive timestamps, or None."""
        path = self._path(case, FORECAST_FILE)
        if not path.exists():
            return None
        try:
            return pd.read_csv(path, index_col="timestamps", parse_dates=["timestamps"])
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read as a forecast: {error}") from error

    def write_forecast(self, case: str, forecast: pd.DataFrame) -> None:
        """Write the forecast of a case."""
        text = forecast.to_csv(
            index_label="timestamps",
            float_format="%.9g",
            lineterminator="\n",
            date_format="%Y-%m-%d %H:%M:%S",
        )
        write_text(self._path(case, FORECAST_FILE), text)

    def _path(self, case: str, file: str) -> Path:
        return self.folder / case_folder(case) / file


_SAFE = re.compile(r"[a-z0-9][a-z0-9_.-]{0,79}")
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")


def case_folder(case: str) -> str:
    """A folder name for a case, valid on every system and different for every case.

    Plain lower-case names stand for themselves; any other name is shortened to what is safe
    and gets a digest of the whole, so that "a/b" and "a::b", or "A" and "a", stay apart.
    """
    if _SAFE.fullmatch(case) and not _RESERVED.fullmatch(case) and not case.endswith("."):
        return case
    slug = re.sub(r"[^a-z0-9]+", "-", case.lower()).strip("-")[:60] or "case"
    return f"{slug}-{hashlib.sha256(case.encode()).hexdigest()[:12]}"


def metrics_of(row: Row, names: Mapping[str, float]) -> dict[str, float | None]:
    """The golden's values of the metrics that either side has.

    Columns of the fixed schema that this run does not speak of count only where they are
    metrics of accuracy and hold a value.
    """
    wanted = [name for name in _ACCURACY if row.get(name) is not None]
    extra = [name for name in row if name not in COLUMNS and row[name] is not None]
    values = {name: row.get(name) for name in [*wanted, *extra, *names]}
    return {name: None if value is None else float(value) for name, value in values.items()}


def describe_changes(old: Row | None, new: Row) -> str:
    """What moved between two rows, for the report of an update."""
    if old is None:
        return "new"
    moved = [
        f"{name} {_text(old.get(name)) or '-'} -> {_text(new.get(name)) or '-'}"
        for name in {**old, **new}
        if name != "recorded_at" and _text(old.get(name)) != _text(new.get(name))
    ]
    return ", ".join(moved) or "nothing moved"


def _as_csv(rows: list[dict[str, Value]]) -> str:
    extra = sorted({name for row in rows for name in row} - set(COLUMNS))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*COLUMNS, *extra])
    for row in rows:
        writer.writerow([_text(row.get(name)) for name in (*COLUMNS, *extra)])
    return buffer.getvalue()


def _text(value: Value) -> str:
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _parsed(path: Path, line: int, row: dict[str | None, Any]) -> dict[str, Value]:
    if None in row:  # csv's name for cells beyond the header's
        raise DataError(f"{path}: line {line} has more cells than the header")
    return {str(name): _value(path, line, str(name), text) for name, text in row.items()}


def _value(path: Path, line: int, name: str, text: str | None) -> Value:
    if text is None or text == "":
        return None
    if _Is.TEXT in _SCHEMA.get(name, _Is.NUMBER):
        return text
    try:
        return int(text) if re.fullmatch(r"-?[0-9]+", text) else float(text)
    except ValueError as error:
        raise DataError(f"{path}: line {line}: {name} is {text!r}, not a number") from error

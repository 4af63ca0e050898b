"""What was found in a source of bars, as plain values."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kronos.data.columns import FEATURES
from kronos.data.reading.faults import Fault, Findings
from kronos.data.reading.loading import FileFacts, Loaded
from kronos.data.reading.survey import jumps_of, spacing_of
from kronos.data.reading.zones import index_of

_NS = 10**9
_REPAIRS = ("sorted", "deduped", "filled", "dropped", "widened")


@dataclass(frozen=True, kw_only=True, slots=True)
class BarsReport:
    """What files of bars hold, what was made of it, and what is wrong with it.

    Counts are of the files, before repairs; gaps and jumps of the bars that were kept.
    """

    files: tuple[str, ...]
    layout: str
    """The source that the columns look like."""
    encoding: str
    rows: int
    """Rows below the headers."""
    bars: int
    """Bars that were kept."""
    symbols: tuple[str, ...]
    bars_per_symbol: tuple[int, int, int]
    """Fewest, median and most."""
    first: str | None
    """Time of the earliest bar, as its clock showed it."""
    last: str | None
    zone: str | None
    """Time zone of the clock; None where nothing was said of it."""
    spacing: float | None
    """The most frequent spacing in seconds."""
    spacing_share: float | None
    gaps: int
    """Spacings larger than that, nights, breaks and weekends among them."""
    long_gaps: int
    """Gaps that are no closure, see `kronos.data.reading.survey.Spacing`."""
    duplicates: int
    """Bars whose symbol and time an earlier one has."""
    unsorted: int
    """Bars that are earlier than the one before."""
    missing: dict[str, int]
    """Missing cells of each column that has any."""
    infinite: int
    not_numbers: int
    """Cells that are neither numbers nor missing."""
    nonpositive_prices: int
    negative_volumes: int
    """Volumes and amounts below zero."""
    outside_range: int
    """Bars whose high and low do not contain open and close."""
    zero_volume: int
    jumps: int
    """Closes far from the one before, see `kronos.data.reading.survey.JUMP_MADS`; no fault."""
    columns: dict[str, str]
    """Our names of the columns in use, and the file's."""
    left_out: tuple[str, ...]
    units_converted: tuple[str, ...]
    changes: dict[str, int]
    """What the repairs changed: bars sorted (moved), deduped (left out), dropped and widened,
    cells filled; only those that did."""
    notes: tuple[str, ...]
    faults: tuple[Fault, ...]
    """What is an error where it is not repaired, each kind with its first place."""

    @property
    def ok(self) -> bool:
        """Whether the bars can be used as they were read."""
        return not self.faults

    def plain(self) -> dict[str, Any]:
        """As JSON takes it, with `ok`."""
        values = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(self).items()
        }
        return {**values, "ok": self.ok}

    def rows_of_table(self) -> list[tuple[str, str]]:
        """What and how much, as texts for a table; what there is none of is left out."""
        shown = {
            key.replace("_", " "): _shown(value)
            for key, value in self.plain().items()
            if key not in ("faults", "ok") and value not in (None, 0, [], {})
        }
        faults = [("fault", fault.message) for fault in self.faults]
        return [*shown.items(), *faults]


def report_of(loaded: Loaded, findings: Findings) -> BarsReport:
    """The report on bars, with what was found on the way."""
    files = loaded.files
    counts = findings.counts
    faults = tuple(findings.faults)
    by_fault = _counter(faults)
    return BarsReport(
        files=tuple(each.file for each in files),
        layout=", ".join(dict.fromkeys(each.layout for each in files)),
        encoding=", ".join(dict.fromkeys(each.encoding for each in files)),
        rows=sum(each.rows for each in files),
        duplicates=counts.get("duplicate", 0),
        unsorted=counts.get("unsorted", 0),
        missing=dict(findings.missing),
        infinite=by_fault("infinite"),
        not_numbers=by_fault("not a number"),
        nonpositive_prices=counts.get("zero or negative", 0),
        negative_volumes=counts.get("negative", 0),
        outside_range=counts.get("range", 0),
        columns=dict(files[0].columns) if files else {},
        left_out=files[0].left_out if files else (),
        units_converted=_together(files, lambda each: each.units),
        changes={name: counts[name] for name in _REPAIRS if counts.get(name)},
        notes=(*_together(files, lambda each: each.notes), *findings.notes, *_unlike(files)),
        faults=faults,
        **_of_bars(loaded),
    )


def _counter(faults: Sequence[Fault]) -> Callable[[str], int]:
    return lambda kind: sum(fault.count for fault in faults if fault.kind == kind)


def _of_bars(loaded: Loaded) -> dict[str, Any]:
    bars = loaded.bars
    if bars is None:
        return {
            **dict.fromkeys(("bars", "gaps", "long_gaps", "zero_volume", "jumps"), 0),
            **dict.fromkeys(("first", "last", "zone", "spacing", "spacing_share")),
            "symbols": (),
            "bars_per_symbol": (0, 0, 0),
        }
    symbols, offsets = bars.offsets()
    lengths = np.diff(offsets)
    spacing = spacing_of(bars)
    ends = index_of(np.array([bars.times.min(), bars.times.max()]), bars.zone)
    return {
        "bars": len(bars),
        "symbols": tuple(symbols),
        "bars_per_symbol": (int(lengths.min()), int(np.median(lengths)), int(lengths.max())),
        "first": str(ends[0]),
        "last": str(ends[1]),
        "zone": bars.zone,
        "spacing": None if spacing is None else spacing.usual / _NS,
        "spacing_share": None if spacing is None else spacing.share,
        "gaps": 0 if spacing is None else spacing.larger,
        "long_gaps": 0 if spacing is None else spacing.long,
        "zero_volume": int((bars.features[:, FEATURES.index("volume")] == 0).sum()),
        "jumps": jumps_of(bars),
    }


def _together(
    files: Sequence[FileFacts], of: Callable[[FileFacts], tuple[str, ...]]
) -> tuple[str, ...]:
    """What is said of the files, each once, with how many it is true of if not of all."""
    counts: dict[str, int] = {}
    for each in files:
        for words in of(each):
            counts[words] = counts.get(words, 0) + 1
    return tuple(
        words if count == len(files) else f"{words} ({count} of {len(files)} files)"
        for words, count in counts.items()
    )


def _unlike(files: Sequence[FileFacts]) -> list[str]:
    others = sum(each.columns != files[0].columns for each in files[1:])
    return [f"{others} files have other columns than the first"] if others else []


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {each}" for key, each in value.items())
    if isinstance(value, list):
        some = ", ".join(str(each) for each in value[:10])
        return some if len(value) <= 10 else f"{some}, ... ({len(value)} in all)"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


__all__ = ["BarsReport", "report_of"]

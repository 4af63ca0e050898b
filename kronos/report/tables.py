"""Capacity rows as text: the terminal's table and the Markdown one (tabulate)."""

from collections.abc import Mapping, Sequence
from typing import Final

from tabulate import tabulate

from kronos.hardware import format_size

Row = Mapping[str, object]

_SIZES: Final = ("footprint", "budget")
_HEADER_WIDTH: Final = 12
"""Longer headers of the terminal's table go on in a second line."""
_FACT_WIDTH: Final = 88
_HIDDEN: Final = ("breakdown", "memory source", "card")


def capacity_table(rows: Sequence[Row], *, style: str = "simple") -> str:
    """The rows as a table in one of tabulate's styles; a figure that is missing shows as "-"."""
    return tabulate(
        [shown(row) for row in rows],
        headers="keys",
        tablefmt=style,
        disable_numparse=True,
        missingval="-",
        maxheadercolwidths=_HEADER_WIDTH if style == "simple" else None,
    )


def card_table(cards: Sequence[Row]) -> str:
    """Cards, live or of the catalogue, as a table."""
    rows = [
        {
            name.replace("_", " "): format_size(value)
            if isinstance(value, int) and name.startswith(("memory", "context"))
            else value
            for name, value in card.items()
        }
        for card in cards
    ]
    return tabulate(rows, headers="keys", disable_numparse=True, missingval="-")


def facts_table(facts: Sequence[tuple[str, str]]) -> str:
    """Names and what is said of them, in two columns; long texts go on in the next line."""
    return tabulate(
        facts, tablefmt="plain", disable_numparse=True, maxcolwidths=[None, _FACT_WIDTH]
    )


def plain_table(rows: Sequence[Row]) -> str:
    """Rows whose figures are texts already; a missing one shows as "-"."""
    return tabulate(rows, headers="keys", disable_numparse=True, missingval="-")


def shown(row: Row) -> dict[str, str | None]:
    """A row's figures as people read them; the footprint says whether it was measured."""
    return {name: _text(row, name) for name in row if name not in _HIDDEN}


def _text(row: Row, name: str) -> str | None:
    value = row[name]
    if value is None:
        return None
    if name == "footprint" and isinstance(value, int):
        return f"{format_size(value)} {row.get('memory source') or ''}".strip()
    if name in _SIZES and isinstance(value, int):
        return format_size(value)
    if isinstance(value, float):
        return _number(name, value)
    return str(value)


def _number(name: str, value: float) -> str:
    if name == "steps/hour":
        return f"{value:,.0f}"
    if name == "MAE vs golden":
        return f"{value:+.2%}"
    if name.endswith("vs golden"):
        return f"{value:.2f} x"
    return f"{value:.4g}"

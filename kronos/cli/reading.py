"""The options that say how bars are to be read, the same in every command that reads some."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kronos.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

    from kronos.data import ReadOptions

BARS = 'A file (.csv, .tsv, .parquet), a folder, a pattern, or "ibm": the shipped daily bars.'

Columns = Annotated[
    list[str] | None, typer.Option(help="open=first: a column under another name, or its number.")
]
Symbol = Annotated[str | None, typer.Option(help="Only the bars of this symbol.")]
Timezone = Annotated[str | None, typer.Option(help="Convert timestamps to it: Asia/Shanghai.")]
Sort = Annotated[bool, typer.Option("--sort", help="Put the bars in order of time.")]
Dedupe = Annotated[str | None, typer.Option(help="first or last: the one of a time to keep.")]
Fill = Annotated[str | None, typer.Option(help="ffill or drop: what to do where a cell is empty.")]
Repair = Annotated[bool, typer.Option("--repair", help="Widen high and low to open and close.")]


def reading_settings(
    columns: list[str] | None,
    symbol: str | None,
    timezone: str | None,
    sort: bool,
    dedupe: str | None,
    fill: str | None,
    repair: bool,
) -> dict[str, Any]:
    """The options that were given, by the names of the settings of a run's `data`.

    Raises:
        ConfigError: a word that an option does not take.
    """
    for option, value, words in (
        ("--dedupe", dedupe, ("first", "last")),
        ("--fill", fill, ("ffill", "drop")),
    ):
        if value not in (None, *words):
            raise ConfigError(f"{option} is {' or '.join(words)}, got {value!r:.60}")
    settings = {
        "columns": tuple(columns) if columns else None,
        "symbol": symbol,
        "timezone": timezone,
        "sort": sort or None,
        "dedupe": dedupe,
        "fill": fill,
        "repair": repair or None,
    }
    return {name: value for name, value in settings.items() if value is not None}


def reading_options(settings: dict[str, Any]) -> "ReadOptions":
    """The same as the reader takes them."""
    from kronos.data import ReadOptions

    return ReadOptions.named(**{"columns": (), **settings})


def one_symbol(source: str, options: "ReadOptions") -> "pd.DataFrame":
    """The bars of a source that has one symbol, or of the one that the options choose."""
    from kronos.data import load_market
    from kronos.errors import DataError

    with working(f"reading {source}"):
        market = load_market(shipped_or(source), options).market
    if len(market.symbols) > 1:
        some = ", ".join(market.symbols[:5]) + (", ..." if len(market.symbols) > 5 else "")
        raise DataError(
            f"{source} has the bars of {len(market.symbols)} symbols, {some}; choose one with "
            "--symbol"
        )
    return market.frame(market.symbols[0])


def shipped_or(source: str) -> Any:
    """The source, or the shipped bars where it is "ibm"."""
    from kronos import samples

    return samples.ibm_daily() if source == "ibm" else source


@contextmanager
def working(what: str) -> Iterator[None]:
    """Say on a terminal what is being done, for as long as it takes."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield

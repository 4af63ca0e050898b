"""`kronos data`: look at bars, keep them ready, rank their features, shock them."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from kronos.cli.app import AsJson, Device, app, at_least_one, chosen_device, plain
from kronos.cli.forecasting import Model, Tokenizer
from kronos.cli.reading import (
    BARS,
    Columns,
    Dedupe,
    Fill,
    Repair,
    Sort,
    Symbol,
    Timezone,
    one_symbol,
    reading_options,
    reading_settings,
    shipped_or,
    working,
)

data = typer.Typer(help="Look at bars, keep them ready, rank their features, shock them.")
app.add_typer(data, name="data")

Source = Annotated[str, typer.Argument(help=BARS)]


@data.command()
def check(
    source: Source,
    columns: Columns = None,
    symbol: Symbol = None,
    timezone: Timezone = None,
    sort: Sort = False,
    dedupe: Dedupe = None,
    fill: Fill = None,
    repair: Repair = False,
    as_json: AsJson = False,
) -> None:
    """Say what files of bars hold and what is wrong with them; exit status 1 if anything is."""
    from kronos.data.reading.files import inspect_bars
    from kronos.report import facts_table

    options = reading_options(
        reading_settings(columns, symbol, timezone, sort, dedupe, fill, repair)
    )
    with working(f"reading {source}"):
        report = inspect_bars(shipped_or(source), options)
    if as_json:
        typer.echo(json.dumps(report.plain(), indent=2, ensure_ascii=False))
    else:
        typer.echo(facts_table(report.rows_of_table()))
    if not report.ok:
        raise typer.Exit(1)


@data.command()
def convert(
    source: Source,
    cache: Annotated[Path, typer.Option(help="The folder to keep the bars in.")] = Path("cache"),
    columns: Columns = None,
    symbol: Symbol = None,
    timezone: Timezone = None,
    sort: Sort = False,
    dedupe: Dedupe = None,
    fill: Fill = None,
    repair: Repair = False,
    as_json: AsJson = False,
) -> None:
    """Read bars once and keep them, so that the next start opens them in no time.

    `kronos train --set data.cache=FOLDER` finds them; so does --bars with the file itself.
    """
    from kronos.data.cache import cache_path, load_market

    options = reading_options(
        reading_settings(columns, symbol, timezone, sort, dedupe, fill, repair)
    )
    with working(f"reading {source}"):
        loaded = load_market(shipped_or(source), options, cache)
    path = cache_path(shipped_or(source), options, cache)
    if as_json:
        found = {"path": str(path), "how": loaded.how, "report": loaded.report}
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    market = loaded.market
    typer.echo(f"{path}: {loaded.how}, {len(market):,} bars of {len(market.symbols):,} symbols")
    for change, count in loaded.report.get("changes", {}).items():
        typer.echo(f"{change}: {count:,}")


@data.command()
def features(
    source: Source = "ibm",
    model: Model = "tiny",
    tokenizer: Tokenizer = None,
    window: Annotated[int, typer.Option(help="Bars that a sample looks back on.")] = 120,
    horizon: Annotated[int, typer.Option(help="Bars behind them.")] = 24,
    sample: Annotated[int, typer.Option(help="Windows to look at, spread over the bars.")] = 128,
    columns: Columns = None,
    symbol: Symbol = None,
    timezone: Timezone = None,
    sort: Sort = False,
    dedupe: Dedupe = None,
    fill: Fill = None,
    repair: Repair = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Rank features by what others tell of them and by what a model loses without them."""
    from kronos.checkpoint import Models, load_predictor
    from kronos.data import Windows, load_market
    from kronos.data.features import rank_features
    from kronos.report import plain_table
    from kronos.train.effects import hidden_loss

    at_least_one("--sample", sample)
    settings = reading_settings(columns, symbol, timezone, sort, dedupe, fill, repair)
    with working(f"reading {source}"):
        market = load_market(shipped_or(source), reading_options(settings)).market
    windows = Windows(market, window, horizon)
    loaded = load_predictor(model, chosen_device(device), tokenizer=tokenizer)
    models = Models(loaded.tokenizer, loaded.model)
    with working("hiding one feature after the other"):
        ranks = rank_features(windows, windows.starts.spread(sample), hidden_loss(models))
    if as_json:
        typer.echo(json.dumps([plain(rank) for rank in ranks], indent=2))
        return
    typer.echo(plain_table([_rank_row(rank) for rank in ranks]))


def _rank_row(rank: Any) -> dict[str, str | None]:
    return {
        "feature": rank.name,
        "loss without it": f"{rank.effect:+.4f}",
        "told by": rank.told_by or "never changes",
        "correlation": f"{rank.redundancy:.3f}" if rank.told_by else None,
    }


@data.command()
def shock(
    source: Source,
    scenario: Annotated[
        str, typer.Option(help="black_swan, ...; without it they are listed.")
    ] = "",
    strength: Annotated[float, typer.Option(help="How much of it; 0 is nothing.")] = 1.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same shock.")] = 0,
    start: Annotated[int | None, typer.Option(help="The first bar of it, from 0.")] = None,
    length: Annotated[int | None, typer.Option(help="How many bars it lasts.")] = None,
    out: Annotated[Path | None, typer.Option(help="A CSV to write; default: stdout.")] = None,
    columns: Columns = None,
    symbol: Symbol = None,
    timezone: Timezone = None,
    sort: Sort = False,
    dedupe: Dedupe = None,
    fill: Fill = None,
    repair: Repair = False,
) -> None:
    """Put a market shock into real bars, to see what forecasts make of it."""
    from kronos.data.scenarios import SCENARIOS, apply_scenario
    from kronos.files import write_text
    from kronos.report import facts_table

    if not scenario:
        typer.echo(facts_table([(name, one.summary) for name, one in SCENARIOS.items()]))
        return
    settings = reading_settings(columns, symbol, timezone, sort, dedupe, fill, repair)
    bars = one_symbol(source, reading_options(settings))
    shocked = apply_scenario(
        bars, scenario, strength=strength, seed=seed, start=start, length=length
    )
    text = shocked.to_csv(float_format="%.9g", lineterminator="\n")
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)

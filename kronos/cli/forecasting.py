"""`kronos predict`."""

import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kronos.cli.app import AsJson, Device, app, at_least_one, chosen_device
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
)
from kronos.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pandas as pd
    from pandas.tseries.offsets import CustomBusinessDay

Bars = Annotated[str, typer.Option(help=BARS)]
Model = Annotated[
    str, typer.Option(help='"tiny", the folder of a run or of a model, or a hub id (owner/name).')
]
Tokenizer = Annotated[
    str | None, typer.Option(help="A folder or a hub id; runs and released models know theirs.")
]
Paths = Annotated[int, typer.Option(help="Sampled paths to average.")]
Quantiles = Annotated[
    str | None, typer.Option(help="Of the paths, such as 0.1,0.5,0.9: more columns of the CSV.")
]
Seed = Annotated[int, typer.Option(help="The same seed draws the same paths.")]
TopK = Annotated[int, typer.Option(help="The likeliest ids to sample from; 0 is all.")]
TopP = Annotated[float, typer.Option(help="Share of probability to sample from; 1 is all.")]
Stride = Annotated[int, typer.Option(help="Bars that a full context drops at once.")]
ClipVolume = Annotated[bool, typer.Option("--clip-volume", help="No volume below 0.")]
RepairOhlc = Annotated[bool, typer.Option("--repair-ohlc", help="High and low are the extremes.")]
Holidays = Annotated[
    Path | None, typer.Option(help="A file of days without bars, such as 2026-12-25, one a line.")
]
MaxContext = Annotated[int | None, typer.Option(help="Most bars the model sees; default: its own.")]
Precision = Annotated[str | None, typer.Option(help="float32, bfloat16 or float16.")]
Compile = Annotated[bool, typer.Option("--compile", help="Use torch.compile.")]
Plot = Annotated[Path | None, typer.Option(help="A picture to draw: .png, .svg or .html.")]

_BANDS = (0.1, 0.5, 0.9)
"""What a picture shows of several paths where no quantiles are asked for."""
_DRAWN = 60
"""Bars of history that a picture has at least, where there are so many."""


@app.command()
def predict(
    horizon: Annotated[int, typer.Option(help="Bars to forecast.")],
    bars: Bars = "ibm",
    model: Model = "tiny",
    tokenizer: Tokenizer = None,
    window: Annotated[int, typer.Option(help="Latest bars to look back on.")] = 400,
    paths: Paths = 1,
    quantiles: Quantiles = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 1.0,
    top_k: TopK = 0,
    top_p: TopP = 0.9,
    seed: Seed = 0,
    context_stride: Stride = 1,
    clip_volume: ClipVolume = False,
    repair_ohlc: RepairOhlc = False,
    holidays: Holidays = None,
    max_context: MaxContext = None,
    precision: Precision = None,
    compile: Compile = False,
    plot: Plot = None,
    out: Annotated[Path | None, typer.Option(help="A CSV to write; default: stdout.")] = None,
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
    """Forecast the bars that follow a file of bars."""
    from kronos.checkpoint import load_predictor
    from kronos.data.columns import FEATURES

    for option, value in (("--horizon", horizon), ("--window", window), ("--paths", paths)):
        at_least_one(option, value)
    asked = _quantiles(quantiles, paths)
    _check_plot(plot)
    calendar = None if holidays is None else _calendar(holidays)
    settings = reading_settings(columns, symbol, timezone, sort, dedupe, fill, repair)
    history = one_symbol(bars, reading_options(settings))
    predictor = load_predictor(
        model,
        chosen_device(device),
        tokenizer=tokenizer,
        max_context=max_context,
        precision=precision,
        compile=compile,
    )
    ahead = min(horizon, predictor.max_context + 1)  # more are refused, and take long to list
    shown = asked or (_BANDS if plot and paths > 1 else ())
    forecast = predictor.predict(
        history.iloc[-window:],
        history.index[-window:],
        _future(history, ahead, calendar),
        horizon,
        T=temperature,
        top_k=top_k,
        top_p=top_p,
        sample_count=paths,
        verbose=sys.stderr.isatty(),
        seed=seed,
        quantiles=shown,
        context_stride=context_stride,
        clip_volume=clip_volume,
        repair_ohlc=repair_ohlc,
    )
    _write_forecast(forecast if asked else forecast[[*FEATURES]], out, as_json)
    if plot is not None:
        _draw(plot, bars, paths, history.iloc[-window:], forecast, shown)


def _quantiles(text: str | None, paths: int) -> tuple[float, ...]:
    if text is None:
        return ()
    try:
        found = tuple(float(word) for word in text.split(","))
    except ValueError:
        raise ConfigError(
            f"--quantiles are numbers between 0 and 1, such as 0.1,0.5,0.9; got {text!r:.60}"
        ) from None
    if paths < 2:
        raise ConfigError(f"--quantiles take --paths 2 or more, got {paths}")
    return found


def _check_plot(plot: Path | None) -> None:
    from kronos.report import check_chart_path

    if plot is not None:
        check_chart_path(plot)


def _calendar(holidays: Path) -> "CustomBusinessDay":
    """Monday to Friday but for the days of a file; what follows a # is a comment."""
    from pandas.tseries.offsets import CustomBusinessDay

    days = []
    lines = holidays.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        if text := line.partition("#")[0].strip():
            try:
                days.append(date.fromisoformat(text))
            except ValueError:
                raise DataError(
                    f"{holidays}, line {number}: {text!r:.60} is no day; write it as 2026-12-25"
                ) from None
    return CustomBusinessDay(holidays=days)


def _future(
    history: "pd.DataFrame", count: int, calendar: "CustomBusinessDay | None"
) -> "pd.DatetimeIndex":
    """By the sessions of the whole file, also where the model looks back on its last bars."""
    import pandas as pd

    from kronos.data.sessions import future_timestamps

    return future_timestamps(pd.DatetimeIndex(history.index), count, calendar)


def _write_forecast(forecast: "pd.DataFrame", out: Path | None, as_json: bool) -> None:
    from kronos.files import write_text

    forecast = forecast.rename_axis(index="timestamps")
    if as_json:
        text = forecast.to_json(orient="table", index=True) + "\n"
    else:
        text = forecast.to_csv(float_format="%.9g", lineterminator="\n")
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)


def _draw(
    plot: Path,
    bars: str,
    paths: int,
    history: "pd.DataFrame",
    forecast: "pd.DataFrame",
    quantiles: tuple[float, ...],
) -> None:
    from kronos.report import ForecastChart, write_forecast_chart

    made = f"mean of {paths} paths" if paths > 1 else "one path"
    chart = ForecastChart(
        f"{Path(bars).stem}: {len(forecast)} bars ahead, {made}",
        history.iloc[-max(_DRAWN, 3 * len(forecast)) :],
        forecast,
        {part: forecast[f"close_q{part:g}"].tolist() for part in quantiles},
    )
    write_forecast_chart(plot, chart)

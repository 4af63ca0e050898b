"""`kronos predict`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kronos.cli.app import AsJson, Device, app, at_least_one, chosen_device

if TYPE_CHECKING:
    import pandas as pd

Bars = Annotated[str, typer.Option(help='A CSV of bars, or "ibm": the shipped daily bars.')]


@app.command()
def predict(
    horizon: Annotated[int, typer.Option(help="Bars to forecast.")],
    bars: Bars = "ibm",
    model: Annotated[str, typer.Option(help='"tiny" or the folder of a run.')] = "tiny",
    window: Annotated[int, typer.Option(help="Latest bars to look back on.")] = 400,
    paths: Annotated[int, typer.Option(help="Sampled paths to average.")] = 1,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 1.0,
    top_p: Annotated[float, typer.Option(help="Share of probability to sample from.")] = 0.9,
    seed: Annotated[int, typer.Option()] = 0,
    out: Annotated[Path | None, typer.Option(help="A CSV to write; default: stdout.")] = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Forecast the bars that follow a file of bars."""
    import pandas as pd

    from kronos.checkpoint import load_predictor
    from kronos.data.sessions import future_timestamps

    for option, value in (("--horizon", horizon), ("--window", window), ("--paths", paths)):
        at_least_one(option, value)
    history = _read_bars(bars)
    predictor = load_predictor(model, chosen_device(device))
    ahead = min(horizon, predictor.max_context + 1)  # more are refused, and take long to list
    future = future_timestamps(pd.DatetimeIndex(history.index), ahead)
    forecast = predictor.predict(
        history.iloc[-window:],
        history.index[-window:],
        future,
        horizon,
        T=temperature,
        top_p=top_p,
        sample_count=paths,
        verbose=sys.stderr.isatty(),
        seed=seed,
    )
    _write_forecast(forecast, out, as_json)


def _read_bars(name: str) -> "pd.DataFrame":
    from kronos import samples
    from kronos.data import read_bars

    return read_bars(samples.ibm_daily() if name == "ibm" else name)


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

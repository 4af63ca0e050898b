"""The command line. Handlers translate; each imports what it needs when it is called.

Exit status: 0 done, 1 a gate or a run failed, 2 bad input, told in one line on stderr.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from kronos import __version__
from kronos.errors import ConfigError, KronosError

if TYPE_CHECKING:
    import pandas as pd

    from kronos.config import RunConfig

app = typer.Typer(
    help="Train, predict and plan with Kronos, a foundation model for candlesticks.",
    pretty_exceptions_enable=False,
    add_completion=False,
)

# click's own, wherever this release of typer keeps it
_UsageError: Any = typer.BadParameter.__mro__[1]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Bars = Annotated[str, typer.Option(help='A CSV of bars, or "ibm": the shipped daily bars.')]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; default: the card if any.")]


def main() -> None:
    """Run the command line; what a user can mend ends in one line and exit status 2."""
    try:
        status = app(standalone_mode=False)  # typer would tell of a wrong option in a box
    except KronosError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename or 'file'}: {error.strerror or error}")
    except _UsageError as error:
        _fail(f"{error.format_message().rstrip('.')}; see kronos --help")
    raise SystemExit(status)


def _fail(message: str, status: int = 2) -> NoReturn:
    print(f"kronos: {' '.join(message.splitlines())}", file=sys.stderr)
    raise SystemExit(status)


@app.callback(invoke_without_command=True)
def _alone(
    context: typer.Context, version: Annotated[bool, typer.Option("--version")] = False
) -> None:
    if version:
        typer.echo(f"kronos {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def train(
    config: Annotated[str, typer.Argument(help="A recipe (baseline, small-gpu, ...) or a YAML.")],
    model: Annotated[str | None, typer.Option(help="tiny, mini, small, base or large.")] = None,
    bars: Annotated[str | None, typer.Option(help="A CSV of bars; default: the recipe's.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="training.batch_size=16, ...")
    ] = None,
    out: Annotated[Path, typer.Option(help="The run's folder is made in here.")] = Path("runs"),
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train tokenizer and forecaster, or fine-tune a pretrained forecaster, on bars."""
    run = _run_config(config, model, bars, overrides or [])
    from kronos.train import TrainingStopped
    from kronos.train import train as train_run

    try:
        with _training_bar() as show:
            results = train_run(run, out / run.name, device=_device(device), show=show)
    except TrainingStopped as stop:  # the input was good: the run failed
        _fail(str(stop), status=1)
    if as_json:
        typer.echo(json.dumps([_plain(result) for result in results], indent=2))
        return
    for result in results:
        typer.echo(
            f"{result.part}: validation loss {result.first_validation:.6g} -> "
            f"{result.best_validation:.6g} at step {result.best_step}; {result.folder}"
        )


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
        _at_least_one(option, value)
    history = _read_bars(bars)
    predictor = load_predictor(model, _device(device))
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


@app.command()
def gpus(as_json: AsJson = False) -> None:
    """List the cards of this machine and of the catalogue."""
    from kronos.hardware import CATALOGUE, live_gpus
    from kronos.report import card_table

    live, reason = live_gpus()
    if as_json:
        cards = [_plain(card) for card in CATALOGUE.values()]
        live_cards = [_plain(gpu) for gpu in live]
        typer.echo(json.dumps({"live": live_cards, "reason": reason, "catalogue": cards}, indent=2))
        return
    typer.echo("This machine")
    typer.echo(card_table([_plain(gpu) for gpu in live]) if live else f"no card ({reason})")
    typer.echo("\nCatalogue")
    typer.echo(card_table([_plain(card) for card in CATALOGUE.values()]))


def _run_config(
    name: str, model: str | None, bars: str | None, overrides: list[str]
) -> "RunConfig":
    from kronos.config import load_config
    from kronos.recipes import model_shape, recipe

    run = load_config(Path(name)) if name.endswith((".yaml", ".yml")) else recipe(name)
    if model is not None:
        run = run.model_copy(update={"model": model_shape(model)})
    if bars is not None:
        run = run.model_copy(update={"data": run.data.model_copy(update={"bars": bars})})
    return run.with_overrides(overrides)


@contextmanager
def _training_bar() -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def show(progress: Any) -> None:
            if progress.part not in tasks:
                tasks[progress.part] = bar.add_task(progress.part, total=progress.steps)
            best = "-" if progress.best is None else f"{progress.best:.4f}"
            text = (
                f"{progress.part} loss {progress.loss:.4f} best {best} "
                f"{progress.steps_per_hour:,.0f} steps/h"
            )
            bar.update(tasks[progress.part], completed=progress.step, description=text)

        yield show


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


def _at_least_one(option: str, value: int) -> None:
    if value < 1:
        raise ConfigError(f"{option} must be at least 1, got {value}")


def _device(name: str | None) -> str:
    from kronos.measure import default_device

    best = default_device()
    if name not in (None, "cpu", best):
        raise ConfigError(f"--device is cpu, or cuda where torch finds a card; got {name!r:.60}")
    return name or best


def _plain(value: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        name: str(field) if isinstance(field, Path) else field
        for name, field in asdict(value).items()
    }

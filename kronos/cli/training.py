"""`kronos train`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from kronos.cli.app import (
    AsJson,
    Config,
    Device,
    Model,
    Overrides,
    app,
    chosen_device,
    fail,
    plain,
    run_config,
)
from kronos.cli.reading import (
    BARS,
    Columns,
    Dedupe,
    Fill,
    Repair,
    Sort,
    Symbol,
    Timezone,
    reading_settings,
)


@app.command()
def train(
    config: Config,
    model: Model = None,
    bars: Annotated[str | None, typer.Option(help=f"{BARS} Default: the recipe's.")] = None,
    columns: Columns = None,
    symbol: Symbol = None,
    timezone: Timezone = None,
    sort: Sort = False,
    dedupe: Dedupe = None,
    fill: Fill = None,
    repair: Repair = False,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="The run's folder is made in here.")] = Path("runs"),
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train tokenizer and forecaster, or fine-tune a pretrained forecaster, on bars."""
    settings = reading_settings(columns, symbol, timezone, sort, dedupe, fill, repair)
    run = run_config(config, model, bars, overrides, settings)
    from kronos.train import TrainingStopped
    from kronos.train import train as train_run

    try:
        with _training_bar() as show:
            results = train_run(run, out / run.name, device=chosen_device(device), show=show)
    except TrainingStopped as stop:  # the input was good: the run failed
        fail(str(stop), status=1)
    if as_json:
        typer.echo(json.dumps([plain(result) for result in results], indent=2))
        return
    for result in results:
        typer.echo(
            f"{result.part}: validation loss {result.first_validation:.6g} -> "
            f"{result.best_validation:.6g} at step {result.best_step}; waited "
            f"{result.data_wait:.1%} of the time for data; {result.folder}"
        )


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

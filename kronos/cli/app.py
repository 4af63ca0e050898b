"""The application: its start and its errors, and what several commands share.

Exit status: 0 done, 1 a gate or a run failed, 2 bad input, told in one line on stderr.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from kronos import __version__
from kronos.errors import ConfigError, KronosError

if TYPE_CHECKING:
    from kronos.config import RunConfig

app = typer.Typer(
    help="Train, predict and plan with Kronos, a foundation model for candlesticks.",
    pretty_exceptions_enable=False,
    add_completion=False,
)

# click's own, wherever this release of typer keeps it
_UsageError: Any = typer.BadParameter.__mro__[1]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Config = Annotated[str, typer.Argument(help="A recipe (baseline, small-gpu, ...) or a YAML.")]
Model = Annotated[str | None, typer.Option(help="tiny, mini, small, base or large.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="training.batch_size=16, ...")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; default: the card if any.")]


def main() -> None:
    """Run the command line; what a user can mend ends in one line and exit status 2."""
    try:
        status = app(standalone_mode=False)  # typer would tell of a wrong option in a box
    except KronosError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or 'file'}: {error.strerror or error}")
    except _UsageError as error:
        fail(f"{error.format_message().rstrip('.')}; see kronos --help")
    raise SystemExit(status)


def fail(message: str, status: int = 2) -> NoReturn:
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


def run_config(
    name: str,
    model: str | None,
    bars: str | None,
    overrides: list[str] | None,
    reading: dict[str, Any] | None = None,
) -> "RunConfig":
    """A recipe or a file, and what is to differ from it."""
    from kronos.config import load_config
    from kronos.recipes import model_shape, recipe

    run = load_config(Path(name)) if name.endswith((".yaml", ".yml")) else recipe(name)
    if model is not None:
        run = run.model_copy(update={"model": model_shape(model)})
    update = ({} if bars is None else {"bars": bars}) | (reading or {})
    run = run.model_copy(update={"data": run.data.model_copy(update=update)})
    return run.with_overrides(overrides or [])


def at_least_one(option: str, value: int) -> None:
    """ConfigError for a number of an option below 1."""
    if value < 1:
        raise ConfigError(f"{option} must be at least 1, got {value}")


def chosen_device(name: str | None) -> str:
    """The device asked for, or the best there is."""
    from kronos.measure import default_device

    best = default_device()
    if name not in (None, "cpu", best):
        raise ConfigError(f"--device is cpu, or cuda where torch finds a card; got {name!r:.60}")
    return name or best


def plain(value: Any) -> dict[str, Any]:
    """A dataclass as JSON takes it."""
    from dataclasses import asdict

    return {
        name: str(field) if isinstance(field, Path) else field
        for name, field in asdict(value).items()
    }

"""`kronos estimate` and `kronos snapshot`: memory of cards that are not there."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kronos.cli.app import AsJson, Config, Model, Overrides, app, at_least_one, plain, run_config

if TYPE_CHECKING:
    from kronos.capacity import AllocatorSettings, MemoryEstimate
    from kronos.capacity.snapshot import DeviceHistory
    from kronos.config import RunConfig
    from kronos.hardware import Card

Budget = Annotated[str | None, typer.Option(help='"12GB", or a card of `kronos gpus`.')]
Gpu = Annotated[str | None, typer.Option(help="The card, see `kronos gpus`.")]
Expandable = Annotated[
    bool, typer.Option("--expandable-segments", help="With PyTorch's expandable segments.")
]


@app.command()
def estimate(
    config: Config,
    gpu: Gpu = None,
    budget: Budget = None,
    batch_size: Annotated[
        list[int] | None, typer.Option(help="Another than the configuration's; may be repeated.")
    ] = None,
    model: Model = None,
    overrides: Overrides = None,
    expandable_segments: Expandable = False,
    picture: Annotated[
        Path | None, typer.Option(help="Memory over the steps, as .png, .svg or .html.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predict what fine-tuning takes of a card, without one; where it does not fit, what helps."""
    run = run_config(config, model, None, overrides)
    for size in batch_size or ():
        at_least_one("--batch-size", size)
    from kronos.capacity import AllocatorSettings
    from kronos.report import estimate_text

    card, limit = _card_and_limit(gpu, budget)
    settings = AllocatorSettings(expandable_segments=expandable_segments)
    found = []
    with _progress() as told:
        for size in batch_size or [run.training.batch_size]:
            sized = run.with_overrides([f"training.batch_size={size}"])
            told(f"tracing a batch of {size}")
            traced = _traced(sized, card, limit, settings)
            found.append(_explained(sized, traced, card, limit))
        if limit is not None and len(found) == 1 and not found[0]["fits"]:
            found[0]["remedies"] = _remedies(sized, card, limit - traced.context, told)
    if picture is not None:
        _draw(picture, traced, limit, sized)  # of the last batch size
    typer.echo(json.dumps(found, indent=2) if as_json else estimate_text(found))


@app.command()
def snapshot(
    file: Annotated[Path, typer.Argument(help="From torch.cuda.memory._dump_snapshot.")],
    gpu: Gpu = None,
    budget: Budget = None,
    expandable_segments: Expandable = False,
    as_json: AsJson = False,
) -> None:
    """Peaks of a recorded run, and whether it would have fit another card."""
    from kronos.capacity.snapshot import read_snapshot
    from kronos.hardware import DEFAULT_CONTEXT
    from kronos.report import snapshot_text

    card, limit = _card_and_limit(gpu, budget)
    context = card.context if card else DEFAULT_CONTEXT
    capacity = None if limit is None else max(limit - context, 0)
    found = [
        {
            "device": device.index,
            "budget": limit,
            "context": context,
            "remarks": list(device.remarks),
            "answers": [
                _judged(device, capacity, expandable)
                for expandable in ((False, True) if expandable_segments else (False,))
            ],
        }
        for device in read_snapshot(file).devices
    ]
    typer.echo(json.dumps(found, indent=2) if as_json else snapshot_text(found))


def _card_and_limit(gpu: str | None, budget: str | None) -> "tuple[Card | None, int | None]":
    """The card to plan for and the bytes that may be taken of it, the budget before the card's."""
    from kronos.hardware import find_card, parse_budget

    card = find_card(gpu) if gpu else None
    limit = card.memory if card else None
    if budget is not None:
        limit, named = parse_budget(budget)
        card = card or named
    return card, limit


def _traced(
    run: "RunConfig", card: "Card | None", limit: int | None, settings: "AllocatorSettings"
) -> "MemoryEstimate":
    from kronos.hardware import DEFAULT_CONTEXT
    from kronos.plan import estimate_training

    context = card.context if card else DEFAULT_CONTEXT
    capacity = None if limit is None else limit - context
    return estimate_training(run, card=card, capacity=capacity, settings=settings)


def _explained(
    run: "RunConfig", traced: "MemoryEstimate", card: "Card | None", limit: int | None
) -> dict[str, Any]:
    from kronos.capacity import Fit
    from kronos.plan import rule_of_thumb

    training, thumb = run.training, rule_of_thumb(run, traced)
    outcome = traced.outcome
    return {
        "run": run.name,
        "model": run.model.name,
        "card": card.name if card else None,
        "budget": limit,
        "batch_size": training.batch_size,
        "accumulation": training.accumulation,
        "window": training.window,
        "precision": training.precision,
        "checkpointing": training.checkpointing,
        "allocated": traced.peak_allocated,
        "reserved": traced.peak_reserved,
        "context": traced.context,
        "footprint": traced.footprint,
        "smallest_budget": traced.smallest_capacity() + traced.context,
        "breakdown": dict(traced.breakdown),
        "modules": dict(traced.modules),
        "peak_phase": traced.peak_phase,
        "peak_op": traced.peak_op,
        "rule_of_thumb": {**plain(thumb), "total": thumb.total},
        "fits": outcome is None or outcome.fit is not Fit.DOES_NOT_FIT,
        "outcome": None if outcome is None else plain(outcome),
    }


def _remedies(
    run: "RunConfig", card: "Card | None", capacity: int, told: Any
) -> list[dict[str, Any]]:
    from kronos.remedies import largest_batch, remedies

    found = []
    for remedy in remedies(run, card=card, capacity=capacity):
        told(f"traced {remedy.name}")
        found.append(plain(remedy))
    told("looking for the largest batch")
    largest = largest_batch(run, card=card, capacity=capacity)
    return [*found, {"name": "largest batch", "batch_size": largest}]


def _judged(device: "DeviceHistory", capacity: int | None, expandable: bool) -> dict[str, Any]:
    """Peaks where nothing limits the allocator, and what becomes of the run under a capacity."""
    from kronos.capacity.snapshot import judge_snapshot

    as_recorded_or_expandable = True if expandable else None
    free = judge_snapshot(device, None, expandable_segments=as_recorded_or_expandable).replay
    judged = judge_snapshot(device, capacity, expandable_segments=as_recorded_or_expandable)
    return {
        "expandable_segments": expandable,
        "peak_allocated": free.peak_allocated,
        "peak_reserved": free.peak_reserved,
        "fits": judged.fits,
        "flushes": len(judged.replay.flushes),
        "oom": None if judged.replay.oom is None else plain(judged.replay.oom),
    }


def _draw(path: Path, traced: "MemoryEstimate", limit: int | None, run: "RunConfig") -> None:
    from kronos.report import MemoryCurve, write_figure

    timeline, training = traced.timeline, run.training
    curve = MemoryCurve(
        title=f"{run.name} ({run.model.name}), batch {training.batch_size}, "
        f"window {training.window}, {training.precision}",
        allocated=timeline.allocated,
        starts=timeline.starts,
        warmup=traced.trace.warmup,
        phases=timeline.phases,
        reserved=traced.peak_reserved,
        limit=None if limit is None else limit - traced.context,
    )
    write_figure(path, curve)


@contextmanager
def _progress() -> Iterator[Any]:
    """Says on a terminal what is being traced."""
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("tracing") as status:
        yield status.update

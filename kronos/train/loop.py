"""Training from the first step to the best weights on disk."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kronos.checkpoint import FORECASTER, TOKENIZER, Models, best_model, build_models
from kronos.config import RunConfig, TrainingConfig
from kronos.errors import KronosError
from kronos.measure import Stopwatch
from kronos.train.data import load_data
from kronos.train.phase import Phase, forecaster_phase, tokenizer_phase
from kronos.train.tokens import run_tokens


class TrainingStopped(KronosError):
    """Training cannot go on; what was saved before stays."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a progress bar shows after a step."""

    part: str
    step: int
    steps: int
    loss: float
    best: float | None
    """Lowest validation loss so far."""
    steps_per_hour: float
    data_wait: float
    """Share of the steps' time, so far, in which they waited for their batches."""


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """How one phase went."""

    part: str
    first_validation: float
    """Validation loss before the first step."""
    best_validation: float
    best_step: int
    data_wait: float
    """Share of the steps' time in which they waited for their batches."""
    folder: Path
    """Where the best weights are."""


def train(
    config: RunConfig,
    folder: Path,
    *,
    device: str,
    show: Callable[[Progress], None] = lambda progress: None,
) -> list[PhaseResult]:
    """Train the tokenizer, then the forecaster on the tokenizer's best weights.

    With pretrained weights the tokenizer stays as it is and only the forecaster is trained.
    Each phase keeps its best weights by validation loss in `folder`, saved atomically.

    Raises:
        DataError, ConfigError, WeightsError: what the run is made of cannot be used.
        TrainingStopped: the loss is no longer a number.
    """
    data = load_data(config)
    models = build_models(config.model, device=device, seed=config.training.seed)
    results = []
    if config.model.pretrained is None:
        first = tokenizer_phase(models, data, config.training)
        results.append(_fit(first, TOKENIZER, config.training, folder, show))
        trained = type(models.tokenizer).from_pretrained(best_model(folder, TOKENIZER))
        models = Models(trained.to(device), models.forecaster)
    tokens = run_tokens(models.tokenizer, data, config)
    # checks, before anything is saved
    phase = forecaster_phase(models, data, config.training, tokens)
    if config.model.pretrained is not None:
        models.tokenizer.save_pretrained(best_model(folder, TOKENIZER))
    results.append(_fit(phase, FORECASTER, config.training, folder, show))
    return results


def _fit(
    phase: Phase[Any],
    part: str,
    training: TrainingConfig,
    folder: Path,
    show: Callable[[Progress], None],
) -> PhaseResult:
    target = best_model(folder, part)
    first = best = phase.validate()
    best_step = 0
    phase.model.save_pretrained(target)
    stopwatch = Stopwatch(str(next(phase.model.parameters()).device))
    seconds = 0.0
    for step in range(1, training.steps + 1):
        result, step_seconds = stopwatch.timed(phase)
        seconds += step_seconds
        loss = float(result.loss)
        validation = best
        if step % training.validate_every == 0 or step == training.steps:
            validation = phase.validate()
        if not (math.isfinite(loss) and math.isfinite(validation)):
            raise TrainingStopped(
                f"{part}: the loss is {loss} at step {step}, in validation {validation}; the best "
                f"weights, of step {best_step}, are in {target}; lower training.learning_rate"
            )
        if validation < best:
            best, best_step = validation, step
            phase.model.save_pretrained(target)
        wait = phase.feed.seconds_waited / seconds
        show(Progress(part, step, training.steps, loss, best, 3600 * step / seconds, wait))
    return PhaseResult(part, first, best, best_step, phase.feed.seconds_waited / seconds, target)

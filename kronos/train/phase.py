"""The two phases of training, tokenizer and forecaster, as objects that step and validate."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import mse_loss
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR

from kronos.checkpoint import Models
from kronos.config import TrainingConfig
from kronos.model import Kronos, KronosTokenizer
from kronos.model.mode import evaluating
from kronos.train.feed import BarBatch, Feed, RunData, bar_batch, spread
from kronos.train.step import (
    StepOptions,
    StepResult,
    autocast,
    forecaster_loss,
    make_optimizer,
    tokenize,
    training_step,
)

VALIDATION_WINDOWS = 256
_VALIDATION_BATCH = 64

LossOf = Callable[[BarBatch], Tensor]


class Phase:
    """One model being trained: `step()` makes one optimizer step, `validate()` looks at it."""

    def __init__(
        self,
        model: KronosTokenizer | Kronos,
        loss_of: LossOf,
        validation_loss_of: LossOf,
        data: RunData,
        training: TrainingConfig,
    ) -> None:
        self.model = model
        self._loss_of = loss_of
        self._validation_loss_of = validation_loss_of
        self._data = data
        self._training = training
        self._device = str(next(model.parameters()).device)
        self._options = step_options(training)
        self._feed = Feed(data, training, self._device)
        self._optimizer = make_optimizer(
            list(model.parameters()),
            learning_rate=training.learning_rate,
            weight_decay=training.weight_decay,
            fused=training.fused_optimizer,
        )
        self._scheduler = _scheduler(self._optimizer, training)
        self._steps = 0
        model.train()
        torch.manual_seed(training.seed)  # dropout and the drawn coarse tokens

    def __call__(self) -> StepResult:
        """Make one step on the next micro-batches of the feed."""
        batches = self._feed.take(self._training.accumulation)
        result = training_step(self._loss_of, batches, self._optimizer, self._options)
        self._steps += 1
        if self._scheduler is not None and self._steps <= self._training.steps:
            self._scheduler.step()
        return result

    @torch.no_grad()
    def validate(self) -> float:
        """Mean loss over windows spread evenly across the validation bars."""
        starts = spread(self._data.validation, VALIDATION_WINDOWS)
        total = 0.0
        with evaluating(self.model), autocast(torch.device(self._device), self._options.precision):
            for first in range(0, len(starts), _VALIDATION_BATCH):
                chosen = starts[first : first + _VALIDATION_BATCH]
                batch = bar_batch(self._data.windows, chosen, self._device)
                total += float(self._validation_loss_of(batch)) * len(chosen)
        return total / len(starts)


def step_options(training: TrainingConfig) -> StepOptions:
    """The step's options of a training configuration."""
    return StepOptions(
        precision=training.precision,
        checkpointing=training.checkpointing,
        max_grad_norm=training.max_grad_norm,
        teacher_forcing=training.teacher_forcing,
    )


def tokenizer_phase(models: Models, data: RunData, training: TrainingConfig) -> Phase:
    """Train the tokenizer to reconstruct bars; validated on the full reconstruction's mse."""
    tokenizer, checkpointing = models.tokenizer, training.checkpointing

    def loss_of(batch: BarBatch) -> Tensor:
        return tokenizer.training_loss(batch.features, checkpointing=checkpointing)

    def validation_loss_of(batch: BarBatch) -> Tensor:
        (_, reconstruction), _, _, _ = tokenizer(batch.features)
        return mse_loss(reconstruction, batch.features)

    return Phase(tokenizer, loss_of, validation_loss_of, data, training)


def forecaster_phase(models: Models, data: RunData, training: TrainingConfig) -> Phase:
    """Train the forecaster on the tokens of a tokenizer that stays as it is.

    Validated with teacher forcing and causal attention, so that the loss neither draws random
    tokens nor looks ahead.
    """
    models.tokenizer.eval().requires_grad_(False)
    options = step_options(training)
    look = StepOptions(teacher_forcing=True)
    return Phase(
        models.forecaster,
        partial(_loss_on_tokens, models, options),
        partial(_loss_on_tokens, models, look),
        data,
        training,
    )


def _loss_on_tokens(models: Models, options: StepOptions, batch: BarBatch) -> Tensor:
    tokens = tokenize(models.tokenizer, batch.features, batch.stamps)
    return forecaster_loss(models.forecaster, tokens, options)


def _scheduler(optimizer: torch.optim.Optimizer, training: TrainingConfig) -> LRScheduler | None:
    if training.schedule == "constant":
        return None
    return OneCycleLR(
        optimizer,
        max_lr=training.learning_rate,
        total_steps=training.steps + 1,
        pct_start=0.03,
        div_factor=10,
    )

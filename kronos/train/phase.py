"""The two phases of training, tokenizer and forecaster, as objects that step and validate."""

from collections.abc import Callable
from functools import partial
from typing import Generic

import torch
from torch import Tensor
from torch.nn.functional import mse_loss
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR

from kronos.checkpoint import Models
from kronos.config import TrainingConfig
from kronos.model import Kronos, KronosTokenizer
from kronos.model.mode import evaluating
from kronos.train.data import RunData
from kronos.train.feed import BarBatch, BarSource, BatchSource, BatchT, Feed, to_device
from kronos.train.step import (
    StepOptions,
    StepResult,
    TokenBatch,
    autocast,
    forecaster_loss,
    make_optimizer,
    tokenize,
    training_step,
)
from kronos.train.tokens import TokenSource, TokenTable

VALIDATION_WINDOWS = 256
_VALIDATION_BATCH = 64


class Phase(Generic[BatchT]):
    """One model being trained: calling it makes one optimizer step, `validate()` looks at it."""

    def __init__(
        self,
        model: KronosTokenizer | Kronos,
        loss_of: Callable[[BatchT], Tensor],
        validation_loss_of: Callable[[BatchT], Tensor],
        source: BatchSource[BatchT],
        data: RunData,
        training: TrainingConfig,
    ) -> None:
        self.model = model
        self._loss_of = loss_of
        self._validation_loss_of = validation_loss_of
        self._source = source
        self._data = data
        self._training = training
        self._device = str(next(model.parameters()).device)
        self._options = step_options(training)
        self.feed = Feed(source, training, self._device, workers=data.workers)
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
        batches = self.feed.take(self._training.accumulation)
        result = training_step(self._loss_of, batches, self._optimizer, self._options)
        self._steps += 1
        if self._scheduler is not None and self._steps <= self._training.steps:
            self._scheduler.step()
        return result

    @torch.no_grad()
    def validate(self) -> float:
        """Mean loss over windows spread evenly across the validation bars."""
        starts = self._data.validation.spread(VALIDATION_WINDOWS)
        total = 0.0
        with evaluating(self.model), autocast(torch.device(self._device), self._options.precision):
            for first in range(0, len(starts), _VALIDATION_BATCH):
                chosen = starts[first : first + _VALIDATION_BATCH]
                batch = to_device(self._source.gather(chosen), self._device)
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


def tokenizer_phase(models: Models, data: RunData, training: TrainingConfig) -> Phase[BarBatch]:
    """Train the tokenizer to reconstruct bars; validated on the full reconstruction's mse."""
    tokenizer, checkpointing = models.tokenizer, training.checkpointing

    def loss_of(batch: BarBatch) -> Tensor:
        return tokenizer.training_loss(batch.features, checkpointing=checkpointing)

    def validation_loss_of(batch: BarBatch) -> Tensor:
        (_, reconstruction), _, _, _ = tokenizer(batch.features)
        return mse_loss(reconstruction, batch.features)

    source = BarSource(data.windows, data.train)
    return Phase(tokenizer, loss_of, validation_loss_of, source, data, training)


def forecaster_phase(
    models: Models, data: RunData, training: TrainingConfig, tokens: TokenTable | None = None
) -> Phase[BarBatch] | Phase[TokenBatch]:
    """Train the forecaster on the tokens of a tokenizer that stays as it is.

    The tokens are those of the table, or else made anew for every batch. Validated with teacher
    forcing and causal attention, so that the loss neither draws random tokens nor looks ahead.
    """
    models.tokenizer.eval().requires_grad_(False)
    options = step_options(training)
    look = StepOptions(teacher_forcing=True)
    if tokens is not None:
        return Phase(
            models.forecaster,
            partial(forecaster_loss, models.forecaster, options=options),
            partial(forecaster_loss, models.forecaster, options=look),
            TokenSource(tokens, data.windows, data.train),
            data,
            training,
        )
    return Phase(
        models.forecaster,
        partial(_loss_on_bars, models, options),
        partial(_loss_on_bars, models, look),
        BarSource(data.windows, data.train),
        data,
        training,
    )


def _loss_on_bars(models: Models, options: StepOptions, batch: BarBatch) -> Tensor:
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

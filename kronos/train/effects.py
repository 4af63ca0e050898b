"""What hiding a feature costs a trained model."""

import torch

from kronos.checkpoint import Models
from kronos.data import Batch
from kronos.data.features import HiddenLoss
from kronos.model.mode import evaluating
from kronos.train.step import StepOptions, TokenBatch, forecaster_loss, tokenize


def hidden_loss(models: Models) -> HiddenLoss:
    """The forecaster's loss on the true next tokens, when it is shown other bars.

    In evaluation mode and with teacher forcing, so the same bars always give the same loss.
    """
    device = next(models.forecaster.parameters()).device

    def tokens_of(batch: Batch) -> TokenBatch:
        features = torch.from_numpy(batch.features).to(device)
        return tokenize(models.tokenizer, features, torch.from_numpy(batch.stamps).to(device))

    @torch.no_grad()
    def loss(shown: Batch, true: Batch) -> float:
        options = StepOptions(teacher_forcing=True)
        with evaluating(models.forecaster):
            return float(
                forecaster_loss(
                    models.forecaster, tokens_of(shown), options, targets=tokens_of(true)
                )
            )

    return loss

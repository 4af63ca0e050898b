"""THE training step, one definition with four users: trainer, meter, tracer and benchmark.

The tokenizer's own loss is `KronosTokenizer.training_loss`; the forecaster's is here, since it
needs the tokens of another model.

Anything that changes the memory or the speed of training changes it here. Nothing here asks
a tensor for its value (`.item()`), so the step can be traced without data.

Axes: B samples, T bars, F features; tokens are (B, T) int64 ids.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import torch
from torch import Tensor

from kronos.errors import ConfigError
from kronos.model import Kronos, KronosTokenizer

Batch = TypeVar("Batch")

_AUTOCAST: Final = {"float32": None, "bf16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True, slots=True)
class StepOptions:
    """What else but the batch decides a step's memory, speed and result."""

    precision: str = "float32"
    """"float32", or "bf16": bfloat16 autocast over float32 weights."""
    checkpointing: str = "off"
    """"off", or "block": recompute each transformer block in the backward pass."""
    max_grad_norm: float = 3.0
    """Gradients are scaled down to this global 2-norm."""
    teacher_forcing: bool = False
    """Condition s2 on the true s1 instead of on a sampled one."""


class StepResult(NamedTuple):
    """Scalars of one step, still on the device."""

    loss: Tensor
    """Mean over all samples of the step."""
    grad_norm: Tensor
    """Global 2-norm of the gradients before clipping."""


class TokenBatch(NamedTuple):
    """Bars as the forecaster sees them: B samples of T+1 tokens, the last one only a target."""

    s1_ids: Tensor  # B T+1
    s2_ids: Tensor  # B T+1
    stamps: Tensor  # B T+1 5


@torch.no_grad()
def tokenize(tokenizer: KronosTokenizer, bars: Tensor, stamps: Tensor) -> TokenBatch:
    """Tokens of normalised `bars` (B, T+1, F), from a tokenizer that is not being trained.

    Always in the tokenizer's own precision: a bar's token must not depend on autocast.
    """
    with torch.autocast(bars.device.type, enabled=False):
        return TokenBatch(*tokenizer.encode_halves(bars), stamps)


def forecaster_loss(
    model: Kronos,
    tokens: TokenBatch,
    options: StepOptions,
    targets: TokenBatch | None = None,
) -> Tensor:
    """Mean of the two cross-entropies of every next token, of `targets` if they are others."""
    ahead = tokens if targets is None else targets
    s1_targets, s2_targets = ahead.s1_ids[:, 1:], ahead.s2_ids[:, 1:]
    s1_logits, s2_logits = model(
        tokens.s1_ids[:, :-1],
        tokens.s2_ids[:, :-1],
        tokens.stamps[:, :-1],
        use_teacher_forcing=options.teacher_forcing,
        s1_targets=s1_targets,
        checkpointing=options.checkpointing,
    )
    loss, _, _ = model.head.compute_loss(s1_logits, s2_logits, s1_targets, s2_targets)
    return loss


def make_optimizer(
    parameters: Sequence[torch.nn.Parameter],
    *,
    learning_rate: float,
    weight_decay: float,
    fused: bool = False,
) -> torch.optim.AdamW:
    """AdamW with the moments' decay rates that Kronos is trained with (0.9, 0.95).

    `fused`: one kernel for the whole step. Otherwise PyTorch's choice for the device, which on
    a card holds a temporary of every parameter's size at once.
    """
    return torch.optim.AdamW(
        parameters,
        lr=learning_rate,
        betas=(0.9, 0.95),
        weight_decay=weight_decay,
        fused=fused or None,
    )


def training_step(
    loss_of: Callable[[Batch], Tensor],
    micro_batches: Sequence[tuple[Batch, int]],
    optimizer: torch.optim.Optimizer,
    options: StepOptions,
) -> StepResult:
    """One optimizer step over micro-batches, each given with its number of samples.

    Every micro-batch's mean loss weighs by its share of the samples, so that N of them give
    the gradient of the whole batch, a short last one included. Gradients are freed at the
    end, so that none is held during the next forward pass.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    samples = sum(count for _, count in micro_batches)
    device = parameters[0].device
    total = torch.zeros((), device=device)
    for batch, count in micro_batches:
        with autocast(device, options.precision):
            loss = loss_of(batch) * (count / samples)
        loss.backward()
        total += loss.detach()
    grad_norm = torch.nn.utils.clip_grad_norm_(parameters, options.max_grad_norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return StepResult(total, grad_norm)


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """The context in which a forward pass of that precision runs.

    Raises:
        ConfigError: an unknown precision.
    """
    if precision not in _AUTOCAST:
        raise ConfigError(f"precision is one of {', '.join(_AUTOCAST)}; got {precision!r}")
    dtype = _AUTOCAST[precision]
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype)

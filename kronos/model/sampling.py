"""Drawing ids from logits: temperature, top-k and top-p.

Axes: P paths, V ids, S steps.
"""

import hashlib
import math
import operator
from dataclasses import dataclass

import torch
from torch import Tensor

from kronos.errors import ConfigError

_SMALLEST_T = torch.finfo(torch.float32).tiny


@dataclass(frozen=True, slots=True)
class Sampling:
    """How an id is drawn. Top-k and top-p are both applied, top-k first."""

    T: float = 1.0
    """Temperature; 0 takes the likeliest id."""
    top_k: int | None = None
    """Only the k likeliest ids; None or 0 is off, 1 takes the likeliest."""
    top_p: float | None = None
    """Only the likeliest ids that together reach the probability p; None or 1 is off."""

    def __post_init__(self) -> None:
        _number_between("T", self.T, 0.0, math.inf)
        if self.top_k is not None:
            count("top_k", self.top_k, minimum=0)
        if self.top_p is not None:
            _number_between("top_p", self.top_p, 0.0, 1.0)

    @property
    def greedy(self) -> bool:
        """True where chance plays no part."""
        return self.T < _SMALLEST_T or self.top_k == 1


def sample_ids(logits: Tensor, uniforms: Tensor, sampling: Sampling) -> Tensor:
    """One id for each row of logits (P, V); (P,) int64.

    `uniforms` (P,): numbers in [0, 1) that decide, by inverting the distribution function over
    the ids from the likeliest down. So a row's id depends on its own logits and number alone.
    """
    logits = logits.float()
    if sampling.greedy:
        return logits.argmax(-1)
    ranked, order = logits.sort(dim=-1, descending=True, stable=True)
    chances = ((ranked - ranked[:, :1]) / sampling.T).softmax(-1)  # no overflow at a tiny T
    reached = chances.cumsum(-1)[:, : sampling.top_k or None]  # P V, or P k
    last = _last_kept(reached, sampling.top_p)
    passed = reached <= uniforms[:, None].to(reached) * reached.gather(-1, last)
    # No further than the last: rounding must not reach what was dropped, or weighs nothing.
    rank = torch.minimum(passed.sum(-1, keepdim=True), last)
    return order.gather(-1, rank)[:, 0]


def _last_kept(reached: Tensor, top_p: float | None) -> Tensor:
    """(P, 1): the rank of the last id that top-p keeps, and that has any chance at all.

    `reached`: sums of chances from the likeliest down, up to what top-k left.
    """
    total = reached[:, -1:]
    above = reached[:, :-1]  # of the ids from the second one on: what ranks higher sums up to
    kept = above < total
    if top_p is not None and top_p < 1.0:
        kept &= above <= top_p * total
    return kept.sum(-1, keepdim=True)


def filter_logits(logits: Tensor, top_k: int | None = None, top_p: float | None = None) -> Tensor:
    """Logits (..., V) with -inf where top-k, or top-p among what top-k left, drops an id.

    An id survives top-p while the ids above it sum up to p at most, so the likeliest always
    does. Among equal logits the lower id ranks first.
    """
    ranked, order = logits.sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(logits.shape[-1], device=logits.device)
    if top_k:
        ranked = ranked.masked_fill(ranks >= top_k, -math.inf)
    if top_p is not None and top_p < 1.0:
        chances = torch.softmax(ranked, dim=-1)
        above = chances.cumsum(-1).roll(1, dims=-1)  # what the ids ranked higher sum up to
        ranked = ranked.masked_fill((above > top_p) & (ranks > 0), -math.inf)
    return torch.empty_like(ranked).scatter_(-1, order, ranked)


def path_uniforms(seed: int, path: int, steps: int) -> Tensor:
    """(S, 2) numbers in [0, 1) for the coarse and the fine id of each step of one path.

    Every path has a generator of its own, on the CPU: the numbers depend on the seed and the
    path's number only, not on the batch, the device or what was drawn before. A longer path
    begins with the numbers of a shorter one.
    """
    digest = hashlib.sha256(f"{seed}/{path}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))
    return torch.rand(steps, 2, generator=generator)


@dataclass(frozen=True, slots=True)
class PathDraws:
    """Draws for P paths, each from numbers of its own."""

    sampling: Sampling
    uniforms: Tensor
    """(P, S, 2), see `path_uniforms`."""

    def __call__(self, logits: Tensor, step: int, half: int) -> Tensor:
        """Ids (P,) from logits (P, V) for a step's coarse (half 0) or fine id (half 1)."""
        return sample_ids(logits, self.uniforms[:, step, half], self.sampling)


@dataclass(frozen=True, slots=True)
class ReferenceDraws:
    """Draws as the reference makes them: all paths in turn from one stream of random numbers.

    So what a path draws depends on the batch it is in. `sampling.T` must be above 0.
    """

    sampling: Sampling
    generator: torch.Generator | None
    """On the logits' device; None is torch's global one."""

    def __call__(self, logits: Tensor, step: int, half: int) -> Tensor:
        """Ids (P,) from logits (P, V); the stream alone says which step and half."""
        sampling = self.sampling
        kept = filter_logits(logits.float() / sampling.T, sampling.top_k, sampling.top_p)
        return torch.multinomial(kept.softmax(-1), 1, generator=self.generator)[:, 0]


def count(name: str, value: int, minimum: int) -> int:
    """`value` as an int of at least `minimum`; ConfigError otherwise."""
    try:
        number = operator.index(value)
    except TypeError:
        number = minimum - 1
    if isinstance(value, bool) or number < minimum:
        raise ConfigError(f"{name} must be a whole number of at least {minimum}, got {value!r}")
    return number


def _number_between(name: str, value: float, low: float, high: float) -> None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (low <= number <= high and math.isfinite(number)) or isinstance(value, bool):
        limits = f"between {low:g} and {high:g}" if math.isfinite(high) else f"{low:g} or more"
        raise ConfigError(f"{name} must be a number, {limits}, got {value!r}")

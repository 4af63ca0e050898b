"""Keys and values kept while sequences are continued, so that no bar is computed twice.

A prompt's are kept once, however many paths continue it; each path has those of its own new
bars beside them. So the memory grows with paths x new bars, and with the prompts alone.

Axes: B series, R of them in one pass, C paths of each, N bars of the prompt, S new bars, Q new
bars in one pass, H heads, d width of one head, D width.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kronos.model.layers import Attend, Rotation, TransformerBlock


class Room(NamedTuple):
    """How much a cache holds."""

    series: int
    paths: int
    prompt: int
    """Bars of the longest prompt."""
    new: int
    """New bars of each path."""


@dataclass(frozen=True)
class Span:
    """Which bars one pass over some series' paths computes, and which bars those may look at."""

    rows: slice
    """The series, R of them."""
    prompt: tuple[int, ...]
    """How many bars of each one's prompt are seen."""
    seen: int
    """How many new bars of each path the last query sees, its own included."""
    queries: int
    """Q: the last so many of those are computed; each sees the ones before it and itself."""

    @property
    def widest(self) -> int:
        return max(self.prompt)

    @cached_property
    def _offsets(self) -> Tensor:
        """(R, 1) on the CPU, or (1, 1) where all prompts are equally long."""
        return torch.tensor(sorted(set(self.prompt)) if self._even else self.prompt)[:, None]

    @property
    def _even(self) -> bool:
        return len(set(self.prompt)) == 1

    def positions(self, device: torch.device) -> Tensor:
        """(R or 1, Q) float32: where the queries stand, the prompt's first bar at 0."""
        steps = torch.arange(self.seen - self.queries, self.seen)
        return (self._offsets + steps).to(device, torch.float32)

    def hidden(self, device: torch.device) -> Tensor | None:
        """(R or 1, 1, 1, Q, widest + seen), True = a key not to be seen; None: all are.

        The prompts' keys stand before the path's own. Behind a shorter prompt there is padding.
        """
        if self._even and self.queries == 1:
            return None
        padding = torch.arange(self.widest) >= self._offsets  # R widest
        steps = torch.arange(self.seen - self.queries, self.seen)
        future = torch.arange(self.seen) > steps[:, None]  # Q seen
        together = (
            padding[:, None].expand(-1, self.queries, -1),
            future.expand(len(padding), -1, -1),
        )
        return torch.cat(together, dim=-1)[:, None, None].to(device)


class PathCache:
    """Keys and values of one attention layer."""

    def __init__(self, room: Room, heads: int, head_dim: int, like: Tensor) -> None:
        series, paths, prompt, new = room
        self._prompt = like.new_empty(2, series, heads, prompt, head_dim)
        self._own = like.new_empty(2, series, heads, paths, new, head_dim)

    def keep_prompt(self, rows: slice, k: Tensor, v: Tensor) -> None:
        """Keys and values (R, H, N, d) of some series' prompts, in place of any before."""
        length = k.shape[2]
        self._prompt[0, rows, :, :length] = k
        self._prompt[1, rows, :, :length] = v

    def keep_own(self, span: Span, k: Tensor, v: Tensor) -> None:
        """Keys and values (R, H, C*Q, d) of new bars, path by path."""
        paths, bars = k.shape[2] // span.queries, slice(span.seen - span.queries, span.seen)
        for kept, given in zip(self._own, (k, v), strict=True):
            kept[span.rows, :, :paths, bars] = given.unflatten(2, (paths, span.queries))

    def look(self, span: Span, hidden: Tensor | None, q: Tensor) -> Tensor:
        """Attention of queries (R, H, C*Q, d) to the prompt and to their own path; same shape.

        `hidden`: that of the span, on the queries' device.
        """
        by_path = (q.shape[2] // span.queries, span.queries)  # C Q
        prompt_k, prompt_v = self._prompt[:, span.rows, :, : span.widest]
        own_k, own_v = self._own[:, span.rows, :, : by_path[0], : span.seen]
        q = q * (1 / math.sqrt(q.shape[-1]))
        at_prompt = (q @ prompt_k.mT).unflatten(2, by_path)  # R H C Q N
        at_own = q.unflatten(2, by_path) @ own_k.mT  # R H C Q seen
        scores = torch.cat((at_prompt, at_own), dim=-1)
        if hidden is not None:
            scores.masked_fill_(hidden, -math.inf)
        weights = scores.softmax(-1, dtype=_at_least_float32(q.dtype)).to(q.dtype)
        at_prompt, at_own = weights.split((span.widest, span.seen), dim=-1)
        return at_prompt.flatten(2, 3) @ prompt_v + (at_own @ own_v).flatten(2, 3)


class LonePathCache:
    """As `PathCache`, of one path alone: what it looks at stands in one piece, the prompt at the
    end of its room and the path's own behind it, so that one call sees both."""

    def __init__(self, room: Room, heads: int, head_dim: int, like: Tensor) -> None:
        self._end = room.prompt
        self._kept = like.new_empty(2, 1, heads, room.prompt + room.new, head_dim)

    def keep_prompt(self, rows: slice, k: Tensor, v: Tensor) -> None:
        """Keys and values (1, H, N, d) of the prompt, in place of any before."""
        self._keep(self._end - k.shape[2], k, v)

    def keep_own(self, span: Span, k: Tensor, v: Tensor) -> None:
        """Keys and values (1, H, Q, d) of new bars."""
        self._keep(self._end + span.seen - span.queries, k, v)

    def look(self, span: Span, hidden: Tensor | None, q: Tensor) -> Tensor:
        """Attention of queries (1, H, Q, d), same shape; `hidden` as in `PathCache`."""
        k, v = self._kept[:, :, :, self._end - span.widest : self._end + span.seen]
        seen = None if hidden is None else ~hidden[:, 0]  # 1 1 Q widest+seen
        return F.scaled_dot_product_attention(q, k, v, seen)

    def _keep(self, start: int, k: Tensor, v: Tensor) -> None:
        bars = slice(start, start + k.shape[2])
        self._kept[0, :, :, bars] = k
        self._kept[1, :, :, bars] = v


def path_cache(room: Room, heads: int, head_dim: int, like: Tensor) -> PathCache | LonePathCache:
    """An empty cache of one attention layer, on the device and in the dtype of `like`."""
    alone = room.series == room.paths == 1
    return (LonePathCache if alone else PathCache)(room, heads, head_dim, like)


def continue_block(
    block: TransformerBlock,
    x: Tensor,
    rotation: Rotation | None,
    cache: PathCache | LonePathCache,
    span: Span,
    hidden: Tensor | None,
) -> Tensor:
    """(R, C*Q, D) -> (R, C*Q, D): one block over new bars, with what it has kept before."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        cache.keep_own(span, k, v)
        return cache.look(span, hidden, q)

    return block(x, rotation=rotation, attend=attend)


class CachedBlocks:
    """Transformer blocks with a cache for each; the weights are the blocks' own.

    `advance`: what takes new bars through a block, `continue_block` or a faster equal.
    """

    def __init__(
        self,
        blocks: Iterable[nn.Module],
        room: Room,
        advance: Callable[..., Tensor] = continue_block,
    ) -> None:
        self.advance = advance
        self.blocks = [block for block in blocks if isinstance(block, TransformerBlock)]
        attention = [block.self_attn for block in self.blocks]
        self.caches = [
            path_cache(room, one.n_heads, 2 * len(one.rotary.inv_freq), one.k_proj.weight)
            for one in attention
        ]

    def read_prompts(self, x: Tensor, rows: slice) -> Tensor:
        """(R, N, D) -> (R, N, D), causal, positions from 0; keeps what paths will look at.

        Shorter prompts are padded behind, where causality keeps them from being seen.
        """
        rotation = self.blocks[0].self_attn.rotary(x.shape[1]) if self.blocks else None
        for block, cache in zip(self.blocks, self.caches, strict=True):
            x = block(x, rotation=rotation, attend=_reading(cache, rows))
        return x

    def continue_paths(self, x: Tensor, span: Span) -> Tensor:
        """(R, C, Q, D) -> (R, C, Q, D): new bars, behind the prompt and those kept before."""
        paths = x.shape[1]
        rotation = self._rotation(span, paths, x.device)
        hidden = span.hidden(x.device)
        x = x.flatten(1, 2)  # R C*Q D
        for block, cache in zip(self.blocks, self.caches, strict=True):
            x = self.advance(block, x, rotation, cache, span, hidden)
        return x.unflatten(1, (paths, span.queries))

    def _rotation(self, span: Span, paths: int, device: torch.device) -> Rotation | None:
        if not self.blocks:
            return None
        positions = span.positions(device)[:, None, None].expand(-1, -1, paths, -1).flatten(2)
        return self.blocks[0].self_attn.rotary.at(positions)  # R 1 C*Q d/2


def _reading(cache: PathCache | LonePathCache, rows: slice) -> Attend:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        cache.keep_prompt(rows, k, v)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return attend


def _at_least_float32(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype

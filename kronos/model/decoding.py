"""Continuing series of ids, one bar at a time, and reading the values of what was drawn.

Each prompt is read once, however many paths continue it, and each new bar is computed once
(see `cache`), until the window slides: then every bar of it looks at others than before.

Axes: B series, R of them, C paths of each, N bars known, S bars to come, V ids, D width.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby

import torch
from torch import Tensor

from kronos.model.cache import CachedBlocks, Room, Span, continue_block, path_cache
from kronos.model.compiled import compiled_block
from kronos.model.dependency import DEPENDENCY_HEADS
from kronos.model.forecaster import Kronos
from kronos.model.prompts import Prompts, pieces
from kronos.model.tokenizer import KronosTokenizer

Draw = Callable[[Tensor, int, int], Tensor]
"""Logits (B*C, V), the step, and 0 for its coarse or 1 for its fine id -> ids (B*C,)."""


def decode_paths(
    model: Kronos,
    prompts: Prompts,
    stamps: Tensor,
    paths: int,
    draw: Draw,
    max_context: int,
    context_stride: int = 1,
    on_step: Callable[[], object] = lambda: None,
    *,
    compiled: bool = False,
) -> tuple[Tensor, Tensor]:
    """Coarse and fine ids, each (B, C, S), that follow the prompts.

    `stamps` (B, S, 5): those of the bars to come. Each step sees the last `max_context` bars;
    when a series outgrows them the oldest `context_stride` are dropped, positions start at 0
    again, and the window is read anew. With a stride of 1 that is at every bar, and exactly
    what a decoder without a cache gives; with n at every n-th, and a step then sees between
    `max_context` - n + 1 and `max_context` bars. No prompt is longer than `max_context`, nor is
    S; a prompt's last bar is never dropped. `on_step` is called after each step. `compiled`: see
    `compiled.compiled_block`. Gradients and the model's mode are the caller's concern.
    """
    decoder = _Decoder(model, prompts, stamps, paths, compiled)
    for step in range(stamps.shape[1]):
        slid = decoder.slide(step, max_context, context_stride)
        last = decoder.contexts(step, slid)  # B C D
        decoder.draw_bar(step, last, draw)
        on_step()
    return decoder.s1, decoder.s2


def decode_values(
    tokenizer: KronosTokenizer, prompts: Prompts, s1: Tensor, s2: Tensor, max_context: int
) -> Tensor:
    """Normalised values (B, C, S, F) of ids (B, C, S), each path behind its prompt.

    The tokenizer sees the last `max_context` bars; S may not exceed that.
    """
    new = s1.shape[2]
    kept = tuple(min(length, max_context - new) for length in prompts.lengths)
    starts = [length - keep for length, keep in zip(prompts.lengths, kept, strict=True)]
    found = [
        _decoded(tokenizer, prompts, rows, starts[rows], kept[rows], s1[rows], s2[rows])
        for rows in pieces(len(kept), max(kept))
    ]
    return torch.cat(found)


def _decoded(
    tokenizer: KronosTokenizer,
    prompts: Prompts,
    rows: slice,
    starts: list[int],
    kept: tuple[int, ...],
    s1: Tensor,
    s2: Tensor,
) -> Tensor:
    """(R, C, S, F): as `decode_values`, for some series whose ids are (R, C, S)."""
    series, paths, new = s1.shape
    together = list(pieces(paths, series * new))
    room = Room(series, together[0].stop, max(kept), new)
    blocks = CachedBlocks(tokenizer.decoder, room)
    if max(kept):
        before_s1, before_s2, _ = prompts.window(rows, starts)
        blocks.read_prompts(tokenizer.embed_ids(before_s1, before_s2), slice(0, series))
    span = Span(slice(0, series), kept, seen=new, queries=new)
    found = []
    for some in together:
        embedded = tokenizer.embed_ids(s1[:, some], s2[:, some])  # R c S D
        found.append(tokenizer.head(blocks.continue_paths(embedded, span)))
    return torch.cat(found, dim=1)


class _Decoder:
    """The forecaster over prompts and their paths: its caches and the ids found so far."""

    def __init__(
        self, model: Kronos, prompts: Prompts, stamps: Tensor, paths: int, compiled: bool
    ) -> None:
        series, steps = stamps.shape[:2]
        room = Room(series, paths, prompts.s1.shape[1], steps)
        self.model, self.prompts, self.paths = model, prompts, paths
        self.times: Tensor = model.time_emb(stamps)[:, None]  # B 1 S D
        self.s1, self.s2 = (prompts.s1.new_zeros(series, paths, steps) for _ in range(2))
        self.starts = [0] * series
        self.trunk = CachedBlocks(
            model.transformer, room, compiled_block if compiled else continue_block
        )
        weight = model.norm.weight
        self.context = path_cache(room, DEPENDENCY_HEADS, len(weight) // DEPENDENCY_HEADS, weight)

    def slide(self, step: int, max_context: int, stride: int) -> list[bool]:
        """Move the windows that a step would outgrow; which series' windows are to be read."""
        slid = [step == 0] * len(self.starts)
        for row, (length, start) in enumerate(zip(self.prompts.lengths, self.starts, strict=True)):
            if length + step - start > max_context:
                self.starts[row] = min(length + step - max_context + stride - 1, length - 1)
                slid[row] = True
        return slid

    def contexts(self, step: int, slid: list[bool]) -> Tensor:
        """(B, C, D): the trunk's output at each path's last bar, from which the next follows."""
        found = []
        for rows, to_read in _runs(slid):
            if not to_read:
                found.append(self._extend(rows, step, 1))
                continue
            for some in pieces(rows.stop - rows.start, max(self._window(rows))):
                part = slice(rows.start + some.start, rows.start + some.stop)
                found.append(self._read_anew(part, step))
        return found[0] if len(found) == 1 else torch.cat(found)

    def draw_bar(self, step: int, last: Tensor, draw: Draw) -> None:
        """Both ids of the next bar, given the contexts (B, C, D) of the last one."""
        shape = last.shape[:2]
        s1 = draw(self.model.head(last).flatten(0, 1), step, 0).view(shape)  # B C
        everywhere = slice(0, len(last))
        span = Span(everywhere, self._window(everywhere), seen=step, queries=1)
        look = partial(self.context.look, span, span.hidden(last.device))
        sibling = self.model.embedding.emb_s1(s1)  # B C D
        fused = self.model.dep_layer.recall(last, sibling, look)
        self.s1[:, :, step] = s1
        self.s2[:, :, step] = draw(self.model.head.cond_forward(fused).flatten(0, 1), step, 1).view(
            shape
        )

    def _window(self, rows: slice) -> tuple[int, ...]:
        """How many bars of their prompts some series' windows hold."""
        ends, starts = self.prompts.lengths[rows], self.starts[rows]
        return tuple(end - start for end, start in zip(ends, starts, strict=True))

    def _read_anew(self, rows: slice, step: int) -> Tensor:
        """Read the windows of some series, the new bars too; the last contexts (R, C, D)."""
        window = self._window(rows)
        x = self.model.embed(*self.prompts.window(rows, self.starts[rows]))  # R n D
        context = self.model.norm(self.trunk.read_prompts(x, rows))
        self.context.keep_prompt(rows, *self.model.dep_layer.cross_attn.keys_and_values(context))
        ends = torch.tensor(window, device=x.device) - 1
        last = context[torch.arange(len(window), device=x.device), ends]  # R D
        last = last[:, None].expand(-1, self.paths, -1)
        for some in pieces(step, len(window) * self.paths):
            last = self._extend(rows, some.stop, some.stop - some.start)
        return last

    def _extend(self, rows: slice, seen: int, queries: int) -> Tensor:
        """Compute the last `queries` of `seen` new bars; the contexts (R, C, D) of the last."""
        span, bars = Span(rows, self._window(rows), seen, queries), slice(seen - queries, seen)
        x = self.model.embed(self.s1[rows, :, bars], self.s2[rows, :, bars])
        x = x + self.times[rows, :, bars]  # R C Q D
        context = self.model.norm(self.trunk.continue_paths(x, span))
        keys = self.model.dep_layer.cross_attn.keys_and_values(context.flatten(1, 2))
        self.context.keep_own(span, *keys)
        return context[:, :, -1]


def _runs(flags: list[bool]) -> Iterator[tuple[slice, bool]]:
    """Slices of neighbours with one flag, in order, each with that flag."""
    start = 0
    for flag, group in groupby(flags):
        stop = start + len(list(group))
        yield slice(start, stop), flag
        start = stop

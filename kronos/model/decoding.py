"""Continuing sequences of ids, one bar at a time.

Axes: P paths, N bars known, S steps to come, V ids.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from kronos.model.forecaster import Kronos
from kronos.model.sampling import Sampling, sample_ids


def decode_paths(
    model: Kronos,
    s1_ids: Tensor,
    s2_ids: Tensor,
    stamp: Tensor,
    uniforms: Tensor,
    sampling: Sampling,
    max_context: int,
    on_step: Callable[[], object] = lambda: None,
) -> tuple[Tensor, Tensor]:
    """Ids (P, S) and (P, S), coarse and fine, that follow the ids (P, N) and (P, N).

    `stamp` (P, N+S, 5) covers the known bars and those to come. `uniforms` (P, S, 2) decide the
    draws, see `sampling.sample_ids`. Each step sees the last `max_context` bars; when the
    sequence outgrows them the oldest is dropped and positions start at 0 again. `on_step` is
    called after each step. Gradients and the model's mode are the caller's concern.
    """
    known, steps = s1_ids.shape[1], uniforms.shape[1]
    room = s1_ids.new_empty(s1_ids.shape[0], steps)
    coarse, fine = torch.cat((s1_ids, room), dim=1), torch.cat((s2_ids, room), dim=1)  # P N+S
    for step in range(steps):
        end = known + step
        window = slice(max(0, end - max_context), end)
        s1_logits, context = model.decode_s1(
            coarse[:, window], fine[:, window], stamp[:, window], last_only=True
        )
        s1 = sample_ids(s1_logits[:, -1], uniforms[:, step, 0], sampling)  # P
        s2_logits = model.decode_s2(context, s1[:, None], last_only=True)
        coarse[:, end] = s1
        fine[:, end] = sample_ids(s2_logits[:, -1], uniforms[:, step, 1], sampling)
        on_step()
    return coarse[:, known:], fine[:, known:]

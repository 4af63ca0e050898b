"""The blocks of a decoding step, made into fewer and longer kernels by torch.compile.

The matrix products stay as they are; what stands between them is fused. One compilation serves
all layers and steps.
"""

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor

from kronos.errors import ConfigError
from kronos.model.cache import LonePathCache, PathCache, Span, continue_block
from kronos.model.layers import Rotation, TransformerBlock
from kronos.model.linear import cpu_threads


def compiled_block(
    block: TransformerBlock,
    x: Tensor,
    rotation: Rotation | None,
    kept: PathCache | LonePathCache,
    span: Span,
    hidden: Tensor | None,
) -> Tensor:
    """`cache.continue_block`, compiled where a single bar of each path is computed.

    The first call, and the first with another kind of batch, takes some ten seconds. torch gives
    up compiling for more than eight kinds (models, one or more series, one or more paths) in one
    process, and then runs them uncompiled. ConfigError where there is no compiler.
    """
    if span.queries > 1:
        return continue_block(block, x, rotation, kept, span, hidden)
    try:
        return _compiled()(block, x, rotation, kept, span, hidden)
    except RuntimeError as error:
        if not isinstance(error, torch._dynamo.exc.BackendCompilerFailed):
            raise
        reason = str(error.inner_exception).strip().splitlines()[0]
        raise ConfigError(f"compile takes a compiler that works here: {reason}") from error


@cache
def _compiled() -> Any:
    return compile_with(dynamic=True)


def compile_with(**options: Any) -> Any:
    """What torch.compile makes of `cache.continue_block`, with options of its own."""
    torch.compiler.assume_constant_result(cpu_threads)
    with warnings.catch_warnings():  # torch warns of parts of its own, and of nothing else here
        warnings.simplefilter("ignore")
        return torch.compile(continue_block, **options)

"""Named runs, as functions. Each takes the model's shape by name, "tiny" unless told."""

from collections.abc import Callable, Mapping
from typing import Final

from kronos.config import (
    ForecasterShape,
    ModelConfig,
    RunConfig,
    ScoringConfig,
    TokenizerShape,
    TrainingConfig,
)
from kronos.errors import ConfigError

_TOKENIZER_BASE: Final = TokenizerShape(
    d_model=256,
    n_heads=4,
    ff_dim=512,
    n_enc_layers=4,
    n_dec_layers=4,
    s1_bits=10,
    s2_bits=10,
    group_size=4,
)


def _released(
    name: str, layers: int, d_model: int, heads: int, ff_dim: int, max_context: int = 512
) -> ModelConfig:
    forecaster = ForecasterShape(
        s1_bits=10,
        s2_bits=10,
        n_layers=layers,
        d_model=d_model,
        n_heads=heads,
        ff_dim=ff_dim,
        ffn_dropout_p=0.25,
        attn_dropout_p=0.1,
        resid_dropout_p=0.25,
        token_dropout_p=0.1,
    )
    return ModelConfig(
        name=name, tokenizer=_TOKENIZER_BASE, forecaster=forecaster, max_context=max_context
    )


_TINY: Final = ModelConfig(
    name="tiny",
    tokenizer=TokenizerShape(
        d_model=48,
        n_heads=4,
        ff_dim=96,
        n_enc_layers=3,
        n_dec_layers=3,
        s1_bits=6,
        s2_bits=6,
        group_size=4,
    ),
    forecaster=ForecasterShape(
        s1_bits=6,
        s2_bits=6,
        n_layers=3,
        d_model=64,
        n_heads=4,
        ff_dim=128,
        ffn_dropout_p=0.1,
        resid_dropout_p=0.1,
        token_dropout_p=0.1,
    ),
    max_context=512,
    pretrained="tiny",
)

SHAPES: Final[Mapping[str, ModelConfig]] = {
    "tiny": _TINY,
    "mini": _released("mini", 4, 256, 4, 512, max_context=2048),
    "small": _released("small", 8, 512, 8, 1024),
    "base": _released("base", 12, 832, 16, 2048),
    "large": _released("large", 18, 1664, 32, 3072),
}
"""The released shapes, and the tiny one whose weights are shipped for the gate."""


def model_shape(name: str) -> ModelConfig:
    """A shape by name.

    Raises:
        ConfigError: no such shape.
    """
    if name not in SHAPES:
        raise ConfigError(f"no model shape {name!r:.60}; there are {', '.join(SHAPES)}")
    return SHAPES[name]


def baseline(model: str = "tiny") -> RunConfig:
    """The default run: window 120, batch 50, one card, float32."""
    return RunConfig(
        name="baseline",
        model=model_shape(model),
        training=TrainingConfig(
            window=120, horizon=24, batch_size=50, steps=12, learning_rate=4e-5
        ),
    )


def small_gpu(model: str = "tiny") -> RunConfig:
    """For a 12 GB card: window 90, batch 32, checkpointed blocks, 4 micro-batches a step."""
    return RunConfig(
        name="small-gpu",
        model=model_shape(model),
        training=TrainingConfig(
            window=90,
            horizon=24,
            batch_size=32,
            accumulation=4,
            checkpointing="block",
            steps=8,
            learning_rate=4e-5,
        ),
    )


def full(model: str = "tiny") -> RunConfig:
    """The long window: 512 bars back, 48 ahead, batch 16, mixed precision."""
    return RunConfig(
        name="full",
        model=model_shape(model),
        training=TrainingConfig(
            window=512,
            horizon=48,
            batch_size=16,
            precision="bf16",
            steps=8,
            learning_rate=4e-5,
        ),
        scoring=ScoringConfig(windows=24),
    )


def tiny_pretraining() -> RunConfig:
    """How the shipped tiny weights were made: from scratch, on the shipped bars.

    The long window serves the short ones too; weights learnt on a window of 120 forecast 512
    bars' continuation three times as badly as the last close does.
    """
    return RunConfig(
        name="tiny-pretraining",
        model=_TINY.model_copy(update={"pretrained": None}),
        training=TrainingConfig(
            window=512,
            horizon=48,
            batch_size=8,
            steps=600,
            learning_rate=1e-3,
            schedule="one-cycle",
            validate_every=30,
        ),
    )


RECIPES: Final[Mapping[str, Callable[..., RunConfig]]] = {
    "baseline": baseline,
    "small-gpu": small_gpu,
    "full": full,
    "tiny-pretraining": tiny_pretraining,
}


def recipe(name: str) -> RunConfig:
    """A recipe by name, on the tiny model.

    Raises:
        ConfigError: no such recipe.
    """
    if name not in RECIPES:
        raise ConfigError(f"no recipe {name!r:.60}; there are {', '.join(RECIPES)}")
    return RECIPES[name]()

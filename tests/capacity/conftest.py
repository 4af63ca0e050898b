"""Steps to trace, and what their traces say."""

from functools import partial

import pytest
import torch

from kronos.capacity import trace_step
from kronos.config import ForecasterShape, TokenizerShape
from kronos.model import Kronos, KronosTokenizer
from kronos.train.step import (
    StepOptions,
    forecaster_loss,
    make_optimizer,
    tokenize,
    training_step,
)

BITS = 4


@pytest.fixture(autouse=True, scope="module")
def _one_thread(one_thread):
    """Every test of this folder."""


@pytest.fixture(scope="session")
def traced():
    """traced(step): the trace of one `step(device)`, nothing built before it."""

    def trace(step, **options):
        once = {"warmup": 0, "steps": 1} | options
        return trace_step(lambda device: partial(step, device), **once)

    return trace


@pytest.fixture(scope="session")
def result_of(traced):
    """result_of(step): what `step(device)` returned while it was traced."""

    def run(step, **options):
        results = []
        traced(lambda device: results.append(step(device)), **options)
        return results[0]

    return run


@pytest.fixture(scope="session")
def changes():
    """changes(trace, "bmm"): bytes taken, or given back below zero, in order, as operators ran.

    Without a name: of all of them.
    """

    def of(trace, operator=None):
        events = trace.events
        return [
            delta
            for number, delta in enumerate(events.delta)
            if operator is None or events.where(number)[1] == f"aten.{operator}"
        ]

    return of


@pytest.fixture(scope="session")
def taken(changes):
    """taken(trace, "bmm"): the same, without what is given back."""
    return lambda trace, operator=None: [size for size in changes(trace, operator) if size > 0]


@pytest.fixture(scope="session")
def operators():
    """operators(trace): the names of all operators that ran."""
    return lambda trace: {name.removeprefix("aten.") for name in trace.events.operations}


@pytest.fixture(scope="session")
def kronos_build():
    """kronos_build(batch=2, depth=1): `build(device)` of a small forecaster's training step."""

    def with_sizes(
        *,
        batch=1,
        window=8,
        depth=1,
        width=16,
        heads=2,
        dropout=0.1,
        accumulation=1,
        fused=False,
        precision="float32",
        checkpointing="off",
    ):
        options = StepOptions(precision=precision, checkpointing=checkpointing)
        bits = {"s1_bits": BITS, "s2_bits": BITS}
        small = {"d_model": 16, "n_heads": 2, "ff_dim": 32}
        tokens = TokenizerShape(n_enc_layers=1, n_dec_layers=1, group_size=4, **small, **bits)
        dropouts = ("ffn_dropout_p", "attn_dropout_p", "resid_dropout_p", "token_dropout_p")
        shape = ForecasterShape(
            n_layers=depth,
            d_model=width,
            n_heads=heads,
            ff_dim=2 * width,
            learn_te=False,
            **bits,
            **dict.fromkeys(dropouts, dropout),
        )

        def build(device):
            tokenizer = KronosTokenizer(**tokens.model_dump()).to(device).eval()
            tokenizer.requires_grad_(False)
            model = Kronos(**shape.model_dump()).to(device)
            optimizer = make_optimizer(
                list(model.parameters()), learning_rate=1e-3, weight_decay=0.1, fused=fused
            )

            def loss_of(bars):
                stamps = torch.zeros(batch, window + 1, 5, dtype=torch.int64).to(device)
                return forecaster_loss(model, tokenize(tokenizer, bars, stamps), options)

            def step():
                bars = torch.randn(batch, window + 1, tokens.d_in)
                batches = [(bars.to(device), batch) for _ in range(accumulation)]
                return training_step(loss_of, batches, optimizer, options)

            return step

        return build

    return with_sizes

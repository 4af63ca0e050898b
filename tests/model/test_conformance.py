"""The numbers of the released architecture, from tests/conformance."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from kronos.data.timestamps import stamp_columns
from kronos.model import Kronos, KronosTokenizer
from kronos.model.sampling import filter_logits
from kronos.predict.inputs import FEATURES

Vectors = dict[str, Tensor]
Near = Callable[[Tensor, Tensor], None]
BARS = Path(__file__).parents[3] / "shared" / "data" / "XSHG_5min_600977.csv"

RELEASED = {
    "mini": {"n_layers": 4, "d_model": 256, "n_heads": 4, "ff_dim": 512},
    "small": {"n_layers": 8, "d_model": 512, "n_heads": 8, "ff_dim": 1024},
    "base": {"n_layers": 12, "d_model": 832, "n_heads": 16, "ff_dim": 2048},
}
RELEASED_PARAMETERS = {"mini": 4_108_032, "small": 24_741_376, "base": 102_310_592}
COMMON = {
    "s1_bits": 10,
    "s2_bits": 10,
    "ffn_dropout_p": 0.0,
    "attn_dropout_p": 0.0,
    "resid_dropout_p": 0.0,
}


# The tokenizer.


def test_ids_both_ways(tiny_tokenizer: KronosTokenizer, vectors: Vectors) -> None:
    s1_ids, s2_ids = tiny_tokenizer.encode(vectors["tok.x"], half=True)
    assert torch.equal(s1_ids, vectors["tok.encode_s1"])
    assert torch.equal(s2_ids, vectors["tok.encode_s2"])
    assert torch.equal(tiny_tokenizer.encode(vectors["tok.x"]), vectors["tok.encode_full"])


def test_bars_of_ids(tiny_tokenizer: KronosTokenizer, vectors: Vectors, assert_near: Near) -> None:
    halves = (vectors["tok.encode_s1"], vectors["tok.encode_s2"])
    with torch.no_grad():
        assert_near(tiny_tokenizer.decode(halves, half=True), vectors["tok.decode_half"])
        whole = tiny_tokenizer.decode(vectors["tok.encode_full"])
    assert_near(whole, vectors["tok.decode_full"])


def test_tokenizer_forward(
    tiny_tokenizer: KronosTokenizer, vectors: Vectors, assert_near: Near
) -> None:
    with torch.no_grad():
        (z_pre, z), loss, codes, ids = tiny_tokenizer(vectors["tok.x"])
    assert_near(z_pre, vectors["tok.eval.z_pre"])
    assert_near(z, vectors["tok.eval.z"])
    assert_near(loss, vectors["tok.eval.bsq_loss"])
    assert_near(codes, vectors["tok.eval.quantized"])
    assert torch.equal(ids, vectors["tok.eval.indices"])


@pytest.mark.parametrize("checkpointing", ["off", "block"])
def test_tokenizer_training(
    tiny_tokenizer: KronosTokenizer, vectors: Vectors, assert_near: Near, checkpointing: str
) -> None:
    tiny_tokenizer.train()
    assert_near(tiny_tokenizer(vectors["tok.x"])[1], vectors["tok.train.bsq_loss"])
    loss = tiny_tokenizer.training_loss(vectors["tok.x"], checkpointing=checkpointing)
    assert_near(loss, vectors["tok.train.loss"])
    loss.backward()
    assert_gradients(tiny_tokenizer, vectors, "tok.grad.", assert_near)


# The forecaster, with learned and with fixed time embeddings.


@pytest.fixture(params=["pre", "pre_fixed_te"])
def forecaster(
    request: pytest.FixtureRequest,
    tiny_forecaster: Kronos,
    settings: Callable[..., dict[str, Any]],
    give_recipe_weights: Callable[[nn.Module, int], None],
) -> tuple[Kronos, str]:
    if request.param == "pre":
        return tiny_forecaster, "pre."
    model = Kronos(**settings("predictor", learn_te=False)).eval()
    give_recipe_weights(model, 2)
    return model, "pre_fixed_te."


def teacher_forced(model: Kronos, vectors: Vectors, **options: Any) -> tuple[Tensor, Tensor]:
    s1_ids, s2_ids = vectors["tok.encode_s1"], vectors["tok.encode_s2"]
    return model(
        s1_ids[:, :-1],
        s2_ids[:, :-1],
        vectors["tok.stamp"][:, :-1],
        use_teacher_forcing=True,
        s1_targets=s1_ids[:, 1:],
        **options,
    )


def losses(
    model: Kronos, logits: tuple[Tensor, Tensor], vectors: Vectors, mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    targets = vectors["tok.encode_s1"][:, 1:], vectors["tok.encode_s2"][:, 1:]
    return model.head.compute_loss(*logits, *targets, mask)


def test_training_logits_and_losses(
    forecaster: tuple[Kronos, str], vectors: Vectors, assert_near: Near
) -> None:
    model, prefix = forecaster
    logits = teacher_forced(model.train(), vectors)
    assert_near(logits[0], vectors[prefix + "train.s1_logits"])
    assert_near(logits[1], vectors[prefix + "train.s2_logits"])
    loss, s1_loss, s2_loss = losses(model, logits, vectors)
    assert_near(loss, vectors[prefix + "train.loss"])
    assert_near(s1_loss, vectors[prefix + "train.ce_s1"])
    assert_near(s2_loss, vectors[prefix + "train.ce_s2"])


@pytest.mark.parametrize("checkpointing", ["off", "block"])
def test_training_gradients(
    tiny_forecaster: Kronos, vectors: Vectors, assert_near: Near, checkpointing: str
) -> None:
    logits = teacher_forced(tiny_forecaster.train(), vectors, checkpointing=checkpointing)
    losses(tiny_forecaster, logits, vectors)[0].backward()
    assert_gradients(tiny_forecaster, vectors, "pre.grad.", assert_near)


def test_masked_loss(tiny_forecaster: Kronos, vectors: Vectors, assert_near: Near) -> None:
    logits = vectors["pre.train.s1_logits"], vectors["pre.train.s2_logits"]
    mask = vectors["pre.masked.padding_mask"]
    for padding in (mask, mask.bool()):
        loss, s1_loss, s2_loss = losses(tiny_forecaster, logits, vectors, padding)
        assert_near(loss, vectors["pre.masked.loss"])
        assert_near(s1_loss, vectors["pre.masked.ce_s1"])
        assert_near(s2_loss, vectors["pre.masked.ce_s2"])


def test_reference_evaluation_by_the_switch(
    forecaster: tuple[Kronos, str], vectors: Vectors, assert_near: Near
) -> None:
    model, prefix = forecaster
    with torch.no_grad():
        logits = teacher_forced(model, vectors, cross_attention_sees_future=True)
        ours = teacher_forced(model, vectors)
    assert_near(logits[0], vectors[prefix + "eval.s1_logits"])
    assert_near(logits[1], vectors[prefix + "eval.s2_logits"])
    assert_near(ours[1], vectors[prefix + "train.s2_logits"])  # causal in validation too


@pytest.mark.parametrize("last_only", [False, True])
def test_single_step_decoding(
    forecaster: tuple[Kronos, str], vectors: Vectors, assert_near: Near, last_only: bool
) -> None:
    model, prefix = forecaster
    ids = vectors["tok.encode_s1"], vectors["tok.encode_s2"]
    rows = slice(-1 if last_only else 0, None)
    with torch.no_grad():
        logits, context = model.decode_s1(*ids, vectors["tok.stamp"], last_only=last_only)
        s1_ids = vectors[prefix + "decode_s2.s1_ids"]
        fine = model.decode_s2(context, s1_ids, last_only=last_only)
        plain, _ = model.decode_s1(*ids)
    assert_near(context, vectors[prefix + "decode_s1.context"])
    assert_near(logits, vectors[prefix + "decode_s1.logits"][:, rows])
    assert_near(fine, vectors[prefix + "decode_s2.logits"][:, rows])
    assert_near(plain, vectors[prefix + "decode_s1.no_stamp.logits"])


def assert_gradients(model: nn.Module, vectors: Vectors, prefix: str, assert_near: Near) -> None:
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    wanted = {name: value for name, value in vectors.items() if name.startswith(prefix)}
    assert {prefix + name for name in gradients} == set(wanted)
    for name, gradient in gradients.items():
        assert gradient is not None
        assert_near(gradient, wanted[prefix + name])


# The filters.


@pytest.mark.parametrize(
    ("case", "top_k", "top_p"), [("k5", 5, None), ("p50", None, 0.5), ("p90", 0, 0.9)]
)
def test_filters_keep_the_same_ids(
    vectors: Vectors, case: str, top_k: int | None, top_p: float | None
) -> None:
    kept = filter_logits(vectors["filter.logits"], top_k, top_p)
    assert torch.equal(kept.isfinite(), vectors[f"filter.{case}.keep"])
    assert torch.equal(kept[kept.isfinite()], vectors["filter.logits"][kept.isfinite()])


def test_P12_top_k_and_top_p_are_both_applied(vectors: Vectors) -> None:
    logits = vectors["filter.logits"]
    theirs = vectors["filter.k5p50.keep"]
    assert torch.equal(theirs, vectors["filter.k5.keep"])  # the reference ignores top_p here
    ours = filter_logits(logits, 5, 0.5).isfinite()
    assert (ours <= theirs).all()
    assert not torch.equal(ours, theirs)
    best = logits.topk(5)
    chances = torch.softmax(best.values, dim=-1)
    wanted = torch.zeros_like(theirs)
    for row, ids in enumerate(best.indices):
        total = 0.0
        for chance, one in zip(chances[row], ids, strict=True):
            wanted[row, one] = total <= 0.5
            total += float(chance)
    assert torch.equal(ours, wanted)


# The released shapes.


@pytest.fixture(scope="module")
def released() -> Vectors:
    conformance = Path(__file__).parents[1] / "conformance"
    return load_file(conformance / "released_vectors.safetensors")


@pytest.fixture(scope="module")
def released_tokenizer(
    give_recipe_weights: Callable[[nn.Module, int], None],
) -> KronosTokenizer:
    model = KronosTokenizer(
        d_in=6,
        d_model=256,
        n_heads=4,
        ff_dim=512,
        n_enc_layers=4,
        n_dec_layers=4,
        beta=0.05,
        gamma0=1.0,
        gamma=1.1,
        zeta=0.05,
        group_size=4,
        **COMMON,
    )
    give_recipe_weights(model, 1)
    return model.eval()


def test_released_tokenizer_decodes(
    released_tokenizer: KronosTokenizer, released: Vectors, assert_near: Near
) -> None:
    halves = released["tokenizer_base.encode_s1"], released["tokenizer_base.encode_s2"]
    with torch.no_grad():
        bars = released_tokenizer.decode(halves, half=True)
    assert_near(bars, released["tokenizer_base.decode_half"])
    bits = released["tokenizer_base.pre_quant"] > 0
    ids = released_tokenizer.tokenizer.ids(bits)
    assert torch.equal(ids[0], halves[0])
    assert torch.equal(ids[1], halves[1])
    assert sum(p.numel() for p in released_tokenizer.parameters()) == 3_958_042


@pytest.mark.skipif(not BARS.exists(), reason=f"the bars {BARS.name} are not beside the project")
def test_released_tokenizer_encodes(
    released_tokenizer: KronosTokenizer, released: Vectors, assert_near: Near
) -> None:
    # The reference normalises in float32, ours in float64: that differs more than the models.
    values = pd.read_csv(BARS, nrows=256)[list(FEATURES)].to_numpy(np.float32)
    scores = (values - values.mean(axis=0)) / (values.std(axis=0) + 1e-5)
    x = torch.from_numpy(scores.clip(-5, 5))[None]
    with torch.no_grad():
        z = released_tokenizer.quant_embed(_encoded(released_tokenizer, x))
        s1_ids, s2_ids = released_tokenizer.encode_halves(x)
    assert_near(z, released["tokenizer_base.pre_quant"])
    assert torch.equal(s1_ids, released["tokenizer_base.encode_s1"])
    assert torch.equal(s2_ids, released["tokenizer_base.encode_s2"])


def _encoded(model: KronosTokenizer, x: Tensor) -> Tensor:
    hidden = model.embed(x)
    for block in model.encoder:
        hidden = block(hidden)
    return hidden


@pytest.mark.skipif(not BARS.exists(), reason=f"the bars {BARS.name} are not beside the project")
@pytest.mark.parametrize("size", list(RELEASED))
def test_released_forecaster(
    released: Vectors,
    give_recipe_weights: Callable[[nn.Module, int], None],
    assert_near: Near,
    size: str,
) -> None:
    model = Kronos(token_dropout_p=0.0, learn_te=True, **RELEASED[size], **COMMON).eval()
    assert sum(p.numel() for p in model.parameters()) == RELEASED_PARAMETERS[size]
    give_recipe_weights(model, 2)
    bars = pd.read_csv(BARS, nrows=256)
    stamp = torch.from_numpy(stamp_columns(bars["timestamps"]))[None]
    s1_ids, s2_ids = released["tokenizer_base.encode_s1"], released["tokenizer_base.encode_s2"]
    with torch.no_grad():
        logits, context = model.decode_s1(s1_ids, s2_ids, stamp, last_only=True)
        fine = model.decode_s2(context, released[f"{size}.s1_id"], last_only=True)
        forced = model(
            s1_ids[:, :-1],
            s2_ids[:, :-1],
            stamp[:, :-1],
            use_teacher_forcing=True,
            s1_targets=s1_ids[:, 1:],
        )
        loss = model.head.compute_loss(*forced, s1_ids[:, 1:], s2_ids[:, 1:])[0]
    assert_near(context[:, -1], released[f"{size}.context_last"])
    assert_near(logits[:, 0], released[f"{size}.decode_s1.last_logits"])
    assert torch.equal(logits[:, 0].argmax(-1), released[f"{size}.s1_id"][:, 0])
    assert_near(fine[:, 0], released[f"{size}.decode_s2.logits"])
    assert_near(loss, released[f"{size}.teacher_loss"])

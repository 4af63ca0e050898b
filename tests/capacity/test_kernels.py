"""Which kernels a card would take, what they keep, and that the CPU's own come back.

Axes: B series, H heads, T queries, S keys, d width of one head.
"""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from kronos.capacity import trace_step
from kronos.hardware import CATALOGUE

FLASH = "_scaled_dot_product_flash_attention"
EFFICIENT = "_scaled_dot_product_efficient_attention"
B, H, T = 2, 3, 5
BF16, HALF, FULL = torch.bfloat16, torch.float16, torch.float32


def attend(device, *, dtype=BF16, d=64, S=T, mask=None, grad=True, context=None, **options):
    """Attention over zeros, and back where a gradient is wanted."""
    query, key, value = (
        torch.zeros(B, H, length, d, dtype=dtype, device=device, requires_grad=grad)
        for length in (T, S, S)
    )
    if mask is not None:
        options["attn_mask"] = torch.ones(T, S, device=device).to(mask)
    with context or nullcontext():
        out = F.scaled_dot_product_attention(query, key, value, **options)
    assert out.shape == query.shape
    if grad:
        out.sum().backward()
    return out


MATH = "math"


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (FLASH, {}),
        (FLASH, {"dtype": HALF}),
        (FLASH, {"is_causal": True}),
        (FLASH, {"d": 52}),
        (FLASH, {"d": 256}),
        (FLASH, {"S": 7}),
        (FLASH, {"dropout_p": 0.1}),
        (FLASH, {"context": sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH])}),
        (EFFICIENT, {"d": 264}),
        (EFFICIENT, {"S": 7, "is_causal": True}),
        (EFFICIENT, {"mask": torch.bool}),
        (EFFICIENT, {"mask": BF16}),
        (EFFICIENT, {"context": sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION)}),
        (EFFICIENT, {"dtype": FULL}),
        (EFFICIENT, {"dtype": FULL, "is_causal": True}),
        (EFFICIENT, {"dtype": FULL, "mask": torch.bool}),
        (EFFICIENT, {"dtype": FULL, "d": 52}),
        (MATH, {"dtype": FULL, "d": 50}),
        (MATH, {"dtype": torch.float64}),
        (MATH, {"d": 52, "mask": torch.bool}),  # flash takes no mask, the other no such width
        (MATH, {"context": sdpa_kernel(SDPBackend.MATH)}),
        (MATH, {"dtype": FULL, "context": sdpa_kernel(SDPBackend.FLASH_ATTENTION)}),
    ],
)
def test_attention_is_by_the_kernel_that_a_card_would_take(traced, operators, kernel, options):
    ran = operators(traced(lambda device: attend(device, **options)))
    assert ran & {FLASH, EFFICIENT} == {kernel} - {MATH}
    assert (f"{kernel}_backward" in ran) is (kernel != MATH)
    assert ("_safe_softmax" in ran) is (kernel == MATH)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (MATH, {}),
        (EFFICIENT, {"dtype": HALF}),
        (EFFICIENT, {"dtype": FULL}),
        (EFFICIENT, {"dtype": FULL, "d": 50}),
        (MATH, {"dtype": HALF, "d": 50}),
    ],
)
def test_a_turing_card_has_no_flash_attention(traced, operators, kernel, options):
    trace = traced(lambda device: attend(device, **options), card=CATALOGUE["t4"])
    assert operators(trace) & {FLASH, EFFICIENT} == {kernel} - {MATH}


@pytest.mark.parametrize("card", [None, CATALOGUE["h100"], CATALOGUE["l4"], CATALOGUE["a10"]])
def test_later_cards_have_it(traced, operators, card):
    assert FLASH in operators(traced(lambda device: attend(device), card=card))


def test_shapes_of_other_than_four_axes_or_of_grouped_heads_are_multiplied_out(traced, operators):
    def three_axes(device):
        x = torch.zeros(B, T, 64, dtype=BF16, device=device)
        return F.scaled_dot_product_attention(x, x, x)

    def grouped(device):
        query = torch.zeros(B, 4, T, 64, device=device)
        key = torch.zeros(B, 2, T, 64, device=device)
        return F.scaled_dot_product_attention(query, key, key, enable_gqa=True)

    for step in (three_axes, grouped):
        assert not operators(traced(step)) & {FLASH, EFFICIENT}


def test_flash_attention_pads_heads_to_a_multiple_of_eight(traced, taken):
    def step(device):
        wide = [torch.zeros(B, H, T, 52, device=device) for _ in range(3)]
        with torch.autocast(device, BF16):
            out = F.scaled_dot_product_attention(*wide, is_causal=True)
        assert (out.dtype, out.shape) == (BF16, (B, H, T, 52))

    trace = traced(step)
    rows = B * H * T
    assert taken(trace, "_to_copy") == [rows * 52 * 2] * 3
    assert taken(trace, "constant_pad_nd") == [rows * 56 * 2] * 3
    assert taken(trace, FLASH)[:2] == [rows * 56 * 2, rows * 4]  # with a float32 logsumexp
    assert sum(taken(trace, FLASH)[2:]) < 64  # the state of the random numbers


def without_grad(device):
    """Weights want a gradient, and nobody asks for it."""
    x = torch.zeros(B, H, T, 64, device=device, requires_grad=True)
    with torch.no_grad():
        F.scaled_dot_product_attention(x, x, x)


@pytest.mark.parametrize(
    ("step", "logsumexp"),
    [
        (lambda device: attend(device, dtype=FULL), [B * H * 32 * 4]),
        (lambda device: attend(device, dtype=FULL, grad=False), []),
        (without_grad, []),
    ],
)
def test_efficient_attention_keeps_its_logsumexp_by_32_rows(traced, taken, step, logsumexp):
    out, *others = taken(traced(step), EFFICIENT)
    assert out == B * H * T * 64 * 4
    assert [size for size in others if size > 16] == logsumexp


def test_a_bool_mask_becomes_numbers_in_rows_of_eight(traced, taken):
    trace = traced(lambda device: attend(device, dtype=FULL, mask=torch.bool, grad=False))
    assert taken(trace, "where") == [T * T * 4]
    assert taken(trace, "constant_pad_nd") == [T * 8 * 4]
    for S, padded in ((8, []), (12, [T * 16 * 4]), (16, [])):
        trace = traced(lambda device, S=S: attend(device, dtype=FULL, mask=FULL, S=S, grad=False))
        assert taken(trace, "constant_pad_nd") == padded


def test_dropout_keeps_a_bool_mask(traced, changes):
    def step(device):
        x = torch.zeros(1000, device=device, requires_grad=True)
        y = F.dropout(x * 1, 0.5)
        torch.zeros(7, device=device)  # here the mask is all that is kept
        y.sum().backward()

    sizes = changes(traced(step))
    assert sizes[:5] == [4000, 4000, 1000, 4000, -4000]  # x, its product, mask, result
    assert sum(sizes[: sizes.index(28)]) == 4000 + 1000 + 4000


def test_dropout_in_place_has_the_noise_of_floats(traced, taken):
    trace = traced(lambda device: F.dropout(torch.zeros(1000, device=device), 0.5, inplace=True))
    assert taken(trace) == [4000, 4000]


@pytest.mark.parametrize(
    "drop",
    [
        lambda x: F.dropout(x, 0.0),
        lambda x: F.dropout(x, 0.5, training=False),
        lambda x: nn.Dropout(0.5).eval()(x),
        lambda x: F.dropout(x[:0], 0.5),
        lambda x: F.dropout(x, 0.0, inplace=True),
        lambda x: F.dropout(x, 0.5, training=False, inplace=True),
    ],
)
def test_dropout_that_drops_nothing_takes_nothing(traced, taken, drop):
    def step(device):
        x = torch.zeros(1000, device=device)
        assert drop(x).untyped_storage()._cdata == x.untyped_storage()._cdata

    assert taken(traced(step)) == [4000]


def test_dropout_of_everything_multiplies_by_one_zero(traced, taken):
    trace = traced(lambda device: F.dropout(torch.zeros(1000, device=device), 1.0))
    assert taken(trace) == [4000, 4, 4000]


def results():
    """What the CPU's own kernels give, gradients included."""
    torch.manual_seed(3)
    x = torch.rand(B, H, T, 8, requires_grad=True)
    outputs = [
        F.dropout(x, 0.5),
        F.dropout(x, 0.0),
        F.dropout(x, 0.5, training=False),
        F.scaled_dot_product_attention(x, x, x, is_causal=True),
        F.scaled_dot_product_attention(x, x, x, torch.ones(T, T, dtype=torch.bool).tril()),
        F.scaled_dot_product_attention(x.bfloat16(), x.bfloat16(), x.bfloat16()).float(),
    ]
    sum(output.sum() for output in outputs).backward()
    return [*outputs, x.grad]


def fails(device):
    attend(device)
    raise KeyError(device)


@pytest.mark.parametrize("step", [attend, fails])
def test_the_cpu_s_own_kernels_come_back(step):
    before = results()
    try:
        trace_step(lambda device: lambda: step(device))
    except KeyError:
        assert step is fails
    for one, other in zip(before, results(), strict=True):
        assert torch.equal(one, other)

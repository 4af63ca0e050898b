"""What CUDA's kernels take beside their results, counted by hand."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from kronos.hardware import CATALOGUE, DEFAULT_CUBLAS_WORKSPACE, MIB

BF16 = torch.bfloat16


def zeros(device, *shape, dtype=torch.float32, grad=False):
    return torch.zeros(*shape, dtype=dtype, device=device, requires_grad=grad)


@pytest.mark.parametrize(
    ("card", "workspace"),
    [(None, 8_519_680), ("a10", 8_519_680), ("t4", 8_519_680), ("h100", 33_554_432)],
)
def test_each_thread_takes_one_workspace_and_keeps_it(traced, changes, card, workspace):
    def step(device):
        layers = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).to(device)
        for _ in range(2):
            layers(zeros(device, 2, 3)).sum().backward()

    trace = traced(step, card=CATALOGUE[card] if card else None, steps=2)
    sizes = changes(trace)
    assert sizes.count(workspace) == 2
    assert -workspace not in sizes
    phases = [trace.events.where(at)[0] for at, size in enumerate(sizes) if size == workspace]
    assert phases == ["forward", "backward"]
    assert "workspaces" in trace.events.categories


def test_a_workspace_is_taken_behind_the_first_result(traced, changes):
    trace = traced(lambda device: zeros(device, 4, 3) @ zeros(device, 3, 5))
    assert changes(trace, "mm")[:2] == [4 * 5 * 4, DEFAULT_CUBLAS_WORKSPACE]


@pytest.mark.parametrize(
    "multiply",
    [
        lambda device: torch.mm(zeros(device, 2, 3), zeros(device, 3, 4)),
        lambda device: torch.addmm(zeros(device, 4), zeros(device, 2, 3), zeros(device, 3, 4)),
        lambda device: torch.bmm(zeros(device, 2, 3, 4), zeros(device, 2, 4, 3)),
        lambda device: torch.baddbmm(*(zeros(device, 2, 3, 3) for _ in range(3))),
        lambda device: torch.mv(zeros(device, 2, 3), zeros(device, 3)),
        lambda device: torch.addmv(zeros(device, 2), zeros(device, 2, 3), zeros(device, 3)),
        lambda device: torch.einsum("bij,bkj->bik", *(zeros(device, 2, 3, 4) for _ in range(2))),
        lambda device: F.linear(zeros(device, 2, 5, 3), zeros(device, 4, 3), zeros(device, 4)),
    ],
)
def test_every_product_asks_cublas(traced, taken, multiply):
    assert DEFAULT_CUBLAS_WORKSPACE in taken(traced(multiply))


@pytest.mark.parametrize(
    "step",
    [
        lambda device: zeros(device, 3, 3) * zeros(device, 3, 3),
        lambda device: zeros(device, 3, 3).sum().exp(),
    ],
)
def test_nothing_else_does(traced, taken, step):
    assert DEFAULT_CUBLAS_WORKSPACE not in taken(traced(step))


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x @ x.t(),
        lambda x: x.sum(0),
        lambda x: x.sum(),
        lambda x: torch.bmm(x[None, ::2, ::2], x[None, :, ::2].transpose(1, 2)),
        lambda x: torch.multinomial(x[:2], 1),
    ],
)
def test_the_host_takes_nothing_of_the_card(traced, taken, run):
    assert taken(traced(lambda _: run(torch.zeros(2000, 4)))) == []


def test_a_trace_for_the_cpu_has_no_scratch(traced, taken):
    def step(device):
        zeros(device, 3, 3) @ zeros(device, 3, 3)
        zeros(device, 5000).sum()

    assert sorted(taken(traced(step, device="cpu"))) == sorted([36, 36, 36, 20_000, 4])


@pytest.mark.parametrize(
    ("step", "workspaces"),
    [
        (lambda device: F.linear(zeros(device, 2, 3), zeros(device, 4, 3), zeros(device, 4)), 1),
        (lambda device: F.linear(zeros(device, 1, 3), zeros(device, 4, 3), zeros(device, 4)), 0),
        (lambda device: F.linear(zeros(device, 2, 3), zeros(device, 1, 3), zeros(device, 1)), 0),
        (lambda device: F.linear(zeros(device, 2, 3), zeros(device, 4, 3)), 0),
        (lambda device: torch.addmm(*(zeros(device, 4, 4) for _ in range(3))), 0),
    ],
)
def test_a_product_with_a_bias_takes_a_workspace_where_releases_do(
    traced, changes, step, workspaces
):
    trace = traced(step, cublaslt_workspace=MIB)
    sizes = changes(trace)
    assert (sizes.count(MIB), sizes.count(-MIB)) == (workspaces, workspaces)
    assert MIB not in changes(traced(step))
    if workspaces:
        assert changes(trace, "addmm")[:4] == [32, MIB, DEFAULT_CUBLAS_WORKSPACE, -MIB]


def test_a_batched_product_copies_operands_that_lie_askew(traced, changes, taken):
    def step(device):
        first = zeros(device, 2, 3, 8)[:, :, ::2]
        second = zeros(device, 2, 4, 5)
        torch.bmm(first, second)
        torch.bmm(second.transpose(1, 2), first.transpose(1, 2))
        torch.bmm(second.transpose(1, 2), second)  # a stride of 1 is enough, in either place

    trace = traced(step)
    copy, results = 2 * 3 * 4 * 4, [2 * 3 * 5 * 4, 2 * 5 * 3 * 4, 2 * 5 * 5 * 4]
    workspace = DEFAULT_CUBLAS_WORKSPACE
    assert taken(trace, "bmm") == [results[0], copy, workspace, results[1], copy, results[2]]
    assert changes(trace, "bmm")[:4] == [results[0], copy, workspace, -copy]


@settings(max_examples=8)
@given(rows=st.integers(1, 3000), columns=st.integers(2, 90), mean=st.booleans())
@example(rows=1023, columns=32, mean=False)
@example(rows=1024, columns=32, mean=True)
def test_a_sum_over_many_rows_meets_in_memory(traced, changes, rows, columns, mean):
    def step(device):
        x = zeros(device, rows, columns)
        return x.mean(0) if mean else x.sum(0)

    found = changes(traced(step), "mean" if mean else "sum")
    buffers = [rows * columns * 8 // 64, 4 * -(-columns // 32)] if rows >= 1024 else []
    result = [4 * columns]
    assert found[: 1 + 2 * len(buffers)] == result + buffers + [-size for size in buffers]


@settings(max_examples=8)
@given(count=st.integers(2, 3000))
@example(count=1024)
@example(count=1025)
def test_a_full_sum_of_many_meets_in_memory(traced, changes, count):
    found = changes(traced(lambda device: zeros(device, count).sum()), "sum")
    buffers = [256, 4] if count > 1024 else []
    assert found[: 1 + 2 * len(buffers)] == [4, *buffers] + [-size for size in buffers]


def test_sums_along_rows_need_no_buffer_and_those_over_two_axes_do(traced, taken):
    assert taken(traced(lambda device: zeros(device, 2048, 40).sum(1)), "sum") == [2048 * 4]
    parts = [2048 * 40 * 8 // 64, 4 * 2]
    for keep in (True, False):
        over_both = traced(lambda device, keep=keep: zeros(device, 32, 64, 40).sum((0, 1), keep))
        assert taken(over_both, "sum") == [40 * 4, *parts]
    turned = traced(lambda device: zeros(device, 40, 2048).t().sum(0))
    assert taken(turned, "sum") == [40 * 4]


def test_no_rows_at_all_are_summed(traced, taken):
    for shape in ((0, 7), (7, 0), (0,)):
        for axes in (0, tuple(range(len(shape)))):
            traced(lambda device, shape=shape, axes=axes: zeros(device, *shape).sum(axes))
    assert taken(traced(lambda device: zeros(device, 0, 7).sum(0)), "sum") == [28]


def test_dropout_s_mask_is_taken_before_its_result(traced, taken):
    assert taken(traced(lambda device: F.dropout(zeros(device, 1000))), "native_dropout") == [
        1000,
        4000,
    ]


@pytest.mark.parametrize("count", [3072, 3073, 5000])
def test_many_indices_are_sorted_for_an_embedding_s_gradient(traced, changes, count):
    rows, width = 50, 20

    def step(device):
        table = nn.Embedding(rows, width, device=device)
        table(zeros(device, count, dtype=torch.int64)).sum().backward()

    found = changes(traced(step), "embedding_dense_backward")
    result = rows * width * 4
    if count <= 3072:
        assert found[0] == result
        assert not [size for size in found[1:] if size > 0]
        return
    before = [8 * count, 8 * count, 16 * count]
    partial = count // 10 + rows
    after = [8 * count, 8 * rows, 8 * rows, 8 * partial, 4 * partial * 32]
    held = before + after
    assert found[: 1 + 2 * len(held)] == [*before, result, *after, *(-size for size in held)]


def attention(device, dtype, width, askew=False):
    """Attention of 2 series, 3 heads and 5 queries, and back."""
    query, key, value = (zeros(device, 2, 3, 5, width, dtype=dtype, grad=True) for _ in range(3))
    out = F.scaled_dot_product_attention(query, key, value)
    grad = zeros(device, 2, 5, 3, width, dtype=dtype).transpose(1, 2)
    out.backward(grad.contiguous() if askew else grad)


@pytest.mark.parametrize("askew", [False, True])
def test_flash_attention_s_backward_sums_in_float32(traced, taken, askew):
    trace = traced(lambda device: attention(device, BF16, 40, askew))
    found = taken(trace, "_scaled_dot_product_flash_attention_backward")
    gradient, rows = 2 * 3 * 5 * 40 * 2, 2 * 3 * 128
    copy = [gradient] if askew else []
    assert found == [gradient] * 3 + [*copy, 4 * rows, 4 * rows * 64]


@pytest.mark.parametrize("dtype", [torch.float32, BF16])
def test_efficient_attention_s_backward_sums_by_32_rows(traced, taken, dtype):
    def step(device):
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION):
            attention(device, dtype, 40)

    found = taken(traced(step), "_scaled_dot_product_efficient_attention_backward")
    gradient = 2 * 3 * 5 * 40 * dtype.itemsize
    whole = [gradient] if dtype is torch.float32 else []
    assert found[3:] == [*whole, 2 * 3 * 32 * 4]
    assert found[:3] == [gradient] * 3


def test_batch_norm_s_backward_takes_its_sums_first(traced, taken):
    def step(device):
        norm = nn.BatchNorm1d(7).to(device)
        norm(zeros(device, 5, 7, grad=True)).sum().backward()

    channels = 7 * 4
    found = taken(traced(step), "native_batch_norm_backward")
    assert found == [channels, channels, channels, channels, 5 * 7 * 4]


def test_drawing_races_a_clock_for_each_chance(traced, changes):
    trace = traced(lambda device: torch.multinomial(zeros(device, 5, 7), 1))
    assert changes(trace, "multinomial")[:3] == [5 * 8, 5 * 7 * 4, -5 * 7 * 4]

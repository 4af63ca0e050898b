"""Norm, feed-forward, rotary embedding, attention, blocks and masks."""

import copy
import math
import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kronos.errors import ConfigError
from kronos.model.layers import (
    FeedForward,
    RMSNorm,
    RotaryEmbedding,
    SelfAttention,
    TransformerBlock,
    cast_once,
    causal_mask,
    rotate,
    run_blocks,
)

Near = Callable[[Tensor, Tensor], None]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def test_rms_norm_by_hand() -> None:
    norm = RMSNorm(2)
    norm.weight.data = torch.tensor([1.0, 10.0])
    scale = 1 / math.sqrt((9 + 16) / 2 + 1e-5)
    assert torch.allclose(norm(torch.tensor([3.0, 4.0])), torch.tensor([3 * scale, 40 * scale]))


def test_rms_norm_counts_in_float32_in_half_precision() -> None:
    x = torch.full((1, 64), 300.0, dtype=torch.float16)  # 300^2 overflows float16
    assert torch.allclose(RMSNorm(64).half()(x), torch.ones_like(x))


def test_feed_forward_is_swiglu_without_biases() -> None:
    layer = FeedForward(8, 16)
    x = torch.randn(2, 3, 8)
    wanted = (F.silu(x @ layer.w1.weight.T) * (x @ layer.w3.weight.T)) @ layer.w2.weight.T
    assert torch.allclose(layer(x), wanted, atol=1e-6)
    assert set(layer.state_dict()) == {"w1.weight", "w2.weight", "w3.weight"}


def test_rotation_turns_pairs_of_first_and_second_half() -> None:
    rotary = RotaryEmbedding(4)
    x = torch.randn(1, 1, 6, 4)
    turned = rotate(x, rotary(6))
    for position in range(6):
        for pair in range(2):
            angle = position / 10000 ** (2 * pair / 4)
            a, b = x[0, 0, position, pair], x[0, 0, position, pair + 2]
            wanted = (
                a * math.cos(angle) - b * math.sin(angle),
                b * math.cos(angle) + a * math.sin(angle),
            )
            assert turned[0, 0, position, pair] == pytest.approx(float(wanted[0]), abs=1e-6)
            assert turned[0, 0, position, pair + 2] == pytest.approx(float(wanted[1]), abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_P22_inv_freq_stays_float32_and_exact(dtype: torch.dtype) -> None:
    attention = SelfAttention(64, 2)
    before = attention.rotary.inv_freq.clone()
    x = torch.randn(1, 8, 64)
    attention(x)
    attention.to(dtype)
    assert attention.rotary.inv_freq.dtype == torch.float32
    assert torch.equal(attention.rotary.inv_freq, before)
    assert attention.q_proj.weight.dtype == dtype
    assert attention(x.to(dtype)).dtype == dtype
    cos, _ = attention.rotary(2048)
    assert cos.dtype == torch.float32
    assert cos[:, 0].unique().numel() > 2000  # bfloat16 would leave a few hundred
    attention.float()
    assert torch.equal(attention.rotary.inv_freq, before)


def test_P22_forward_after_a_move_and_with_another_length() -> None:
    attention, x = SelfAttention(16, 2), torch.randn(1, 9, 16)
    wanted = attention(x)
    half = copy.deepcopy(attention).bfloat16()
    assert half(x[:, :5].bfloat16()).shape == (1, 5, 16)
    assert torch.allclose(half.float()(x), wanted, atol=0.02)
    assert torch.allclose(attention(x[:, :4]), wanted[:, :4], atol=1e-6)
    away = attention.to("meta")
    assert away(torch.empty(1, 20, 16, device="meta")).shape == (1, 20, 16)
    assert away.rotary(20)[0].device.type == "meta"


def test_P23_threads_of_different_lengths_share_a_layer() -> None:
    attention = SelfAttention(16, 2).eval()
    inputs = {length: torch.randn(1, length, 16) for length in (3, 40, 55)}
    wanted = {length: attention(x).detach() for length, x in inputs.items()}
    faults: list[object] = []

    def work(length: int) -> None:
        for _ in range(100):
            try:
                if not torch.allclose(attention(inputs[length]), wanted[length], atol=1e-6):
                    faults.append(length)
            except RuntimeError as error:
                faults.append(error)

    threads = [threading.Thread(target=work, args=(length,)) for length in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def slow_attention(layer: SelfAttention, x: Tensor, seen: Tensor) -> Tensor:
    """Head by head and row by row; seen (T, T), True where row may look at column."""
    length, width = x.shape[1], x.shape[2] // layer.n_heads
    rotation = layer.rotary(length)
    out = torch.zeros_like(x)
    q, k, v = layer.q_proj(x), layer.k_proj(x), layer.v_proj(x)
    for head in range(layer.n_heads):
        part = slice(head * width, (head + 1) * width)
        qh, kh = rotate(q[None, ..., part], rotation)[0], rotate(k[None, ..., part], rotation)[0]
        for row in range(length):
            keys = seen[row].nonzero()[:, 0]
            scores = kh[0, keys] @ qh[0, row] / math.sqrt(width)
            out[0, row, part] = torch.softmax(scores, 0) @ v[0, keys, part]
    return layer.out_proj(out)


def test_self_attention_is_causal() -> None:
    layer, x = SelfAttention(16, 4), torch.randn(1, 7, 16)
    seen = torch.ones(7, 7, dtype=torch.bool).tril()
    assert torch.allclose(layer(x), slow_attention(layer, x, seen), atol=1e-5)


def test_M4_true_means_padded_and_causality_stays() -> None:
    layer, x = SelfAttention(16, 4), torch.randn(1, 7, 16)
    padding = torch.tensor([[False, True, False, False, False, False, True]])
    seen = torch.ones(7, 7, dtype=torch.bool).tril() & ~padding
    got = layer(x, causal_mask(padding))
    rows = ~padding[0]
    wanted = slow_attention(layer, x, seen | torch.eye(7, dtype=torch.bool))
    assert torch.allclose(got[:, rows], wanted[:, rows], atol=1e-5)
    x[:, 1] = 100.0  # what is padded does not matter
    assert torch.allclose(layer(x, causal_mask(padding))[:, rows], got[:, rows], atol=1e-5)


def test_padding_on_the_left_leaves_no_nan() -> None:
    layer, x = SelfAttention(16, 4), torch.randn(2, 6, 16)
    padding = torch.tensor([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1]])
    mask = causal_mask(padding)
    assert mask is not None
    assert mask.any(dim=-1).all()  # no row sees nothing, whatever the kernel makes of that
    assert layer(x, mask).isfinite().all()
    assert causal_mask(None) is None


def test_attention_dropout_works_in_training_only() -> None:
    layer, x = SelfAttention(16, 4, attn_dropout_p=0.5), torch.randn(1, 6, 16)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


@pytest.mark.parametrize(("width", "heads", "rule"), [(10, 3, "divisible"), (9, 3, "even")])
def test_M6_heads_of_a_wrong_width(width: int, heads: int, rule: str) -> None:
    with pytest.raises(ConfigError, match=rf"{rule}.*{width} / {heads}"):
        SelfAttention(width, heads)


def test_block_adds_both_branches_to_its_input() -> None:
    block, x = TransformerBlock(16, 4, 32), torch.randn(1, 5, 16)
    middle = x + block.self_attn(block.norm1(x))
    assert torch.allclose(block(x), middle + block.ffn(block.norm2(middle)), atol=1e-6)


@pytest.mark.parametrize("checkpointing", ["off", "block"])
def test_run_blocks_passes_the_mask_to_each(checkpointing: str) -> None:
    blocks = [TransformerBlock(16, 4, 32) for _ in range(2)]
    x = torch.randn(1, 5, 16, requires_grad=True)
    mask = causal_mask(torch.tensor([[True, False, False, False, False]]))
    wanted = blocks[1](blocks[0](x, mask), mask)
    got = run_blocks(blocks, x, mask, checkpointing)
    assert torch.allclose(got, wanted, atol=1e-6)
    assert run_blocks([], x, None, checkpointing) is x


def test_checkpointing_keeps_less_and_gives_the_same_gradients() -> None:
    def kept_and_gradient(checkpointing: str) -> tuple[int, Tensor]:
        torch.manual_seed(1)
        blocks = [TransformerBlock(16, 4, 32, 0.2, 0.0, 0.2) for _ in range(2)]
        x = torch.randn(1, 5, 16, requires_grad=True)
        sizes: list[int] = []

        def keep(tensor: Tensor) -> Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            out = run_blocks(blocks, x, None, checkpointing)
            count = sum(sizes)
        out.square().sum().backward()
        assert x.grad is not None
        return count, x.grad

    kept, gradient = kept_and_gradient("off")
    kept_less, same_gradient = kept_and_gradient("block")
    assert kept_less < kept / 4
    assert torch.allclose(gradient, same_gradient, atol=1e-6)


def test_unknown_checkpointing_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"'off', 'block'.*'blocks'"):
        run_blocks([], torch.zeros(1, 1, 2), checkpointing="blocks")


def test_cast_once_only_under_autocast() -> None:
    x = torch.randn(2, 2)
    assert cast_once(x) is x
    with torch.autocast("cpu", torch.bfloat16):
        assert cast_once(x).dtype == torch.bfloat16


def test_cast_once_changes_no_number_and_keeps_fewer_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    block, x = TransformerBlock(16, 4, 32), torch.randn(1, 5, 16)

    def run() -> tuple[Tensor, int]:
        kept: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autocast("cpu", torch.bfloat16):
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                out = block(x)
        return out.detach(), sum(kept.values())

    once, few = run()
    monkeypatch.setattr("kronos.model.layers.cast_once", lambda x: x)
    each, many = run()
    assert torch.equal(once, each)
    assert few < many

"""Token and time embeddings."""

import math

import pytest
import torch

from kronos.model.embedding import HierarchicalEmbedding, TimeEmbedding, sinusoids


def test_tokens_are_scaled_and_fused() -> None:
    layer = HierarchicalEmbedding(3, 2, 16)
    s1_ids, s2_ids = torch.tensor([[7, 0]]), torch.tensor([[3, 1]])
    pair = torch.cat((layer.emb_s1.weight[s1_ids], layer.emb_s2.weight[s2_ids]), -1)
    assert torch.allclose(layer(s1_ids, s2_ids), layer.fusion_proj(4 * pair), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32])
def test_time_is_the_sum_of_five_tables_in_order(dtype: torch.dtype) -> None:
    layer = TimeEmbedding(8, learned=True)
    wanted = (
        layer.minute_embed.weight[59]
        + layer.hour_embed.weight[23]
        + layer.weekday_embed.weight[6]
        + layer.day_embed.weight[31]
        + layer.month_embed.weight[12]
    )
    stamp = torch.tensor([[[59, 23, 6, 31, 12]]], dtype=dtype)
    assert torch.allclose(layer(stamp)[0, 0], wanted, atol=1e-6)


def test_sinusoids_by_hand() -> None:
    table = sinusoids(60, 8)
    for row in (0, 1, 59):
        for pair in range(4):
            angle = row / 10000 ** (2 * pair / 8)
            assert table[row, 2 * pair].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert table[row, 2 * pair + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)


def test_fixed_tables_have_their_names_and_are_not_trained() -> None:
    layer = TimeEmbedding(8, learned=False)
    names = [f"{name}_embed.emb.weight" for name in ("minute", "hour", "weekday", "day", "month")]
    assert list(layer.state_dict()) == names
    assert not any(parameter.requires_grad for parameter in layer.parameters())

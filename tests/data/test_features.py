"""The ranking of features: on numbers whose relations are known, and losses told beforehand."""

import numpy as np
import pytest
from markets import market_of

from kronos.data import Market, Windows
from kronos.data.features import rank_features


@pytest.fixture
def windows():
    """open = close; high opposes close in part; low stands still; volume and amount are noise."""
    market = market_of(400)
    features = market.features.copy()
    features[:, 0] = features[:, 3]
    features[:, 1] = -features[:, 3] + 0.5 * features[:, 1]
    features[:, 2] = 7.0
    stamps = market.stamps.copy()
    stamps[:, 4] = 6
    return Windows(
        Market(market.symbols, market.offsets, market.times, features, stamps, None), 30, 5
    )


def by_name(ranks):
    return {rank.name: rank for rank in ranks}


def test_redundancy_is_the_largest_correlation(windows):
    starts = windows.starts.spread(10)
    ranks = rank_features(windows, starts)
    found = by_name(ranks)
    assert set(found) == {
        *("open", "high", "low", "close", "volume", "amount"),
        *("minute", "hour", "weekday", "day", "month"),
    }
    assert (found["open"].redundancy, found["open"].told_by) == (pytest.approx(1.0), "close")
    assert (found["close"].redundancy, found["close"].told_by) == (pytest.approx(1.0), "open")
    flat = windows.batch(starts).features.reshape(-1, 6)
    expected = abs(np.corrcoef(flat[:, 1], flat[:, 3])[0, 1])
    assert found["high"].redundancy == pytest.approx(expected, rel=1e-6)
    assert found["high"].told_by in ("open", "close")
    for name in ("low", "month"):  # never changes
        assert (found[name].redundancy, found[name].told_by) == (1.0, None)
    assert found["volume"].redundancy < 0.3
    assert all(0 <= rank.redundancy <= 1 for rank in ranks)
    assert all(rank.effect is None for rank in ranks)
    assert [rank.redundancy for rank in ranks] == sorted(
        (rank.redundancy for rank in ranks), reverse=True
    )


def test_effect_is_the_rise_of_the_loss_and_orders_the_ranks(windows):
    weights = {"close": 5.0, "volume": 2.0, "amount": -1.0}
    order = ["open", "high", "low", "close", "volume", "amount"]

    def loss(shown, true):
        """Counts what is hidden of the features; a hidden hour counts 3."""
        missing = sum(
            weights.get(name, 0.5)
            for place, name in enumerate(order)
            if (shown.features[..., place] == 0).all() and (true.features[..., place] != 0).any()
        )
        hour = 3.0 if not shown.stamps[..., 1].any() and true.stamps[..., 1].any() else 0.0
        return 10.0 + missing + hour

    ranks = rank_features(windows, windows.starts.spread(10), loss)
    effects = {rank.name: rank.effect for rank in ranks}
    assert effects["close"] == 5.0
    assert effects["volume"] == 2.0
    assert effects["amount"] == -1.0
    assert effects["hour"] == 3.0
    assert effects["low"] == 0.0, "it was 0 before"
    assert ranks[0].name == "amount"
    assert ranks[-1].name == "close"
    same = [rank.redundancy for rank in ranks if rank.effect == 0.0]
    assert same == sorted(same, reverse=True)

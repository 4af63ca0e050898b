"""Made-up markets for the tests of windows: numbers that follow no rule of bars."""

import numpy as np

from kronos.data import Market


def market_of(*lengths, seed=0, scale=3.0):
    """A market of symbols S0, S1, ... with these numbers of bars."""
    rng = np.random.default_rng(seed)
    offsets = np.cumsum([0, *lengths])
    count = int(offsets[-1])
    return Market(
        symbols=tuple(f"S{place}" for place in range(len(lengths))),
        offsets=offsets,
        times=np.concatenate([np.arange(length) for length in lengths]) * 300 * 10**9,
        features=rng.normal(size=(count, 6)) * scale + 100.0,
        stamps=rng.integers(0, 7, size=(count, 5)).astype(np.uint8),
        zone=None,
    )

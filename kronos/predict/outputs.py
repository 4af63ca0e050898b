"""From the values of all paths to frames: their mean, their quantiles, or all of them.

Axes: C paths, S bars to come, F = 6 features.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kronos.data.columns import FEATURES

_HIGH, _LOW, _VOLUME = FEATURES.index("high"), FEATURES.index("low"), FEATURES.index("volume")


def sane(values: NDArray[np.float64], clip_volume: bool, repair_ohlc: bool) -> NDArray[np.float64]:
    """Paths (C, S, F) with the impossible taken out of each, so out of their mean too.

    `clip_volume`: volume and amount are 0 at least. `repair_ohlc`: high and low are the
    extremes of the bar's four prices.
    """
    values = values.copy()
    if clip_volume:
        values[..., _VOLUME:] = np.maximum(values[..., _VOLUME:], 0.0)  # volume and amount
    if repair_ohlc:
        prices = values[..., :_VOLUME].copy()
        values[..., _HIGH], values[..., _LOW] = prices.max(axis=-1), prices.min(axis=-1)
    return values


def mean_frame(
    values: NDArray[np.float64], future: pd.DatetimeIndex, quantiles: Sequence[float]
) -> pd.DataFrame:
    """(S, F) or (S, F + F * quantiles) in float32: `close`, ..., `close_q0.9`, ..."""
    columns = dict(zip(FEATURES, values.mean(axis=0).T, strict=True))
    if quantiles:
        bounds = np.quantile(values, quantiles, axis=0)  # Q S F
        for number, name in enumerate(FEATURES):
            for quantile, bound in zip(quantiles, bounds, strict=True):
                columns[f"{name}_q{quantile:g}"] = bound[:, number]
    return pd.DataFrame(columns, index=future).astype(np.float32)


def paths_frame(values: NDArray[np.float64], future: pd.DatetimeIndex) -> pd.DataFrame:
    """(C * S, F) in float32, indexed by path and timestamp."""
    names = ["path", future.name or "timestamps"]
    index = pd.MultiIndex.from_product([range(len(values)), future], names=names)
    rows = values.reshape(-1, len(FEATURES)).astype(np.float32)
    return pd.DataFrame(rows, index=index, columns=list(FEATURES))

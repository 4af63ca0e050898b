"""Samples to learn from: windows over the bars of one or many symbols, gathered a batch at once.

One sample is `window` bars of lookback followed by `horizon` + 1 bars of targets, all of one
symbol.

Axes: N bars of a market, B samples of a batch, T = window + horizon + 1 bars of a sample,
6 features (open, high, low, close, volume, amount), 5 stamps (minute, hour, weekday, day,
month).
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from kronos.data.columns import FEATURES
from kronos.data.market import Market
from kronos.data.timestamps import STAMPS
from kronos.errors import ConfigError, DataError

STD_FLOOR = 1e-5
"""Added to each standard deviation, so that a flat column divides by something."""

_HASHED_AT_ONCE = 1 << 19  # bars


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """B samples of T bars, ready to be turned into tensors."""

    features: NDArray[np.float32]
    """(B, T, 6), in standard deviations of each sample's lookback, clipped."""
    stamps: NDArray[np.int64]
    """(B, T, 5)"""


class WindowStarts:
    """The bars at which windows begin, as runs of consecutive bars, in rising order.

    A market of ten million bars has nearly as many windows; this holds two numbers a run.
    """

    def __init__(self, runs: Iterable[range]) -> None:
        self.runs = tuple(run for run in runs if run)
        """The runs that are not empty, each with a step of 1."""
        self._firsts = np.array([run.start for run in self.runs], dtype=np.int64)
        self._befores = np.cumsum([0, *map(len, self.runs)], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._befores[-1])

    def at(self, numbers: ArrayLike) -> NDArray[np.int64]:
        """The bars (B,) at which the windows of these numbers (B,) begin, counted from 0.

        Raises IndexError for a number outside [0, len(self)); negative ones do not wrap.
        """
        numbers = np.asarray(numbers, dtype=np.int64)
        outside = (numbers < 0) | (numbers >= len(self))
        if outside.any():
            raise IndexError(
                f"window {numbers[outside][0]} is outside 0..{len(self) - 1} of {len(self)} windows"
            )
        run = np.searchsorted(self._befores, numbers, side="right") - 1
        return np.asarray(self._firsts[run] + (numbers - self._befores[run]), dtype=np.int64)

    def numbers(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The inverse of `at`, for bars (B,) at which windows do begin."""
        run = np.searchsorted(self._firsts, starts, side="right") - 1
        return np.asarray(self._befores[run] + (starts - self._firsts[run]), dtype=np.int64)

    def every(self) -> NDArray[np.int64]:
        """All of them, (len(self),)."""
        return self.at(np.arange(len(self)))

    def spread(self, count: int) -> NDArray[np.int64]:
        """Up to `count` of them, evenly spread, the first and the last among them."""
        places = np.linspace(0, len(self) - 1, min(count, len(self)))
        return self.at(places.round().astype(np.int64))


class Windows:
    """Every window of a market, normalised by its own lookback.

    Mean and standard deviation (float64, biased, plus 1e-5) of each column come from the first
    `window` bars of a sample alone, never from its targets; the whole sample is scaled by them
    and clipped to ±`clip`, as the predictor scales a history before it forecasts.

    A feature that is not among `features` is 0 in every sample, the score of its mean; a stamp
    that is not among `time_features` is 0 too. The shapes stay, so any model takes them.

    Symbols with fewer bars than one sample have no window (`too_short` counts them). Raises
    ConfigError for a window, horizon or clip below its least and for an unknown feature,
    DataError where no symbol has a window.
    """

    def __init__(
        self,
        market: Market,
        window: int,
        horizon: int,
        *,
        clip: float = 5.0,
        features: Collection[str] = FEATURES,
        time_features: Collection[str] = STAMPS,
    ) -> None:
        check_sizes(window, horizon)
        if not clip > 0:
            raise ConfigError(f"clip must be greater than 0, got {clip}")
        self.market = market
        self.window = window
        self.horizon = horizon
        self.clip = clip
        self.sample_length = window + horizon + 1
        self._dropped = dropped(features, FEATURES, "features")
        if len(self._dropped) == len(FEATURES):
            raise ConfigError("features must keep at least one, got none")
        self._dropped_stamps = dropped(time_features, STAMPS, "time_features")
        counts = np.diff(market.offsets) - self.sample_length + 1  # S
        self.too_short = int((counts < 1).sum())
        if self.too_short == len(counts):
            raise DataError(
                f"one sample takes {self.sample_length} bars (window {window} + horizon {horizon} "
                f"+ 1), got {np.diff(market.offsets).max()}; give more bars, or a smaller window "
                "or horizon"
            )
        firsts = market.offsets[:-1]
        self.starts = WindowStarts(
            range(first, first + count) for first, count in zip(firsts, counts, strict=True)
        )
        """Where all the windows begin."""

    def __len__(self) -> int:
        return len(self.starts)

    def batch(self, starts: ArrayLike) -> Batch:
        """The samples that begin at the bars `starts` (B,), gathered at once.

        Raises IndexError for a bar at which no window begins.
        """
        firsts = np.asarray(starts, dtype=np.int64)
        self._check_starts(firsts)
        features = self._normalise(self._samples(self.market.features, firsts))
        return Batch(features, self.stamps(firsts))

    def stamps(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The stamps (B, T, 5) of the samples that begin at the bars `starts` (B,)."""
        stamps = self._samples(self.market.stamps, starts).transpose(0, 2, 1)
        stamps = stamps.astype(np.int64, order="C")
        if self._dropped_stamps:
            stamps[..., self._dropped_stamps] = 0
        self.market.release()
        return stamps

    def key(self) -> str:
        """A digest of what the features of every window depend on, bars and settings."""
        settings = [self.window, self.horizon, self.clip, self._dropped]
        digest = hashlib.sha256(json.dumps(settings).encode())
        digest.update(np.ascontiguousarray(self.market.offsets).data)
        for first in range(0, len(self.market), _HASHED_AT_ONCE):
            part = self.market.features[first : first + _HASHED_AT_ONCE]
            digest.update(np.ascontiguousarray(part).data)
            self.market.release()
        return digest.hexdigest()

    def _samples(self, values: NDArray[Any], starts: NDArray[np.int64]) -> NDArray[Any]:
        """(B, columns, T) of values (N, columns)."""
        return sliding_window_view(values, self.sample_length, axis=0)[starts]

    def _check_starts(self, starts: NDArray[np.int64]) -> None:
        offsets = self.market.offsets
        outside = (starts < 0) | (starts >= len(self.market))
        symbol = self.market.symbol_of(np.where(outside, 0, starts))
        bad = outside | (starts + self.sample_length > offsets[symbol + 1])
        if bad.any():
            raise IndexError(
                f"no window of {self.sample_length} bars begins at bar {starts[bad][0]} of "
                f"{len(self.market)}: a window stays within one symbol"
            )

    def _normalise(self, samples: NDArray[np.float64]) -> NDArray[np.float32]:
        columns = np.ascontiguousarray(samples)  # B 6 T: sums run along memory
        # Counted from each sample's first bar, a flat column is exactly 0 before its mean is
        # taken; the mean of 400 times 50000.1 is not exactly 50000.1.
        columns -= columns[:, :, :1].copy()
        lookback = columns[:, :, : self.window]
        columns -= lookback.mean(axis=2, keepdims=True)
        variance = np.einsum("bft,bft->bf", lookback, lookback) / self.window
        columns /= (np.sqrt(variance) + STD_FLOOR)[:, :, None]
        np.clip(columns, -self.clip, self.clip, out=columns)
        if self._dropped:
            columns[:, self._dropped] = 0.0
        return np.ascontiguousarray(columns.transpose(0, 2, 1), dtype=np.float32)  # B T 6


def check_sizes(window: int, horizon: int) -> None:
    """ConfigError for a window or a horizon below 1."""
    for name, value in (("window", window), ("horizon", horizon)):
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}")


def dropped(kept: Collection[str], known: Sequence[str], setting: str) -> list[int]:
    """Places in `known` of what is not kept; ConfigError names the setting and what is unknown."""
    unknown = [name for name in kept if name not in known]
    if unknown:
        raise ConfigError(f"{setting} are some of {', '.join(known)}; got {', '.join(unknown)}")
    return [place for place, name in enumerate(known) if name not in kept]

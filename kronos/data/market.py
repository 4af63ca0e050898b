"""Bars of one or many symbols as flat arrays, which windows are cut from.

Axes: S symbols, N bars of all of them, 6 features (open, high, low, close, volume, amount),
5 stamps (minute, hour, weekday, day, month).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kronos.data.bars import validate_bars
from kronos.data.columns import FEATURES, TIMESTAMPS
from kronos.data.timestamps import stamp_columns
from kronos.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class Market:
    """Bars of S symbols, one symbol after the other, in arrays that cannot be written to."""

    symbols: tuple[str, ...]
    """(S,), no two alike."""
    offsets: NDArray[np.int64]
    """(S + 1,): symbol s has the bars offsets[s] to offsets[s + 1], at least one."""
    times: NDArray[np.int64]
    """(N,) ns since 1970-01-01, in UTC where there is a zone, else as the clock showed them;
    rising within each symbol."""
    features: NDArray[np.float64]
    """(N, 6), as the files have them."""
    stamps: NDArray[np.uint8]
    """(N, 5), what the clock showed."""
    zone: str | None
    """The time zone of the clock, one for all symbols; None where nothing was said of it."""

    @classmethod
    def from_frames(cls, frames: Mapping[str, pd.DataFrame]) -> Self:
        """The bars of a frame per symbol; every frame is validated.

        Raises:
            DataError: no frame, bars against the rules, or clocks of two zones.
        """
        if not frames:
            raise DataError("there are no bars; give at least one symbol")
        bars = {name: validate_bars(frame, source=name or "bars") for name, frame in frames.items()}
        indices = {name: pd.DatetimeIndex(frame.index) for name, frame in bars.items()}
        zones = {
            name: None if index.tz is None else str(index.tz) for name, index in indices.items()
        }
        first = next(iter(zones))
        for name, zone in zones.items():
            if zone != zones[first]:
                raise DataError(
                    f"{name} is in {_clock(zone)} and {first} in {_clock(zones[first])}; "
                    "convert all to one clock"
                )
        return cls(
            tuple(frames),
            _read_only(np.cumsum([0, *map(len, bars.values())], dtype=np.int64)),
            _read_only(np.concatenate([index.asi8 for index in indices.values()])),
            _read_only(np.concatenate([frame.to_numpy(np.float64) for frame in bars.values()])),
            _read_only(
                np.concatenate(
                    [stamp_columns(index).astype(np.uint8) for index in indices.values()]
                )
            ),
            zones[first],
        )

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, symbol: str = "bars") -> Self:
        """The bars of one symbol; DataError names it."""
        return cls.from_frames({symbol: frame})

    def __len__(self) -> int:
        return len(self.features)

    def frame(self, symbol: str) -> pd.DataFrame:
        """The bars of one symbol, in the form of `read_bars`.

        Raises:
            DataError: no such symbol.
        """
        if symbol not in self.symbols:
            there = ", ".join(self.symbols[:10]) + (", ..." if len(self.symbols) > 10 else "")
            raise DataError(f"no symbol {symbol!r:.60}; there are {there}")
        place = self.symbols.index(symbol)
        first = int(self.offsets[place])
        return self.slice(first, int(self.offsets[place + 1]) - first)

    def slice(self, first: int, count: int) -> pd.DataFrame:
        """The `count` bars from bar `first` on, in the form of `read_bars`."""
        rows = slice(first, first + count)
        index = pd.DatetimeIndex(self.times[rows].astype("datetime64[ns]"), name=TIMESTAMPS)
        if self.zone is not None:
            index = index.tz_localize("UTC").tz_convert(self.zone)
        return pd.DataFrame(self.features[rows].copy(), index=index, columns=list(FEATURES))

    def release(self) -> None:
        """Called after each batch, so that a mapped market can let go of memory."""

    def symbol_of(self, bars: NDArray[np.int64]) -> NDArray[np.int64]:
        """The place in `symbols` of each of the bars (B,)."""
        return np.asarray(np.searchsorted(self.offsets, bars, side="right") - 1, dtype=np.int64)


def _read_only(array: NDArray[np.generic]) -> NDArray:  # type: ignore[type-arg]
    array.setflags(write=False)
    return array


def _clock(zone: str | None) -> str:
    return "no time zone" if zone is None else f"the zone {zone}"

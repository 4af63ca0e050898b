"""The pieces of all files as one set of bars, grouped by symbol, each with its place."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kronos.data.columns import FEATURES, PRICES, Source
from kronos.data.reading.pieces import Piece
from kronos.data.reading.zones import index_of


@dataclass(slots=True)
class Bars:
    """N bars of S symbols, on their way to be sound; each symbol's stand together."""

    symbols: list[str]
    """(S,)"""
    codes: NDArray[np.int32]
    """(N,), places in `symbols`, rising."""
    times: NDArray[np.int64]
    """(N,), see `Times.values`."""
    features: NDArray[np.float64]
    """(N, 6), NaN where a cell is to be filled."""
    zone: str | None
    sources: list[Source]
    """Where the bars come from, one after the other."""
    starts: NDArray[np.int64]
    """(len(sources) + 1,), the first bar of each source, before any was moved or left out."""
    derived: NDArray[np.bool_]
    """(N,), bars whose amount is to be derived, and 0 until then."""
    is_frame: bool = False
    """Whether they come from a frame, which has no reading options."""
    origin: NDArray[np.int64] | None = field(default=None)
    """(N,), the place of each bar among `starts`; None where none was moved."""

    @classmethod
    def from_frame(
        cls, index: pd.DatetimeIndex, features: NDArray[np.float64], source: Source
    ) -> "Bars":
        """The bars (N, 6) of one symbol in a frame."""
        count = len(index)
        return cls(
            symbols=[source.name],
            codes=np.zeros(count, dtype=np.int32),
            times=index.asi8,
            features=features,
            zone=None if index.tz is None else str(index.tz),
            sources=[source],
            starts=np.array([0, count]),
            derived=np.zeros(count, dtype=bool),
            is_frame=True,
        )

    def __len__(self) -> int:
        return len(self.times)

    def take(self, order: NDArray[np.int64]) -> None:
        """Go on with the bars at these places, in this order."""
        self.codes, self.times = self.codes[order], self.times[order]
        self.features, self.derived = self.features[order], self.derived[order]
        self.origin = order if self.origin is None else self.origin[order]

    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Go on with the bars of `mask` (N,)."""
        if not mask.all():
            self.take(np.flatnonzero(mask))

    def first(self, mask: NDArray[np.bool_]) -> int:
        """Of the bars of `mask` (N,), at least one, the place of that the files have first."""
        places = np.flatnonzero(mask)
        return int(places[0] if self.origin is None else places[np.argmin(self.origin[places])])

    def place(self, bar: int) -> tuple[Source, int]:
        """The source of a bar, and the position there."""
        origin = bar if self.origin is None else int(self.origin[bar])
        source = int(np.searchsorted(self.starts, origin, side="right")) - 1
        return self.sources[source], origin - int(self.starts[source])

    def row(self, bar: int) -> str:
        """The row of a bar in words, with its symbol where there are several."""
        source, position = self.place(bar)
        of = f" of {self.symbols[self.codes[bar]]!r}" if len(self.symbols) > 1 else ""
        return source.row(position) + of

    def when(self, bar: int) -> str:
        """The time of a bar, as its clock showed it."""
        return str(index_of(self.times[bar : bar + 1], self.zone)[0])

    def inside(self) -> NDArray[np.bool_]:
        """(N - 1,), which bars are followed by one of the same symbol."""
        return np.asarray(self.codes[1:] == self.codes[:-1])

    def offsets(self) -> tuple[list[str], NDArray[np.int64]]:
        """The symbols that have bars, and where the bars of each begin, with N at the end."""
        counts = np.bincount(self.codes, minlength=len(self.symbols))
        symbols = [symbol for symbol, count in zip(self.symbols, counts, strict=True) if count]
        return symbols, np.concatenate([[0], np.cumsum(counts[counts > 0])]).astype(np.int64)


def gather(pieces: Sequence[Piece]) -> Bars:
    """The bars of all pieces (at least one), whose columns are emptied on the way.

    Symbols come in the order in which they appear; a symbol's bars stay in that of the files.
    """
    starts = np.concatenate([[0], np.cumsum([len(piece.times) for piece in pieces])])
    places: dict[str, int] = {}
    codes = np.empty(starts[-1], dtype=np.int32)
    features = np.empty((starts[-1], len(FEATURES)))
    derived = np.zeros(starts[-1], dtype=bool)
    for piece, start, stop in zip(pieces, starts[:-1], starts[1:], strict=True):
        rows = slice(start, stop)
        codes[rows] = _global_codes(piece, places)
        derived[rows] = "amount" not in piece.columns
        for column, name in enumerate(FEATURES):
            features[rows, column] = piece.columns.pop(name, 0.0)
    bars = Bars(
        symbols=list(places),
        codes=codes,
        times=np.concatenate([piece.times for piece in pieces]),
        features=features,
        zone=pieces[0].zone,
        sources=[piece.source for piece in pieces],
        starts=starts.astype(np.int64),
        derived=derived,
    )
    if (codes[1:] < codes[:-1]).any():
        bars.take(np.argsort(codes, kind="stable"))
    return bars


def _global_codes(piece: Piece, places: dict[str, int]) -> NDArray[np.int32] | int:
    """Each bar's place among the symbols of all pieces; new ones are added to `places`."""
    if piece.codes is None:
        return places.setdefault(piece.symbols[0], len(places))
    used = np.bincount(piece.codes, minlength=len(piece.symbols))
    known = [
        places.setdefault(symbol, len(places)) if count else 0
        for symbol, count in zip(piece.symbols, used, strict=True)
    ]
    return np.array(known, dtype=np.int32)[piece.codes]


def mean_price(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of the four prices of bars (N, >=4), (N,)."""
    return np.asarray(features[:, : len(PRICES)].mean(axis=1))

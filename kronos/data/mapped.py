"""A market in one file that is mapped into memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kronos.data.arrays import Pages, open_arrays, write_arrays
from kronos.data.market import Market
from kronos.errors import DataError

SUFFIX: Final = ".bars"
_ARRAYS: Final = ("offsets", "times", "features", "stamps")
_KIND: Final = "bars"


@dataclass(frozen=True, slots=True, eq=False)
class MappedMarket(Market):
    """A market whose arrays lie in a file; a copy sent to another process maps it anew."""

    path: Path
    about: dict[str, Any]
    """What was written with it."""
    pages: Pages

    def release(self) -> None:
        """Let go of the file's pages where they have become many."""
        self.pages.bound()

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_again, (self.path,)


def write_market(path: Path, market: Market, about: Mapping[str, Any] | None = None) -> None:
    """Write a market to one file, atomically; `about` is what else to keep, as JSON can.

    Raises:
        OSError: the file cannot be written.
    """
    arrays = {name: getattr(market, name) for name in _ARRAYS}
    held = {
        "kind": _KIND,
        "symbols": market.symbols,
        "zone": market.zone,
        "about": dict(about or {}),
    }
    write_arrays(path, arrays, held)


def open_market(path: Path, *, verify: bool = True) -> MappedMarket:
    """Map a file that `write_market` wrote.

    Raises:
        DataError: no such file, a file of another kind, or (with `verify`) a damaged one.
    """
    held = open_arrays(path, verify=verify)
    if held.about.get("kind") != _KIND:
        raise DataError(f"{path} holds {held.about.get('kind')!r:.40}, not bars")
    return MappedMarket(
        symbols=tuple(held.about["symbols"]),
        zone=held.about["zone"],
        path=path,
        about=held.about["about"],
        pages=held.pages,
        **{name: held.arrays[name] for name in _ARRAYS},
    )


def _open_again(path: Path) -> MappedMarket:
    return open_market(path, verify=False)

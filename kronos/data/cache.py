"""Bars read once, and mapped from a file the next time.

A cache file is named by the digest of what it was made from: the content of the files, how they
were to be read, and the release of the reader. So it is never stale; what changes, changes its
name. Old ones may be removed at any time.
"""

import hashlib
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

from kronos import __version__
from kronos.data.arrays import is_array_file
from kronos.data.mapped import SUFFIX, open_market, write_market
from kronos.data.market import Market
from kronos.data.options import ReadOptions
from kronos.data.reading.files import read_market, source_files
from kronos.errors import DataError

_READER: Final = 1
"""Raised when the same files are to be read in another way than by the release before."""

_REPORT: Final = "report"
_HASHED_AT_ONCE: Final = 1 << 23


class Loaded(NamedTuple):
    """Bars, and where they came from."""

    market: Market
    report: dict[str, Any]
    """What was found when the files were read, see `BarsReport.plain`."""
    how: str
    """"read", "cached" (opened, not read), "written" (read and put into the cache) or "mended"
    (the same, in place of a file that was damaged)."""


def load_market(
    source: Path | str, options: ReadOptions | None = None, cache: Path | str | None = None
) -> Loaded:
    """The bars of files, from the folder `cache` if they were read before.

    `source` is what `read_market` takes, or a file that `write_market` wrote. The first time the
    bars are read and put into the cache; then they are mapped from there. A cache file that is
    damaged or not ours is replaced.

    Raises:
        DataError: bars that cannot be used.
        OSError: the cache cannot be written.
    """
    options = options or ReadOptions()
    if is_array_file(Path(source)):
        if options != ReadOptions():
            raise DataError(f"{source} holds bars that were read already; options come too late")
        market = open_market(Path(source))
        return Loaded(market, market.about.get(_REPORT, {}), "cached")
    if cache is None:
        market_read, report = read_market(source, options)
        return Loaded(market_read, report.plain(), "read")
    return _through(cache_path(source, options, Path(cache)), source, options)


def cache_path(source: Path | str, options: ReadOptions, cache: Path) -> Path:
    """The file in the folder `cache` for these bars, read in this way."""
    content = {
        "reader": [__version__, _READER],
        "options": options.plain(),
        # the names count: without a symbol column they are the symbols
        "files": [[path.name, _digest(path)] for path in source_files(source)],
    }
    key = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    name = re.sub(r"[^\w.-]+", "_", Path(source).name)[:40].strip("_.") or "bars"
    return cache / f"{name}-{key[:20]}{SUFFIX}"


def _through(path: Path, source: Path | str, options: ReadOptions) -> Loaded:
    how = "written"
    if path.exists():
        try:
            kept = open_market(path)
        except DataError:
            how = "mended"
        else:
            return Loaded(kept, kept.about.get(_REPORT, {}), "cached")
    market, report = read_market(source, options)
    if cache_path(source, options, path.parent) != path:
        raise DataError(f"{source} changed while it was read; try again when it is complete")
    write_market(path, market, {_REPORT: report.plain()})
    # mapped like the next time, so that the first run takes no more memory than others
    return Loaded(open_market(path, verify=False), report.plain(), how)


def _digest(path: Path) -> str:
    """SHA-256 over the size of a file and the SHA-256 of each of its parts, taken side by side."""

    def part(start: int) -> bytes:
        with path.open("rb") as file:
            file.seek(start)
            return hashlib.sha256(file.read(_HASHED_AT_ONCE)).digest()

    try:
        size = path.stat().st_size
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
            parts = list(threads.map(part, range(0, size, _HASHED_AT_ONCE)))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    return hashlib.sha256(size.to_bytes(8, "little") + b"".join(parts)).hexdigest()

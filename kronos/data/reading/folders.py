"""Which files a source of bars means, and which symbol a file is named after."""

import errno
import glob
import os
from pathlib import Path

from kronos.data.reading.text import WAY_OUT
from kronos.errors import DataError

SUFFIXES = (
    *(".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz"),
    *(".parquet", ".pq"),
)


def source_files(source: Path | str) -> list[Path]:
    """The files that `source` means, at least one: a file, a folder's, or those of a pattern.

    Files come sorted by name. Of a folder hidden files, folders and files with other suffixes
    than SUFFIXES are left out; a pattern (*, ?, [...], ** for folders) and the name of a file
    mean what they say.

    Raises DataError where there is no such file, or none in the folder.
    """
    path = Path(source)
    if path.is_dir():
        found = [each for each in path.iterdir() if _is_bars(each)]
        where, looked = f"the folder {path}", ", ".join(SUFFIXES)
    elif path.exists() or not glob.has_magic(str(source)):
        if not path.exists():
            reason = os.strerror(errno.ENOENT)
            raise DataError(f"cannot read {path}: {reason}; {WAY_OUT}")
        return [path]
    else:
        found = [Path(each) for each in glob.glob(str(source), recursive=True)]
        found = [each for each in found if each.is_file()]
        where, looked = "this folder", f"{source}"
    if not found:
        raise DataError(f"no files of bars in {where}; looked for {looked}")
    return sorted(found, key=lambda each: (each.name, str(each)))


def symbol_of(path: Path) -> str:
    """The name of a file without the suffixes of bars: "BRK.B" of BRK.B.csv.gz."""
    name = path.name.lower()
    suffix = max((end for end in SUFFIXES if name.endswith(end)), key=len, default="")
    return path.name[: len(path.name) - len(suffix)] or path.name


def _is_bars(path: Path) -> bool:
    is_hidden = path.name.startswith(".")
    return not is_hidden and path.name.lower().endswith(SUFFIXES) and path.is_file()

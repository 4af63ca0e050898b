"""Named arrays in one file that is mapped into memory, so that gigabytes open at once.

The file: a magic line, the length and the CRC-32 of a JSON header, the header, the arrays,
little-endian, each from a multiple of 64 bytes on, and the CRC-32 of all of them. So a file that
was cut short, changed or made by others is told from a sound one.
"""

import json
import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kronos.errors import DataError
from kronos.files import atomic_path

_MAGIC: Final = b"kronos arrays 1\n"
_LENGTHS: Final = struct.Struct("<QI")  # bytes of the header, its CRC-32
_CHECKSUM: Final = struct.Struct("<I")
_ALIGNMENT: Final = 64
_BLOCK: Final = 1 << 22

_MOST_RESIDENT: Final = 64 << 20
_STATM: Final = "/proc/self/statm"  # its third number: resident pages that belong to files


class Pages:
    """A mapped file, and a bound on how much of it counts as this process's memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self.mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._advice: int | None = getattr(mmap, "MADV_DONTNEED", None)
        self._before = _resident_files()

    def bound(self) -> None:
        """Let go of the mapping where the process has 64 MiB more of files in memory than before.

        To be called after each batch. How much a batch brings in cannot be told beforehand: Linux
        maps 64 KiB around a place that is touched, or 2 MiB where its cache has large pages. They
        stay in that cache; they only cease to be this process's. Where the system does not tell
        its numbers (all but Linux), nothing is done.
        """
        resident = _resident_files()
        self._before = min(self._before, resident)
        if resident - self._before > _MOST_RESIDENT and self._advice is not None:
            self.mapping.madvise(self._advice)
            self._before = _resident_files()


def _resident_files() -> int:
    """Bytes of files that count as this process's memory; 0 where that is not told."""
    try:
        with open(_STATM, "rb", buffering=0) as file:  # anew each time: a fork has its own
            return int(file.read().split()[2]) * mmap.PAGESIZE
    except (OSError, ValueError, IndexError):
        return 0


class Blocks(NamedTuple):
    """An array that is made piece by piece while it is written."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pieces: Iterable[NDArray[Any]]
    """Pieces along the first axis, in order."""


@dataclass(frozen=True, slots=True)
class MappedArrays:
    """What a file holds."""

    arrays: dict[str, NDArray[Any]]
    """Read-only views of the file."""
    about: dict[str, Any]
    pages: Pages


def write_arrays(
    path: Path, arrays: Mapping[str, NDArray[Any] | Blocks], about: Mapping[str, Any]
) -> None:
    """Write arrays to one file, atomically; `about` holds what JSON can.

    Raises:
        OSError: the file cannot be written.
    """
    layout = {name: [_little(array.dtype).str, array.shape] for name, array in arrays.items()}
    header = json.dumps({"about": dict(about), "arrays": layout}).encode()
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.write(_MAGIC + _LENGTHS.pack(len(header), zlib.crc32(header)) + header)
        file.write(bytes(-file.tell() % _ALIGNMENT))
        checksum = 0
        for array in arrays.values():
            for piece in _bytes_of(array):
                checksum = zlib.crc32(piece, checksum)
                file.write(piece)
        file.write(_CHECKSUM.pack(checksum))


def open_arrays(path: Path, *, verify: bool = True) -> MappedArrays:
    """Map a file that `write_arrays` wrote.

    `verify` reads it once from end to end, which takes 0.3 s a gigabyte.

    Raises:
        DataError: no such file, a file of another kind, or a damaged one.
    """
    try:
        with path.open("rb") as file:
            header, start = _header(file, path)
            places, end = _places(header["arrays"], start)
            size = os.fstat(file.fileno()).st_size
            if size != end + _CHECKSUM.size:
                raise _damaged(path, f"it has {size} bytes, not {end + _CHECKSUM.size}")
            if verify:
                _verify(file, start, end, path)
            pages = Pages(file)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    arrays = {
        name: np.frombuffer(pages.mapping, dtype, int(np.prod(shape)), at).reshape(shape)
        for name, (at, dtype, shape) in places.items()
    }
    return MappedArrays(arrays, header["about"], pages)


def is_array_file(path: Path) -> bool:
    """Whether a file begins as one of `write_arrays` does."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def _little(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("<")


def _bytes_of(array: NDArray[Any] | Blocks) -> Iterator[memoryview | bytes]:
    """The bytes of an array, filled up to the alignment."""
    written = 0
    for piece in array.pieces if isinstance(array, Blocks) else [array]:
        plain = np.ascontiguousarray(piece, dtype=_little(array.dtype))
        view = plain.reshape(-1).view(np.uint8).data
        for first in range(0, len(view), _BLOCK):
            yield view[first : first + _BLOCK]
        written += len(view)
    assert written == int(np.prod(array.shape)) * array.dtype.itemsize, "pieces of another shape"
    yield bytes(-written % _ALIGNMENT)


def _header(file: IO[bytes], path: Path) -> tuple[dict[str, Any], int]:
    """The header, and the byte at which the arrays start."""
    if file.read(len(_MAGIC)) != _MAGIC:
        raise DataError(f"{path} is not a file of ours; remove it, or give another name")
    lengths = file.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        raise _damaged(path, "it ends in its header")
    length, checksum = _LENGTHS.unpack(lengths)
    text = file.read(min(length, os.fstat(file.fileno()).st_size))
    if zlib.crc32(text) != checksum:
        raise _damaged(path, "its header does not match its checksum")
    start = file.tell() + -file.tell() % _ALIGNMENT
    return json.loads(text), start


def _places(
    layout: dict[str, Any], start: int
) -> tuple[dict[str, tuple[int, np.dtype[Any], tuple[int, ...]]], int]:
    """Where each array lies, its type and shape; and where the last one ends."""
    places = {}
    for name, (text, shape) in layout.items():
        dtype = np.dtype(text)
        places[name] = (start, dtype, tuple(shape))
        start += int(np.prod(shape)) * dtype.itemsize
        start += -start % _ALIGNMENT
    return places, start


def _verify(file: IO[bytes], start: int, end: int, path: Path) -> None:
    file.seek(start)
    found, left = 0, end - start
    while left and (block := file.read(min(_BLOCK, left))):
        found = zlib.crc32(block, found)
        left -= len(block)
    if found != _CHECKSUM.unpack(file.read(_CHECKSUM.size))[0]:
        raise _damaged(path, "its content does not match its checksum")


def _damaged(path: Path, reason: str) -> DataError:
    return DataError(f"{path} is damaged: {reason}; remove it, and it will be made anew")

"""Writing files so that a reader never meets half of one."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it takes `path`'s place, else it is removed.

    The temporary file lies in the same folder, so that the final rename is atomic
    (POSIX rename(2), `os.replace`), and is flushed to the disk before the rename. A link stays
    a link: what it points to is replaced.

    Raises:
        OSError: the file cannot be written; `filename` is the target's.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # a rename would put a file in its place
        reason = errno.EISDIR if target.is_dir() else errno.EINVAL
        raise OSError(reason, "not a regular file", str(path))
    temporary = target.with_name(f".{target.name[:32]}.{secrets.token_hex(8)}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode  # what the umask leaves
        yield temporary
        temporary.chmod(mode)  # a writer may have put a private file in its place
        _flush_to_disk(temporary)
        os.replace(temporary, target)
    except OSError as error:
        if error.errno and error.filename in (None, str(temporary)):  # a name no caller chose
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):  # gone by now, or it never came to be
            temporary.unlink()


def write_text(path: Path | str, text: str) -> None:
    """Write `text` as UTF-8 with `\\n` line ends, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def _flush_to_disk(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())

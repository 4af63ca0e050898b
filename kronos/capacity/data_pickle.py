"""Pickles of data only: nothing in them is executed, whatever they ask for.

Every opcode is looked at before the unpickler sees the file, and only those of dicts, lists,
texts and numbers pass. To refuse globals alone would not do: an extension code that this process
has met before comes from a cache (code runs), a memo index of nine digits is memory filled
(gigabytes), and the hash of a deeply nested tuple overflows the C stack.
"""

import io
import pickle
import pickletools
from typing import Any, Final, NoReturn

from kronos.errors import SnapshotError

MAKE_ONE: Final = (
    "torch.cuda.memory._record_memory_history(max_entries=1000000) before the run and "
    "torch.cuda.memory._dump_snapshot('snapshot.pickle') after it make one"
)
_OLD_SAVE: Final = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9"
_FOREIGN: Final = {
    b"\x1f\x8b": "is compressed by gzip; unpack it first",
    b"PK\x03\x04": "is a zip archive, such as torch.save writes",
    _OLD_SAVE: "was written by an old torch.save",
    b"{": "begins like JSON",
    b"[": "begins like JSON",
    b"<": "begins like HTML or XML",
    b"": "is no pickle of protocol 2 to 5",
}
_LONG1, _TEXT, _LONG_TEXT, _LONG_PUT, _PAIR, _STOP = b"\x8a\x8cXr\x86."
_NUMBERS: Final = b"KMJ\x8a"
_OF_SIZE: Final = {1: b"(])}aesuN\x88\x89\x94", 2: b"Khq", 3: b"M", 5: b"Jj", 9: b"G\x95"}
_SIZES: Final = bytes(
    next((size for size, codes in _OF_SIZE.items() if code in codes), 0) for code in range(256)
)
"""Bytes that an opcode takes, its argument included; 0 where that varies or it may not pass."""


class DataOnly(pickle.Unpickler):
    """The second wall behind `_look_through`, which lets no opcode pass that would come here."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name} is not data")

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError("a persistent id is not data")


def load_data(raw: bytes) -> Any:
    if not raw:
        raise SnapshotError(f"the file is empty; {MAKE_ONE}")
    if raw[0] != 0x80 or raw[1:2] not in (b"\2", b"\3", b"\4", b"\5") or raw.startswith(_OLD_SAVE):
        begin = raw[:64].lstrip()
        what = next(text for magic, text in _FOREIGN.items() if begin.startswith(magic))
        raise SnapshotError(
            f"a memory snapshot is a pickle, and this file {what} (it begins with "
            f"{begin[:12]!r}); {MAKE_ONE}"
        )
    _look_through(raw)
    try:
        return DataOnly(io.BytesIO(raw)).load()
    except MemoryError:
        raise
    except Exception as error:  # whatever a damaged pickle makes the unpickler raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise SnapshotError(f"the pickle is damaged ({reason:.100}); dump it again") from None


def _look_through(raw: bytes) -> None:
    """Refuse a pickle that is anything but data, is cut off, or asks for absurd memory.

    Raises:
        SnapshotError: such a pickle.
    """
    before = last = code = 0
    at, sizes = 2, _SIZES
    try:
        while True:
            before = last
            last = code
            code = raw[at]
            if size := sizes[code]:
                at += size
            elif code == _LONG1 or code == _TEXT:
                at += 2 + raw[at + 1]
            elif code == _LONG_TEXT:
                at += 5 + int.from_bytes(raw[at + 1 : at + 5], "little")
            elif code == _LONG_PUT and int.from_bytes(raw[at + 1 : at + 5], "little") < len(raw):
                at += 5
            elif code == _PAIR and last in _NUMBERS and before in _NUMBERS:
                at += 1
            elif code == _STOP:
                break
            else:
                names = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
                raise SnapshotError(
                    "a memory snapshot is made of dicts, lists, texts and numbers only; this "
                    f"pickle asks for {names.get(code, hex(code))} at byte {at}, which could run "
                    "code or fill memory, so nothing of it was loaded; dump it again"
                )
    except IndexError:
        raise SnapshotError(f"the pickle is cut off at byte {len(raw)}; copy it again") from None
    if at + 1 != len(raw):
        raise SnapshotError(f"{len(raw) - at - 1} bytes follow the pickle's end; copy it again")

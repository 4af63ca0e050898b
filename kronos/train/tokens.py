"""Tokens of every window, made once by a tokenizer that is not being trained.

A window's tokens depend on its own lookback's mean, so each window has its own: n windows of T
bars take 4 n T bytes (8 with halves of more than 16 bits), 580 bytes for a window of 120 + 24.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from kronos.config import RunConfig
from kronos.data import Windows, WindowStarts
from kronos.data.arrays import Blocks, Pages, open_arrays, write_arrays
from kronos.errors import DataError
from kronos.model import KronosTokenizer
from kronos.train.data import RunData
from kronos.train.feed import BatchSource
from kronos.train.step import TokenBatch, tokenize

SUFFIX: Final = ".tokens"
_AT_ONCE: Final = 256


class TokenTable:
    """Ids of n windows: (n, T, 2), the coarse and the fine one of each bar."""

    def __init__(self, ids: NDArray[Any], path: Path | None = None, pages: Pages | None = None):
        self._ids = ids
        self._path = path
        self._pages = pages

    def rows(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """(B, T, 2)"""
        rows = self._ids[numbers].astype(np.int64)
        if self._pages is not None:
            self._pages.bound()
        return rows

    def __reduce__(self) -> tuple[Any, ...]:
        return (TokenTable, (self._ids,)) if self._path is None else (_open, (self._path, False))


class TokenSource(BatchSource[TokenBatch]):
    """Batches of tokens."""

    def __init__(self, table: TokenTable, windows: Windows, starts: WindowStarts) -> None:
        super().__init__(starts)
        self._table = table
        self._windows = windows

    def gather(self, starts: NDArray[np.int64]) -> TokenBatch:
        ids = self._table.rows(self._windows.starts.numbers(starts))
        s1_ids, s2_ids = (torch.from_numpy(np.ascontiguousarray(ids[..., half])) for half in (0, 1))
        return TokenBatch(s1_ids, s2_ids, torch.from_numpy(self._windows.stamps(starts)))


def token_table(tokenizer: KronosTokenizer, windows: Windows, folder: Path) -> TokenTable:
    """The tokens of all windows, from the folder if this tokenizer made them before.

    A file that is damaged or not ours is replaced.

    Raises:
        OSError: the folder cannot be written.
    """
    path = folder / f"{_key(tokenizer, windows)}{SUFFIX}"
    if path.exists():
        try:
            return _open(path)
        except DataError:
            pass
    dtype = np.uint16 if max(tokenizer.s1_bits, tokenizer.s2_bits) <= 16 else np.uint32
    shape = (len(windows), windows.sample_length, 2)
    ids = Blocks(shape, np.dtype(dtype), _tokens(tokenizer, windows))
    write_arrays(path, {"ids": ids}, {"kind": "tokens"})
    return _open(path, verify=False)


def run_tokens(tokenizer: KronosTokenizer, data: RunData, config: RunConfig) -> TokenTable | None:
    """The tokens of a run that wants them made once; None for one that does not."""
    if not config.data.precompute_tokens:
        return None
    assert config.data.cache is not None, "the configuration asks for both"
    tokenizer.eval()
    return token_table(tokenizer, data.windows, Path(config.data.cache))


def empty_table(windows: Windows) -> TokenTable:
    """Tokens that are all 0, for shapes alone."""
    return TokenTable(np.zeros((len(windows), windows.sample_length, 2), np.uint16))


def _tokens(tokenizer: KronosTokenizer, windows: Windows) -> Iterator[NDArray[Any]]:
    device = next(tokenizer.parameters()).device
    for first in range(0, len(windows), _AT_ONCE):
        numbers = np.arange(first, min(first + _AT_ONCE, len(windows)))
        batch = windows.batch(windows.starts.at(numbers))
        bars = torch.from_numpy(batch.features).to(device)
        tokens = tokenize(tokenizer, bars, torch.from_numpy(batch.stamps))
        yield torch.stack([tokens.s1_ids, tokens.s2_ids], dim=-1).cpu().numpy()


def _key(tokenizer: KronosTokenizer, windows: Windows) -> str:
    """Digest of what the tokens depend on: the weights, the bars, and how windows are made."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tokenizer.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(plain.view(torch.uint8).numpy().tobytes())
    digest.update(windows.key().encode())
    return digest.hexdigest()[:32]


def _open(path: Path, verify: bool = True) -> TokenTable:
    held = open_arrays(path, verify=verify)
    if held.about.get("kind") != "tokens":
        raise DataError(f"{path} holds no tokens")
    return TokenTable(held.arrays["ids"], path, held.pages)

"""Weights read as shapes alone, while a step is traced."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

import safetensors
import safetensors.torch
import torch

_DTYPES: Final = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}


@contextmanager
def weights_without_values() -> Iterator[None]:
    """`safetensors.torch.load_file` returns fake tensors, which it cannot do by itself."""
    with mock.patch.object(safetensors.torch, "safe_open", _Shapes):
        yield


class _Shapes:
    """Stands in for `safetensors.safe_open`."""

    def __init__(self, path: str | Path, framework: str, device: Any = "cpu", **_: Any) -> None:
        self._file: Any = safetensors.safe_open(path, framework="np")
        self._device = device

    def __enter__(self) -> "_Shapes":
        self._file.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.__exit__(*error)

    def keys(self) -> list[str]:
        return list(self._file.keys())

    def metadata(self) -> dict[str, str] | None:
        found: dict[str, str] | None = self._file.metadata()
        return found

    def get_tensor(self, name: str) -> torch.Tensor:
        tensor = self._file.get_slice(name)
        dtype = _DTYPES[tensor.get_dtype()]
        return torch.empty(tensor.get_shape(), dtype=dtype, device=self._device)

    def get_tensors(self) -> dict[str, torch.Tensor]:
        return {name: self.get_tensor(name) for name in self.keys()}

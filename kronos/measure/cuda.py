"""The card's side of measuring: every question the project asks of torch.cuda, on one screen.

A fake with the same few functions can stand in for `torch.cuda` and NVML, which is how this
file is checked where there is no card.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kronos.errors import MeasurementError
from kronos.hardware import format_size, process_footprint


class CudaCard:
    """One CUDA device: its memory, its peaks and its queue."""

    def __init__(self, index: int = 0, *, cuda: Any = torch.cuda, nvml: Any = None) -> None:
        self.index = index
        self._cuda = cuda
        self._nvml = nvml
        properties = cuda.get_device_properties(index)
        self.name: str = properties.name
        self.total_memory: int = properties.total_memory
        self._uuid = f"GPU-{properties.uuid}"

    def synchronize(self) -> None:
        """Wait until the card has done all that was queued."""
        self._cuda.synchronize(self.index)

    def start_peaks(self) -> None:
        """Give cached memory back and start the peaks afresh from what is alive now."""
        gc.collect()
        self._cuda.empty_cache()
        self._cuda.reset_peak_memory_stats(self.index)

    def peak_allocated(self) -> int:
        """Largest bytes of live blocks since `start_peaks`."""
        return int(self._cuda.max_memory_allocated(self.index))

    def peak_reserved(self) -> int:
        """Largest bytes of the allocator's segments since `start_peaks`."""
        return int(self._cuda.max_memory_reserved(self.index))

    def flushes(self) -> int:
        """How often, in this process, the allocator gave its cache back to go on."""
        return int(self._cuda.memory_stats(self.index).get("num_alloc_retries", 0))

    def context(self) -> tuple[int, str | None]:
        """Bytes this process holds outside the allocator, and a remark where that is not sure.

        Where NVML cannot tell the process apart (in a container, under WSL) it is all that is
        taken of the card outside this allocator, neighbours included.
        """
        reserved = int(self._cuda.memory_reserved(self.index))
        footprint, reason = process_footprint(self._uuid, os.getpid(), self._nvml)
        if footprint is not None:
            return max(footprint - reserved, 0), None
        free, total = self._cuda.mem_get_info(self.index)
        remark = f"the context counts all that others hold on the card, since {reason}"
        return max(int(total) - int(free) - reserved, 0), remark

    @contextmanager
    def capped(self, budget: int) -> Iterator[None]:
        """Let the allocator hold no more than `budget` less the context while inside.

        An overrun is then torch.OutOfMemoryError. The fraction bounds the allocator of this
        process only, which is why the context is taken off first.

        Raises:
            MeasurementError: the context alone does not fit the budget.
        """
        self._cuda.synchronize(self.index)
        context, _ = self.context()
        room = budget - context
        if room <= 0:
            raise MeasurementError(
                f"the CUDA context takes {format_size(context)}, more than the budget of "
                f"{format_size(budget)}; raise the budget"
            )
        caps = _caps.setdefault(self.index, [1.0])
        caps.append(min(caps[-1], room / self.total_memory))  # a cap within a cap only tightens
        self._cuda.set_per_process_memory_fraction(caps[-1], self.index)
        try:
            yield
        finally:
            caps.pop()
            self._cuda.set_per_process_memory_fraction(caps[-1], self.index)


_caps: dict[int, list[float]] = {}
"""The fractions in force on each card, the innermost last."""


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one it was raised from, says that memory ran out.

    By type where PyTorch has one, by text for what cuBLAS, cuDNN, the driver and the CPU's
    allocator say.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        text = str(error).lower()
        if isinstance(error, torch.OutOfMemoryError | MemoryError):
            return True
        if isinstance(error, RuntimeError) and any(words in text for words in _OUT_OF_MEMORY):
            return True
        hidden = error.__suppress_context__  # raised "from None"
        error = error.__cause__ or (None if hidden else error.__context__)
    return False


_OUT_OF_MEMORY = (
    "out of memory",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "can't allocate memory",
)


def card_of(device: str) -> CudaCard | None:
    """The card behind a device text ("cuda", "cuda:1"), or None for "cpu".

    Raises:
        MeasurementError: another kind of device, or a card that is not there.
    """
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return None
    if kind != "cuda":
        raise MeasurementError(f"devices are cpu, cuda or cuda:N; got {device!r}")
    count = torch.cuda.device_count()
    if int(index or 0) >= count:
        raise MeasurementError(f"no {device}: PyTorch sees {count} CUDA device(s); use cpu")
    return CudaCard(int(index or 0))


def default_device() -> str:
    """ "cuda" where PyTorch sees a card, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def device_profile(device: str | None = None) -> str:
    """The kind of a device (the default one without) and which it is, as golden rows are keyed.

    "cuda-nvidia-h200", "cpu-avx512". On a CPU the vector instructions decide the speed, and the
    last digits.
    """
    card = card_of(device or default_device())
    if card is not None:
        return "cuda-" + "-".join(card.name.lower().split())
    return f"cpu-{torch.backends.cpu.get_cpu_capability().lower().replace(' ', '-')}"

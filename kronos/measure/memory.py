"""THE memory meter: peaks of what runs inside a `with`, on the CPU or on a card."""

import gc
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from kronos.errors import MeasurementError
from kronos.measure.cuda import CudaCard, card_of
from kronos.measure.events import StorageEvents
from kronos.measure.storage import StorageMeter


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryReading:
    """Measured peaks, in bytes. What could not be read is None, with the reason in `missing`."""

    device: str
    """"cpu" or the card's name."""
    peak_allocated: int
    """CPU: live tensor storage. Card: live blocks of the allocator."""
    rounded_allocated: int
    """The same with each allocation rounded to the CUDA allocator's 512 bytes."""
    peak_reserved: int | None
    """Card: segments the allocator held."""
    context: int | None
    """Card: what the process held beside the allocator."""
    categories: Mapping[str, int] = field(default_factory=dict)
    """CPU: what filled the peak; sums to `rounded_allocated`."""
    phase: str | None = None
    operation: str | None = None
    events: StorageEvents = field(default_factory=StorageEvents, repr=False, compare=False)
    """CPU: all that happened to the live storage."""
    flushes: int | None = None
    """Card: how often the allocator had to give its cache back before it could go on."""
    missing: Mapping[str, str] = field(default_factory=dict)
    remark: str | None = None
    """What makes a figure less sure than it looks."""

    @property
    def footprint(self) -> int | None:
        """Bytes of the whole process on the card: context plus reserved."""
        if self.context is None or self.peak_reserved is None:
            return None
        return self.context + self.peak_reserved


class MemoryMeter:
    """Context manager that meters memory; afterwards `reading` holds the peaks.

    Example:
        >>> with MemoryMeter("cpu") as meter:
        ...     step()
        >>> meter.reading.peak_allocated
    """

    def __init__(self, device: str = "cpu", *, card: CudaCard | None = None) -> None:
        self._card = card or card_of(device)
        self._storage = StorageMeter()
        self._allocated = self._reserved = 0  # peaks from before an inner meter began
        self._flushes = 0  # at the start
        self._reading: MemoryReading | None = None

    @property
    def reading(self) -> MemoryReading:
        """The peaks.

        Raises:
            MeasurementError: the `with` has not been left yet.
        """
        if self._reading is None:
            raise MeasurementError("the meter has no reading before its `with` block has ended")
        return self._reading

    def __enter__(self) -> Self:
        if self._card:
            for outer in _metering:
                outer._note_peaks()  # starting afresh would take its peaks so far away
            _metering.append(self)
            self._card.start_peaks()
            self._flushes = self._card.flushes()
        else:
            gc.collect()  # garbage of before must not be freed, and counted, within
            self._storage.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._card:
            _metering.remove(self)
            self._card.synchronize()
            self._note_peaks()
            flushes = self._card.flushes() - self._flushes
            self._reading = _read_card(self._card, self._allocated, self._reserved, flushes)
        else:
            self._storage.__exit__(kind, error, trace)
            self._reading = _read_cpu(self._storage)

    def _note_peaks(self) -> None:
        assert self._card is not None
        self._allocated = max(self._allocated, self._card.peak_allocated())
        self._reserved = max(self._reserved, self._card.peak_reserved())


_metering: list[MemoryMeter] = []
"""The meters of a card that are running, the outermost first."""


def _read_cpu(meter: StorageMeter) -> MemoryReading:
    peak = meter.peak()
    reason = "no CUDA device on this machine"
    return MemoryReading(
        device="cpu",
        peak_allocated=peak.bytes,
        rounded_allocated=peak.rounded_bytes,
        peak_reserved=None,
        context=None,
        categories=peak.categories,
        phase=peak.phase,
        operation=peak.operation,
        events=meter.events,
        missing={"peak_reserved": reason, "context": reason, "footprint": reason},
    )


def _read_card(card: CudaCard, allocated: int, reserved: int, flushes: int) -> MemoryReading:
    context, remark = card.context()
    return MemoryReading(
        device=card.name,
        peak_allocated=allocated,
        rounded_allocated=allocated,
        peak_reserved=reserved,
        context=context,
        flushes=flushes,
        remark=remark,
    )

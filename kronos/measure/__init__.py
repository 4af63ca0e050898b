"""THE stopwatch and THE memory meter: everything that measures uses them.

Works with any callable; knows nothing of Kronos.
"""

from kronos.measure.cuda import (
    CudaCard,
    card_of,
    default_device,
    device_profile,
    is_out_of_memory,
)
from kronos.measure.events import StorageEvents, StoragePeak
from kronos.measure.memory import MemoryMeter, MemoryReading
from kronos.measure.reference import ReferenceWorkload
from kronos.measure.stopwatch import PairedStopwatch, StepTimes, Stopwatch, time_steps
from kronos.measure.storage import StorageMeter

__all__ = [
    "CudaCard",
    "MemoryMeter",
    "MemoryReading",
    "PairedStopwatch",
    "ReferenceWorkload",
    "StepTimes",
    "Stopwatch",
    "StorageEvents",
    "StorageMeter",
    "StoragePeak",
    "card_of",
    "default_device",
    "device_profile",
    "is_out_of_memory",
    "time_steps",
]

"""THE stopwatch and THE memory meter: everything that measures uses them.

Works with any callable; knows nothing of Kronos.
"""

from kronos.measure.cuda import CudaCard, card_of, default_device, device_profile
from kronos.measure.memory import MemoryMeter, MemoryReading
from kronos.measure.reference import REFERENCE_VERSION, ReferenceWorkload
from kronos.measure.stopwatch import PairedStopwatch, StepTimes, Stopwatch, time_steps
from kronos.measure.storage import StorageMeter, StoragePeak

__all__ = [
    "REFERENCE_VERSION",
    "CudaCard",
    "MemoryMeter",
    "MemoryReading",
    "PairedStopwatch",
    "ReferenceWorkload",
    "StepTimes",
    "Stopwatch",
    "StorageMeter",
    "StoragePeak",
    "card_of",
    "default_device",
    "device_profile",
    "time_steps",
]

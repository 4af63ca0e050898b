"""Bars: reading and checking them, and cutting them into samples to learn from."""

from kronos.data.bars import read_bars, repair_bars, validate_bars
from kronos.data.windows import BarArrays, Batch, EpochSampler, TimeSplit, Windows, split_by_time

__all__ = [
    "BarArrays",
    "Batch",
    "EpochSampler",
    "TimeSplit",
    "Windows",
    "read_bars",
    "repair_bars",
    "split_by_time",
    "validate_bars",
]

"""Bars in, batches out: reading and checking bars, and cutting them into samples to learn from."""

from kronos.data.bars import read_bars, repair_bars, validate_bars
from kronos.data.cache import load_market
from kronos.data.market import Market
from kronos.data.options import ReadOptions
from kronos.data.sampler import EpochSampler
from kronos.data.split import TimeSplit, split_by_time
from kronos.data.windows import Batch, Windows, WindowStarts

__all__ = [
    "Batch",
    "EpochSampler",
    "Market",
    "ReadOptions",
    "TimeSplit",
    "WindowStarts",
    "Windows",
    "load_market",
    "read_bars",
    "repair_bars",
    "split_by_time",
    "validate_bars",
]

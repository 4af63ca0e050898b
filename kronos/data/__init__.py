"""Bars in, batches out: reading and checking bars, and cutting them into samples to learn from."""

from kronos.data.bars import read_bars, repair_bars, validate_bars
from kronos.data.cache import load_market
from kronos.data.features import rank_features
from kronos.data.market import Market
from kronos.data.options import ReadOptions
from kronos.data.reading.files import BarsReport, inspect_bars, read_market
from kronos.data.sampler import EpochSampler
from kronos.data.scenarios import apply_scenario
from kronos.data.split import TimeSplit, split_by_time
from kronos.data.synthetic import synthetic_bars, synthetic_market
from kronos.data.windows import Batch, Windows, WindowStarts

__all__ = [
    "BarsReport",
    "Batch",
    "EpochSampler",
    "Market",
    "ReadOptions",
    "TimeSplit",
    "WindowStarts",
    "Windows",
    "apply_scenario",
    "inspect_bars",
    "load_market",
    "rank_features",
    "read_bars",
    "read_market",
    "repair_bars",
    "split_by_time",
    "synthetic_bars",
    "synthetic_market",
    "validate_bars",
]

"""A run's bars: loaded, cut into windows, and divided into those to train and to validate on."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kronos import samples
from kronos.config import DataConfig, RunConfig
from kronos.data import Market, ReadOptions, Windows, WindowStarts, load_market, split_by_time
from kronos.data.columns import FEATURES
from kronos.data.timestamps import STAMPS
from kronos.train.feed import default_workers

IBM: Final = "ibm"


class RunData(NamedTuple):
    """A run's windows, and where those begin that train and validate."""

    windows: Windows
    train: WindowStarts
    validation: WindowStarts
    workers: int = 0
    """Processes that gather batches."""
    report: Mapping[str, Any] = MappingProxyType({})
    """What was found when the bars were read."""


def load_data(config: RunConfig) -> RunData:
    """Read a run's bars, or open them from the cache, and divide their windows.

    Raises:
        DataError: bars that cannot be used.
        ConfigError: too few bars for one window on either side.
    """
    data = config.data
    loaded = load_market(bars_path(data.bars), read_options(data), data.cache)
    windows = windows_of(loaded.market, config)
    split = split_by_time(windows, validation_share=data.validation_share)
    workers = default_workers() if data.workers is None else data.workers
    return RunData(windows, split.train, split.validation, workers, loaded.report)


def windows_of(market: Market, config: RunConfig) -> Windows:
    """The windows of a run over some bars."""
    return Windows(
        market,
        config.training.window,
        config.training.horizon,
        features=config.data.features or FEATURES,
        time_features=STAMPS if config.data.time_features is None else config.data.time_features,
    )


def bars_path(bars: str) -> Path | str:
    """The files that the setting means; "ibm" is the shipped daily bars."""
    return samples.ibm_daily() if bars == IBM else bars


def read_options(data: DataConfig) -> ReadOptions:
    """How a run wants its files read."""
    return ReadOptions.named(
        data.columns or (),
        symbol=data.symbol,
        timezone=data.timezone,
        sort=data.sort,
        dedupe=data.dedupe,
        fill=data.fill,
        repair=data.repair,
    )

"""How a forecast is made, beyond the reference's arguments: the options and their rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import torch

from kronos.errors import ConfigError
from kronos.model.sampling import Sampling, count


class ForecastOptions(TypedDict, total=False):
    """Keyword arguments of `KronosPredictor`'s methods; all are optional."""

    seed: int | Sequence[int] | None
    """The same history with the same seed has the same paths, alone or in any batch. In a batch
    a list gives each series its own. None draws from torch's global generator."""
    quantiles: Sequence[float]
    """Of the paths at each bar, such as (0.1, 0.9); takes two paths or more. Default: none."""
    calendar: Any
    """Which days have bars, where `y_timestamp` is made; see `data.sessions.future_timestamps`."""
    context_stride: int
    """How many bars a full window drops at once, default 1; see `decoding.decode_paths`. Larger
    is faster: the window is read anew only then."""
    reference_draws: bool
    """True: draw as the reference does after `torch.manual_seed(seed)`, all paths of the batch
    in turn from one stream. It leaves `top_p` out where `top_k` is given; pass None for that."""
    clip_volume: bool
    """True: raise volume and amount to 0 at least. The raw forecast may be negative."""
    repair_ohlc: bool
    """True: widen high and low around open and close. The raw forecast's may lie between."""


@dataclass(frozen=True, slots=True)
class Options:
    """`ForecastOptions`, checked, with the sampling and the number of paths of each series."""

    sampling: Sampling
    paths: int
    seed: int | Sequence[int] | None = None
    quantiles: Sequence[float] = ()
    calendar: Any = None
    context_stride: int = 1
    reference_draws: bool = False
    clip_volume: bool = False
    repair_ohlc: bool = False

    def __post_init__(self) -> None:
        count("sample_count", self.paths, minimum=1)
        count("context_stride", self.context_stride, minimum=1)
        seeds = self.seed if isinstance(self.seed, Sequence) else [self.seed]
        for seed in seeds:
            whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
            if not whole and self.seed is not None:
                raise ConfigError(f"seed must be a whole number or None, got {seed!r:.60}")
        self._check_quantiles()
        if self.reference_draws and self.sampling.T == 0:
            raise ConfigError("reference_draws takes T above 0, got 0; top_k=1 is greedy there")
        if self.reference_draws and isinstance(self.seed, Sequence):
            raise ConfigError("reference_draws has one stream: seed must be one number or None")

    def _check_quantiles(self) -> None:
        for quantile in self.quantiles:
            if not (isinstance(quantile, float | int) and 0 <= quantile <= 1):
                raise ConfigError(f"quantiles must lie between 0 and 1, got {quantile!r:.60}")
        if len(set(self.quantiles)) < len(self.quantiles):
            raise ConfigError(f"quantiles must differ, got {', '.join(map(str, self.quantiles))}")
        if self.quantiles and self.paths < 2:
            raise ConfigError(f"quantiles take sample_count 2 or more, got {self.paths}")

    def check_for(self, series: int) -> None:
        """ConfigError where a list of seeds has another length than the batch."""
        if isinstance(self.seed, Sequence) and len(self.seed) != series:
            raise ConfigError(
                f"seed must be one number or one for each of {series}, got {len(self.seed)}"
            )

    def seeds(self, series: int) -> list[int]:
        """One seed for each series."""
        if self.seed is None:
            return torch.randint(2**62, (series,)).tolist()
        given = self.seed if isinstance(self.seed, Sequence) else [self.seed] * series
        return [int(seed) for seed in given]

    def stream(self, device: torch.device) -> torch.Generator | None:
        """The one stream of `reference_draws`, on the device; None is torch's global one."""
        if self.seed is None:
            return None
        assert not isinstance(self.seed, Sequence)
        return torch.Generator(device).manual_seed(int(self.seed))

"""Forecasting bars with a Kronos model and its tokenizer (arXiv 2508.02739, section 3.3).

Axes: B series, N bars known, S bars to come, C paths of each series, F = 6 features.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn

from kronos.data.layout import FEATURES
from kronos.errors import ConfigError, DataError
from kronos.model import Kronos, KronosTokenizer
from kronos.model.decoding import decode_paths
from kronos.model.mode import evaluating
from kronos.model.sampling import Sampling, count, path_uniforms
from kronos.predict_inputs import Series, read_series

_HIGH, _LOW, _VOLUME = FEATURES.index("high"), FEATURES.index("low"), FEATURES.index("volume")


class KronosPredictor:
    """Forecasts frames of bars. Any number of threads may share one predictor.

    All bars given are normalised together (z-score of each column, biased deviation + 1e-5, in
    float64, clipped to ±`clip`) and all are encoded, however many they are; the forecaster
    then sees the last `max_context` of them, and of what it predicted. So with 10 000 bars the
    early ones count in the normalisation, and in the tokenizer's attention, whose cost grows
    with the square of their number: pass fewer where that is not wanted.

    `device`: where the model and the tokenizer are moved to; None is where the model is. Their
    precision is kept; the output is float32 in any.
    """

    def __init__(
        self,
        model: Kronos,
        tokenizer: KronosTokenizer,
        device: str | torch.device | None = None,
        max_context: int = 512,
        clip: float = 5,
    ) -> None:
        if (model.s1_bits, model.s2_bits) != (tokenizer.s1_bits, tokenizer.s2_bits):
            raise ConfigError(
                f"model and tokenizer must agree on the bits of a code, got "
                f"{model.s1_bits} + {model.s2_bits} and {tokenizer.s1_bits} + {tokenizer.s2_bits}"
            )
        if tokenizer.d_in != len(FEATURES):
            raise ConfigError(
                f"the tokenizer must take the {len(FEATURES)} columns {', '.join(FEATURES)}, "
                f"its d_in is {tokenizer.d_in}"
            )
        if not clip > 0:
            raise ConfigError(f"clip must be above 0, got {clip!r}")
        self.max_context = count("max_context", max_context, minimum=1)
        self.clip = float(clip)
        self.device = torch.device(device) if device is not None else _home(model)[0]
        self.model = model.to(self.device)
        self.tokenizer = tokenizer.to(self.device)

    def predict(
        self,
        df: pd.DataFrame,
        x_timestamp: Iterable[Any],
        y_timestamp: Iterable[Any],
        pred_len: int,
        T: float = 1.0,
        top_k: int | None = 0,
        top_p: float | None = 0.9,
        sample_count: int = 1,
        verbose: bool = True,
        *,
        seed: int | None = None,
        clip_volume: bool = False,
        repair_ohlc: bool = False,
    ) -> pd.DataFrame:
        """Forecast one series: the six columns in float32, indexed by `y_timestamp`.

        `df`: N bars, oldest first, with open, high, low and close; without volume it counts as
        0, without amount as volume times the mean of the four prices. `x_timestamp` (N) and
        `y_timestamp` (`pred_len`): their times, as any list, Series or Index of datetimes or
        ISO texts, all on one clock; the model reads the wall-clock fields as they stand.

        `T`, `top_k`, `top_p`: see `sampling.Sampling`; T 0 or top_k 1 is greedy, None is off.
        `sample_count` paths are averaged. `seed`: the same history with the same seed gives the
        same forecast, alone or in any batch; None draws from torch's global generator.
        `verbose`: a progress bar on stderr.

        The raw forecast may have negative volumes and a high below its close. `clip_volume`
        raises volume and amount to 0 at least; `repair_ohlc` widens high and low around open
        and close. Both are off by default.

        DataError names the column and row at fault; ConfigError the setting.
        """
        return self.predict_batch(
            [df],
            [x_timestamp],
            [y_timestamp],
            pred_len,
            T,
            top_k,
            top_p,
            sample_count,
            verbose,
            seed=seed,
            clip_volume=clip_volume,
            repair_ohlc=repair_ohlc,
        )[0]

    def predict_batch(
        self,
        df_list: Sequence[pd.DataFrame],
        x_timestamp_list: Sequence[Iterable[Any]],
        y_timestamp_list: Sequence[Iterable[Any]],
        pred_len: int,
        T: float = 1.0,
        top_k: int | None = 0,
        top_p: float | None = 0.9,
        sample_count: int = 1,
        verbose: bool = True,
        *,
        seed: int | Sequence[int] | None = None,
        clip_volume: bool = False,
        repair_ohlc: bool = False,
    ) -> list[pd.DataFrame]:
        """Forecast several series of equal length at once; one frame for each, in order.

        Arguments as in `predict`. With one `seed` all series draw with the same numbers, each
        as if it were alone, so that variants of one history compare like for like; a list
        gives each series a seed of its own.
        """
        sampling = Sampling(T, top_k, top_p)
        steps = self._steps(pred_len)
        paths = count("sample_count", sample_count, minimum=1)
        lengths = [len(df_list), len(x_timestamp_list), len(y_timestamp_list)]
        if len(set(lengths)) > 1:
            raise DataError(
                f"df_list, x_timestamp_list and y_timestamp_list must be equally long, got "
                f"{lengths[0]}, {lengths[1]} and {lengths[2]}"
            )
        seeds = _seeds(seed, lengths[0])
        if not df_list:
            return []
        rows = zip(df_list, x_timestamp_list, y_timestamp_list, strict=True)
        several = len(df_list) > 1
        batch = [
            read_series(*row, pred_len=steps, where=f"series {i}: " if several else "")
            for i, row in enumerate(rows)
        ]
        _check_same_length(batch)
        uniforms = torch.stack([path_uniforms(s, p, steps) for s in seeds for p in range(paths)])
        with _progress(steps, verbose) as on_step:
            scores = self._scores(batch, paths, uniforms, sampling, on_step)
        return [
            _frame(one, one.restored(score), clip_volume, repair_ohlc)
            for one, score in zip(batch, scores, strict=True)
        ]

    def _steps(self, pred_len: int) -> int:
        steps = count("pred_len", pred_len, minimum=1)
        if steps > self.max_context:
            raise ConfigError(
                f"pred_len must not exceed max_context, the most bars decoded together: "
                f"{steps} > {self.max_context}; predict in parts"
            )
        return steps

    @torch.no_grad()
    def _scores(
        self,
        batch: list[Series],
        paths: int,
        uniforms: Tensor,
        sampling: Sampling,
        on_step: Callable[[], object],
    ) -> NDArray[np.float64]:
        """Normalised forecasts (B, S, F), the mean over the paths; uniforms (B*C, S, 2)."""
        there, dtype = _home(self.tokenizer)
        here, _ = _home(self.model)
        steps = uniforms.shape[1]
        scores = np.stack([one.normalised(self.clip) for one in batch])  # B N F
        stamps = torch.from_numpy(np.stack([one.stamps for one in batch]))  # B N+S 5
        with evaluating(self.model, self.tokenizer):
            halves = self.tokenizer.encode_halves(torch.from_numpy(scores).to(there, dtype))
            kept = slice(-self.max_context, None)
            s1, s2 = (half[:, kept].to(here).repeat_interleave(paths, 0) for half in halves)
            stamps = stamps[:, -(s1.shape[1] + steps) :].to(here).repeat_interleave(paths, 0)
            s1_new, s2_new = decode_paths(
                self.model, s1, s2, stamps, uniforms.to(here), sampling, self.max_context, on_step
            )
            all_s1 = torch.cat((s1, s1_new), dim=1)[:, kept].to(there)
            all_s2 = torch.cat((s2, s2_new), dim=1)[:, kept].to(there)
            decoded = self.tokenizer.decode((all_s1, all_s2), half=True)[:, -steps:]  # B*C S F
        by_path = decoded.cpu().double().unflatten(0, (len(batch), paths))
        return np.asarray(by_path.mean(dim=1).numpy())


def _home(module: nn.Module) -> tuple[torch.device, torch.dtype]:
    parameter = next(module.parameters())
    return parameter.device, parameter.dtype


def _seeds(seed: int | Sequence[int] | None, series: int) -> list[int]:
    if seed is None:
        return torch.randint(2**62, (series,)).tolist()
    seeds = list(seed) if isinstance(seed, Sequence) else [seed] * series
    if len(seeds) != series:
        raise ConfigError(f"seed must be one number or one for each of {series}, got {len(seeds)}")
    for one in seeds:
        if isinstance(one, bool) or not isinstance(one, int | np.integer):
            raise ConfigError(f"seed must be a whole number or None, got {one!r}")
    return [int(one) for one in seeds]


def _check_same_length(batch: list[Series]) -> None:
    lengths = [len(one.values) for one in batch]
    if len(set(lengths)) > 1:
        raise DataError(
            f"the series of one batch must be equally long, got {sorted(set(lengths))} bars; "
            "cut them to one length or predict them apart"
        )


def _frame(
    one: Series, values: NDArray[np.float64], clip_volume: bool, repair_ohlc: bool
) -> pd.DataFrame:
    if clip_volume:
        values[:, _VOLUME:] = np.maximum(values[:, _VOLUME:], 0.0)  # volume and amount
    if repair_ohlc:
        prices = values[:, :_VOLUME]
        values[:, _HIGH], values[:, _LOW] = prices.max(axis=1), prices.min(axis=1)
    return pd.DataFrame(values.astype(np.float32), index=one.future, columns=list(FEATURES))


@contextmanager
def _progress(steps: int, verbose: bool) -> Iterator[Callable[[], object]]:
    """Yield what to call after each step; it moves a bar on stderr if `verbose`."""
    if not verbose:
        yield lambda: None
        return
    # A console of its own: only one bar may live on rich's shared one, and threads may predict.
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("predicting", total=steps)
        yield lambda: progress.advance(task)

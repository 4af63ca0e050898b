"""Forecasting bars with a Kronos model and its tokenizer (arXiv 2508.02739, section 3.3).

Axes: B series, N bars known, S bars to come, C paths of each series, F = 6 features.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import Any, Unpack

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from torch import nn

from kronos.data.columns import FEATURES
from kronos.errors import ConfigError, DataError
from kronos.model import Kronos, KronosTokenizer
from kronos.model.decoding import Draw, decode_paths, decode_values
from kronos.model.mode import evaluating
from kronos.model.prompts import encode_prompts
from kronos.model.sampling import PathDraws, ReferenceDraws, Sampling, count, path_uniforms
from kronos.predict.inputs import Series, read_series
from kronos.predict.options import ForecastOptions, Options
from kronos.predict.outputs import mean_frame, paths_frame, sane

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class KronosPredictor:
    """Forecasts frames of bars. Any number of threads may share one predictor.

    All bars given are normalised together (z-score of each column, biased deviation + 1e-5, in
    float64, clipped to ±`clip`) and all are encoded, however many they are; the forecaster
    then sees the last `max_context` of them, and of what it predicted. So with 10 000 bars the
    early ones count in the normalisation, and in the tokenizer's attention, whose cost grows
    with the square of their number: pass fewer where that is not wanted.

    `device`: where the model and the tokenizer are moved to; None is where the model is.
    `precision`: what the model's weights are cast to, "float32", "bfloat16" or "float16"; None
    keeps theirs. The tokenizer keeps its own: a bit of a code is a sign, and half precision
    would turn those near zero. The output is float32 in any. `compile`: whether torch.compile
    makes the blocks of a step, see `compiled.compiled_block`; on a CPU that may as well cost time.
    """

    def __init__(
        self,
        model: Kronos,
        tokenizer: KronosTokenizer,
        device: str | torch.device | None = None,
        max_context: int = 512,
        clip: float = 5,
        *,
        precision: str | None = None,
        compile: bool = False,
    ) -> None:
        _check_pair(model, tokenizer)
        if not clip > 0:
            raise ConfigError(f"clip must be above 0, got {clip!r}")
        if precision is not None and precision not in PRECISIONS:
            raise ConfigError(
                f"precision must be one of {', '.join(PRECISIONS)} or None, got {precision!r:.60}"
            )
        self.max_context = count("max_context", max_context, minimum=1)
        self.clip = float(clip)
        self.compile = compile
        self.device = torch.device(device) if device is not None else _home(model)[0]
        self.model = model.to(self.device, PRECISIONS.get(precision or ""))
        self.tokenizer = tokenizer.to(self.device)

    def predict(
        self,
        df: pd.DataFrame,
        x_timestamp: Iterable[Any] | None = None,
        y_timestamp: Iterable[Any] | None = None,
        pred_len: int | None = None,
        T: float = 1.0,
        top_k: int | None = 0,
        top_p: float | None = 0.9,
        sample_count: int = 1,
        verbose: bool = True,
        **options: Unpack[ForecastOptions],
    ) -> pd.DataFrame:
        """Forecast one series: the six columns in float32, indexed by `y_timestamp`.

        `df`: N bars, oldest first, with open, high, low and close; without volume it counts as
        0, without amount as volume times the mean of the four prices. `x_timestamp` (N) and
        `y_timestamp` (`pred_len`): their times, as any list, Series or Index of datetimes or
        ISO texts, ascending and all on one clock; the model reads the wall-clock fields as they
        stand. Without `x_timestamp` they are the index or the column `timestamps` of the bars.
        Without `y_timestamp` they are made: the spacing, the sessions and the weekends of the
        history go on, see `data.sessions.future_timestamps`.

        `T`, `top_k`, `top_p`: see `sampling.Sampling`; T 0 or top_k 1 is greedy, None is off.
        `sample_count` paths are averaged. `verbose`: a progress bar on stderr.
        `options`: see `options.ForecastOptions`. With `quantiles` the frame also has
        columns such as `close_q0.9`, those of the paths at each bar.

        DataError names the column and row at fault; ConfigError the setting.
        """
        x_list = None if x_timestamp is None else [x_timestamp]
        y_list = None if y_timestamp is None else [y_timestamp]
        return self.predict_batch(
            [df], x_list, y_list, pred_len, T, top_k, top_p, sample_count, verbose, **options
        )[0]

    def predict_batch(
        self,
        df_list: Sequence[pd.DataFrame],
        x_timestamp_list: Sequence[Iterable[Any]] | None = None,
        y_timestamp_list: Sequence[Iterable[Any]] | None = None,
        pred_len: int | None = None,
        T: float = 1.0,
        top_k: int | None = 0,
        top_p: float | None = 0.9,
        sample_count: int = 1,
        verbose: bool = True,
        **options: Unpack[ForecastOptions],
    ) -> list[pd.DataFrame]:
        """Forecast several series at once, of any lengths; one frame for each, in order.

        Arguments as in `predict`. With one `seed` all series draw with the same numbers, each
        as if it were alone, so that variants of one history compare like for like; a list
        gives each series a seed of its own.
        """
        asked = Options(Sampling(T, top_k, top_p), sample_count, **options)
        batch = self._read(df_list, x_timestamp_list, y_timestamp_list, pred_len, asked)
        values = self._values(batch, asked, verbose)
        return [
            mean_frame(of_paths, one.future, asked.quantiles)
            for one, of_paths in zip(batch, values, strict=True)
        ]

    def predict_paths(
        self,
        df: pd.DataFrame,
        x_timestamp: Iterable[Any] | None = None,
        y_timestamp: Iterable[Any] | None = None,
        pred_len: int | None = None,
        T: float = 1.0,
        top_k: int | None = 0,
        top_p: float | None = 0.9,
        sample_count: int = 20,
        verbose: bool = True,
        **options: Unpack[ForecastOptions],
    ) -> pd.DataFrame:
        """All paths of one series: the six columns in float32, indexed by (path, timestamp).

        Arguments as in `predict`, which gives the mean of these paths. Paths are counted from
        0; with a `seed` path 7 is the same whatever `sample_count` is.
        """
        asked = Options(Sampling(T, top_k, top_p), sample_count, **options)
        if asked.quantiles:
            raise ConfigError("quantiles are for predict and predict_batch; this gives all paths")
        x_list = None if x_timestamp is None else [x_timestamp]
        y_list = None if y_timestamp is None else [y_timestamp]
        batch = self._read([df], x_list, y_list, pred_len, asked)
        return paths_frame(self._values(batch, asked, verbose)[0], batch[0].future)

    def _read(
        self,
        bars: Sequence[pd.DataFrame],
        past: Sequence[Iterable[Any]] | None,
        future: Sequence[Iterable[Any]] | None,
        pred_len: int | None,
        asked: Options,
    ) -> list[Series]:
        steps = self._steps(pred_len, future)
        given = {"x_timestamp_list": past, "y_timestamp_list": future}
        for name, one in given.items():
            if one is not None and len(one) != len(bars):
                raise DataError(
                    f"{name} must be as long as df_list, got {len(one)} for {len(bars)} series"
                )
        asked.check_for(len(bars))
        nothing: list[Any] = [None] * len(bars)
        rows = zip(bars, past or nothing, future or nothing, strict=True)
        several = len(bars) > 1
        return [
            read_series(*row, steps, asked.calendar, where=f"series {i}: " if several else "")
            for i, row in enumerate(rows)
        ]

    def _steps(self, pred_len: int | None, future: Sequence[Iterable[Any]] | None) -> int:
        if pred_len is None and future and isinstance(future[0], Sized):
            pred_len = len(future[0])
        if pred_len is None:
            raise ConfigError(
                "pred_len, the number of bars to predict, is needed where no list "
                "of y_timestamp says it"
            )
        steps = count("pred_len", pred_len, minimum=1)
        if steps > self.max_context:
            raise ConfigError(
                f"pred_len must not exceed max_context, the most bars decoded together: "
                f"{steps} > {self.max_context}; predict in parts"
            )
        return steps

    def _values(
        self, batch: list[Series], asked: Options, verbose: bool
    ) -> list[NDArray[np.float64]]:
        """The paths of each series, (C, S, F)."""
        if not batch:
            return []
        # The longest first: their windows slide first, and neighbours are computed together.
        order = sorted(range(len(batch)), key=lambda number: -len(batch[number].values))
        draw = self._draw(asked, order, len(batch[0].future))
        ordered = [batch[number] for number in order]
        with _progress(len(batch[0].future), verbose) as on_step:
            scores = self._scores(ordered, asked, draw, on_step)
        found = {
            number: sane(batch[number].restored(one), asked.clip_volume, asked.repair_ohlc)
            for number, one in zip(order, scores, strict=True)
        }
        return [found[number] for number in range(len(batch))]

    def _draw(self, asked: Options, order: list[int], steps: int) -> Draw:
        """What draws the ids of series that are decoded in this order."""
        here = _home(self.model)[0]
        if asked.reference_draws:
            return ReferenceDraws(asked.sampling, asked.stream(here))
        seeds = asked.seeds(len(order))
        paths = [(seeds[number], path) for number in order for path in range(asked.paths)]
        uniforms = torch.stack([path_uniforms(seed, path, steps) for seed, path in paths])
        return PathDraws(asked.sampling, uniforms.to(here))

    @torch.inference_mode()
    def _scores(
        self, batch: list[Series], asked: Options, draw: Draw, on_step: Callable[[], object]
    ) -> NDArray[np.float64]:
        """Normalised forecasts (B, C, S, F)."""
        here, there = _home(self.model)[0], _home(self.tokenizer)[0]
        scores = [one.normalised(self.clip) for one in batch]
        stamps = torch.from_numpy(np.stack([one.future_stamps for one in batch]))  # B S 5
        past = [one.past_stamps for one in batch]
        with evaluating(self.model, self.tokenizer):
            prompts = encode_prompts(self.tokenizer, scores, past, self.max_context)
            s1, s2 = decode_paths(
                self.model,
                prompts.to(here),
                stamps.to(here),
                asked.paths,
                draw,
                self.max_context,
                min(asked.context_stride, self.max_context),
                on_step,
                compiled=self.compile,
            )
            new = s1.to(there), s2.to(there)
            values = decode_values(self.tokenizer, prompts.to(there), *new, self.max_context)
        return np.asarray(values.double().cpu().numpy())


def _home(module: nn.Module) -> tuple[torch.device, torch.dtype]:
    parameter = next(module.parameters())
    return parameter.device, parameter.dtype


def _check_pair(model: Kronos, tokenizer: KronosTokenizer) -> None:
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

"""One configuration trained for a few steps and scored on held-out bars.

Axes: W windows in order of time, H bars of horizon, 6 features.
"""

from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kronos.checkpoint import Models, build_models
from kronos.config import RunConfig
from kronos.data import Market
from kronos.evaluate import score_forecasts
from kronos.predict import KronosPredictor
from kronos.train.data import RunData, load_data
from kronos.train.phase import forecaster_phase
from kronos.train.step import StepResult
from kronos.train.tokens import run_tokens

_YEAR: Final = 365.25 * 24 * 3600 * 10**9  # ns


class Experiment:
    """A forecaster being fine-tuned: call it to make one step, `score` it at any time."""

    def __init__(self, config: RunConfig, device: str) -> None:
        self.config = config
        self.data: RunData = load_data(config)
        self.models: Models = build_models(config.model, device=device, seed=config.training.seed)
        tokens = run_tokens(self.models.tokenizer, self.data, config)
        self.phase = forecaster_phase(self.models, self.data, config.training, tokens)

    def __call__(self) -> StepResult:
        """Make one training step."""
        return self.phase()

    def score(self) -> tuple[dict[str, float], pd.DataFrame]:
        """Scores over the held-out windows, and the forecast of the latest one.

        The metrics are those of `evaluate.score_forecasts`: mae and rmse in fractions of each
        window's last close, direction_accuracy, and the figures of a simple backtest. Every
        history is `window` bars, every forecast the mean of the sampled paths.
        """
        training, scoring = self.config.training, self.config.scoring
        starts = self.data.validation.spread(scoring.windows)
        histories = [self._bars(start, training.window) for start in starts]
        futures = [self._bars(start + training.window, training.horizon) for start in starts]
        predictor = KronosPredictor(
            self.models.forecaster,
            self.models.tokenizer,
            max_context=self.config.model.max_context,
        )
        forecasts = predictor.predict_batch(
            histories,
            [history.index for history in histories],
            [future.index for future in futures],
            training.horizon,
            T=scoring.temperature,
            top_k=None,
            top_p=scoring.top_p,
            sample_count=scoring.sample_count,
            verbose=False,
            seed=[scoring.seed + number for number in range(len(starts))],
        )
        scores = score_forecasts(
            np.array([history["close"].iloc[-1] for history in histories]),
            _stacked(futures),
            _stacked(forecasts),
            starts=starts,
            bars_per_year=bars_per_year(self.data.windows.market),
        )
        return scores, forecasts[-1]

    def _bars(self, start: int, count: int) -> pd.DataFrame:
        return self.data.windows.market.slice(start, count)


def golden_columns(config: RunConfig) -> dict[str, str | int | float | None]:
    """What a golden file says of a configuration beside its figures."""
    training = config.training
    return {
        "precision": training.precision,
        "window": training.window,
        "horizon": training.horizon,
        "batch_size": training.batch_size,
        "accumulation": training.accumulation,
        "checkpointing": training.checkpointing,
        "parallel": "none",
        "world_size": 1,
        "seed": training.seed,
        "config_sha256": config.sha256(),
    }


def bars_per_year(market: Market) -> float:
    """How many bars the longest series has in a year of calendar time: about 252 for daily ones."""
    longest = int(np.diff(market.offsets).argmax())
    first, last = int(market.offsets[longest]), int(market.offsets[longest + 1]) - 1
    years = int(market.times[last] - market.times[first]) / _YEAR
    return (last - first) / years


def _stacked(frames: list[pd.DataFrame]) -> NDArray[np.float64]:
    return np.stack([frame.to_numpy(dtype=np.float64) for frame in frames])  # W H 6

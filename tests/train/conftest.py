"""A small made-up market and runs on it."""

import numpy as np
import pandas as pd
import pytest

from kronos.config import DataConfig, ForecasterShape, ModelConfig, RunConfig, TokenizerShape
from kronos.config import TrainingConfig as Training


@pytest.fixture(scope="session")
def bars_file(tmp_path_factory):
    rng = np.random.default_rng(0)
    close = 50 + np.sin(np.arange(300) / 5) * 5 + rng.normal(0, 0.2, 300)
    frame = pd.DataFrame(
        {
            "timestamps": pd.date_range("2024-01-01", periods=300, freq="D"),
            "open": close,
            "high": close + 0.5,
            "low": close - 0.5,
            "close": close,
            "volume": rng.uniform(100, 200, 300),
        }
    )
    path = tmp_path_factory.mktemp("bars") / "market.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def small_run(bars_file):
    """small_run(steps=4): a run of a small model on the market, with settings of training."""

    def run(**training):
        values = {
            "window": 20,
            "horizon": 4,
            "batch_size": 16,
            "steps": 12,
            "learning_rate": 3e-3,
            "validate_every": 4,
        }
        return RunConfig(
            name="small",
            model=ModelConfig(
                name="small",
                tokenizer=TokenizerShape(
                    d_model=16,
                    n_heads=2,
                    ff_dim=32,
                    n_enc_layers=2,
                    n_dec_layers=2,
                    s1_bits=4,
                    s2_bits=4,
                    group_size=4,
                ),
                forecaster=ForecasterShape(
                    s1_bits=4,
                    s2_bits=4,
                    n_layers=1,
                    d_model=16,
                    n_heads=2,
                    ff_dim=32,
                    resid_dropout_p=0.1,
                ),
                max_context=32,
            ),
            data=DataConfig(bars=str(bars_file)),
            training=Training(**(values | training)),
        )

    return run

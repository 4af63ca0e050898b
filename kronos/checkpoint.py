"""Where a run keeps its models, and how they are built or loaded.

A run's folder holds `tokenizer/best_model/` and `basemodel/best_model/`, each a config.json
and a model.safetensors; these are the names the released fine-tuning scripts use.
"""

from pathlib import Path
from typing import Final, NamedTuple

import torch

from kronos import samples
from kronos.config import ModelConfig
from kronos.measure import default_device
from kronos.model import Kronos, KronosTokenizer
from kronos.predict import KronosPredictor

TOKENIZER: Final = "tokenizer"
FORECASTER: Final = "basemodel"
TINY: Final = "tiny"


class Models(NamedTuple):
    """A tokenizer and the forecaster over its tokens, on one device, in evaluation mode."""

    tokenizer: KronosTokenizer
    forecaster: Kronos


def best_model(run: Path, part: str) -> Path:
    """The folder of the best weights of one part (`TOKENIZER` or `FORECASTER`) of a run."""
    return run / part / "best_model"


def run_folder(name: str) -> Path:
    """The folder of a run: "tiny" is the one shipped with the package, others are paths."""
    return samples.tiny_run() if name == TINY else Path(name)


def build_models(model: ModelConfig, *, device: str, seed: int) -> Models:
    """Load the pretrained weights the configuration names, or draw new ones from the seed.

    The configuration decides the shape and the dropouts; weights that do not fit it are an
    error.

    Raises:
        WeightsError: files that are missing, damaged or of another shape.
    """
    torch.manual_seed(seed)
    tokenizer_arguments = model.tokenizer.model_dump()
    forecaster_arguments = model.forecaster.model_dump()
    if model.pretrained is None:
        tokenizer = KronosTokenizer(**tokenizer_arguments)
        forecaster = Kronos(**forecaster_arguments)
    else:
        folder = run_folder(model.pretrained)
        tokenizer = KronosTokenizer.from_pretrained(
            best_model(folder, TOKENIZER), **tokenizer_arguments
        )
        forecaster = Kronos.from_pretrained(best_model(folder, FORECASTER), **forecaster_arguments)
    return Models(tokenizer.to(device).eval(), forecaster.to(device).eval())


def load_predictor(name: str, device: str | None = None) -> KronosPredictor:
    """A predictor from the folder of a run, or from "tiny", the shipped one.

    Raises:
        WeightsError: files that are missing or damaged.
    """
    folder = run_folder(name)
    tokenizer = KronosTokenizer.from_pretrained(best_model(folder, TOKENIZER))
    forecaster = Kronos.from_pretrained(best_model(folder, FORECASTER))
    return KronosPredictor(forecaster, tokenizer, device=device or default_device())

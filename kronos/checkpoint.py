"""Where a run keeps its models, and how they are built or loaded.

A run's folder holds `tokenizer/best_model/` and `basemodel/best_model/`, each a config.json
and a model.safetensors; these are the names the released fine-tuning scripts use.
"""

from pathlib import Path
from typing import Final, NamedTuple

import torch

from kronos import samples
from kronos.config import ModelConfig
from kronos.errors import ConfigError, WeightsError
from kronos.measure import default_device
from kronos.model import Kronos, KronosTokenizer
from kronos.predict import KronosPredictor

TOKENIZER: Final = "tokenizer"
FORECASTER: Final = "basemodel"
TINY: Final = "tiny"
RELEASED: Final = {
    "NeoQuasar/Kronos-mini": ("NeoQuasar/Kronos-Tokenizer-2k", 2048),
    "NeoQuasar/Kronos-small": ("NeoQuasar/Kronos-Tokenizer-base", 512),
    "NeoQuasar/Kronos-base": ("NeoQuasar/Kronos-Tokenizer-base", 512),
}
"""The released models on the hub, each with its tokenizer and the bars it was trained to see."""


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


def load_predictor(
    name: str,
    device: str | None = None,
    *,
    tokenizer: str | None = None,
    max_context: int | None = None,
    precision: str | None = None,
    compile: bool = False,
) -> KronosPredictor:
    """A predictor from "tiny", the folder of a run or of a model, or a hub id (owner/name).

    `tokenizer`: a folder or hub id; needed for a model that is neither in a run nor `RELEASED`.
    `max_context`: default that of the release, else 512. The rest: see `KronosPredictor`.

    Raises:
        ConfigError: no tokenizer is known for the model, or a setting breaks a rule.
        WeightsError: files that are missing or damaged, or a hub that cannot be reached.
    """
    found = _sources(name)
    tokens = tokenizer or found.tokenizer
    if tokens is None:
        raise ConfigError(
            f"no tokenizer is known for the model {name!r:.200}: name its folder or hub id, with "
            "tokenizer= or --tokenizer"
        )
    forecaster = Kronos.from_pretrained(found.forecaster)
    return KronosPredictor(
        forecaster,
        KronosTokenizer.from_pretrained(tokens),
        device or default_device(),
        found.max_context if max_context is None else max_context,
        precision=precision,
        compile=compile,
    )


class _Sources(NamedTuple):
    forecaster: str | Path
    tokenizer: str | Path | None
    max_context: int = 512


def _sources(name: str) -> _Sources:
    if name in RELEASED:
        return _Sources(name, *RELEASED[name])
    folder = run_folder(name)
    if (folder / FORECASTER).is_dir():
        return _Sources(best_model(folder, FORECASTER), best_model(folder, TOKENIZER))
    if folder.is_dir() or name.count("/") == 1:
        return _Sources(name, None)
    raise WeightsError(
        f"no model {name!r:.200}: a model is {TINY!r}, the folder of a run (with {FORECASTER}/), "
        "a folder with config.json and model.safetensors, or a hub id (owner/name)"
    )

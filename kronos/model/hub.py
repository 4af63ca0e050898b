"""from_pretrained and save_pretrained: a folder or a hub repository with two files.

`config.json` holds the constructor's arguments, `model.safetensors` the tensors. Loading is
strict and never unpickles. All failures are WeightsError, in one line.
"""

import inspect
import json
import os
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Self

import torch
from huggingface_hub import (
    PyTorchModelHubMixin,
    get_hf_file_metadata,
    hf_hub_download,
    hf_hub_url,
    try_to_load_from_cache,
)
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
)
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from kronos.errors import ConfigError, WeightsError
from kronos.files import atomic_path, write_text

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
ANSWER_S = float(os.environ.get("HF_HUB_ETAG_TIMEOUT") or 1.5)
"""How long to wait for the hub's first answer before saying that it cannot be reached.

The variable is huggingface_hub's own, whose default of 10 s is long for a command line.
"""


class HubModel(PyTorchModelHubMixin):
    """Mixin of an nn.Module whose constructor's arguments are plain JSON values."""

    _hub_mixin_config: dict[str, Any] | None

    @property
    def config(self) -> dict[str, Any]:
        """The constructor's arguments by name, as `config.json` holds them."""
        return dict(self._hub_mixin_config or {})

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        force_download: bool = False,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        revision: str | None = None,
        map_location: str | torch.device = "cpu",
        **model_kwargs: Any,
    ) -> Self:
        """Load a model from a folder, or else from the hub, in eval mode.

        `pretrained_model_name_or_path`: a folder, or a hub id such as "NeoQuasar/Kronos-small".
        `model_kwargs`: constructor arguments that override `config.json`, such as a dropout.
        WeightsError names the file that is missing and where it was looked for, the tensors
        or settings that are missing, unexpected or misshapen, or says that the hub is out of
        reach.
        """
        source = str(pretrained_model_name_or_path)
        download = {
            "revision": revision,
            "cache_dir": cache_dir,
            "force_download": force_download,
            "token": token,
            "local_files_only": local_files_only,
        }
        config_path = _find_file(source, CONFIG_FILE, download)
        weights_path = _find_file(source, WEIGHTS_FILE, download)
        model = _build(cls, _read_config(cls, config_path, model_kwargs), config_path)
        _load_weights(model, weights_path, torch.device(map_location))
        model.eval()
        return model  # type: ignore[return-value]

    def save_pretrained(
        self,
        save_directory: str | Path,
        *,
        config: dict[str, Any] | Any | None = None,
        repo_id: str | None = None,
        push_to_hub: bool = False,
        model_card_kwargs: dict[str, Any] | None = None,
        **push_to_hub_kwargs: Any,
    ) -> str | None:
        """Write `config.json` and `model.safetensors` into a folder, each atomically.

        Arguments as in huggingface_hub's mixin, but for the model card: a README.md is written
        only where `model_card_kwargs` is given. Returns the commit's address if `push_to_hub`,
        else None.
        """
        folder = Path(save_directory)
        self._save_pretrained(folder)
        settings = self.config if config is None else config
        write_text(folder / CONFIG_FILE, json.dumps(settings, indent=2, sort_keys=True) + "\n")
        if model_card_kwargs:
            self.generate_model_card(**model_card_kwargs).save(folder / "README.md")
        if not push_to_hub:
            return None
        return self.push_to_hub(
            repo_id=repo_id or folder.name,
            config=settings,
            model_card_kwargs=model_card_kwargs,
            **push_to_hub_kwargs,
        )

    def _save_pretrained(self, save_directory: Path) -> None:
        assert isinstance(self, nn.Module)
        tensors = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        with atomic_path(save_directory / WEIGHTS_FILE) as temporary:
            save_file(tensors, temporary, metadata={"format": "pt"})


def _find_file(source: str, name: str, download: dict[str, Any]) -> Path:
    """The file in the folder `source`, or in the hub's repository of that name."""
    folder = Path(source)
    if folder.is_dir():
        if not (folder / name).is_file():
            raise WeightsError(f"{name} is missing: looked in the folder {folder.resolve()}")
        return folder / name
    where = f"{name} not found: {source!r} is no folder here"
    try:
        return _download(source, name, download)
    except HFValidationError:
        raise WeightsError(f"{where}, and no hub id (owner/name) either") from None
    except (LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
        reason = f"the hub cannot be reached ({_one_line(error.__cause__ or error)})"
        if download["local_files_only"]:
            reason = "the hub's cache lacks it (local_files_only was asked for)"
        raise WeightsError(f"{where}, and {reason}") from error
    except EntryNotFoundError as error:
        raise WeightsError(f"{name} is missing: looked in the hub's {source}") from error
    except (HfHubHTTPError, OSError) as error:
        raise WeightsError(f"{where}, and the hub refused it ({_one_line(error)})") from error


def _download(repo_id: str, name: str, download: dict[str, Any]) -> Path:
    """The file's path in the hub's cache, fetched if need be.

    huggingface_hub asks five times more, for over 20 seconds, where it cannot reach the hub
    and has no cached copy. One question beforehand settles that in `ANSWER_S`.
    """
    cached = try_to_load_from_cache(
        repo_id, name, cache_dir=download["cache_dir"], revision=download["revision"]
    )
    if not isinstance(cached, str) and not download["local_files_only"]:
        _ask(hf_hub_url(repo_id, name, revision=download["revision"]), download["token"])
    return Path(hf_hub_download(repo_id, name, etag_timeout=ANSWER_S, **download))


def _ask(url: str, token: str | bool | None) -> None:
    """Return once the hub has the file; raise LocalEntryNotFoundError where it does not answer.

    In a thread of its own: no timeout of a request bounds the wait for a silent name server.
    """
    answers: SimpleQueue[Exception | None] = SimpleQueue()

    def ask() -> None:
        try:
            get_hf_file_metadata(url, token=token, timeout=ANSWER_S)
        except Exception as error:  # whichever HTTP library this release of the hub uses
            answers.put(error)
        else:
            answers.put(None)

    Thread(target=ask, daemon=True).start()
    try:
        error = answers.get(timeout=ANSWER_S)
    except Empty:
        error = TimeoutError(f"no answer in {ANSWER_S:g} s; HF_HUB_ETAG_TIMEOUT=10 waits longer")
    if isinstance(error, HfHubHTTPError | OfflineModeIsEnabled):
        raise error
    if error is not None:
        raise LocalEntryNotFoundError("the hub cannot be reached") from error


def _read_config(cls: type, path: Path, overrides: dict[str, Any]) -> dict[str, Any]:
    """The constructor's arguments from config.json; every one must be there, and no other."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WeightsError(f"{path} is not JSON: {_one_line(error)}") from error
    if not isinstance(config, dict):
        raise WeightsError(f"{path} must hold a JSON object of settings, not {config!r:.60}")
    config |= overrides
    wanted = set(inspect.signature(cls).parameters)
    if missing := sorted(wanted - set(config)):
        raise WeightsError(f"{path} lacks settings of {cls.__name__}: {', '.join(missing)}")
    if unknown := sorted(set(config) - wanted):
        raise WeightsError(
            f"{path} has settings that {cls.__name__} does not know: {', '.join(unknown)}"
        )
    return config


def _build(cls: type, config: dict[str, Any], path: Path) -> nn.Module:
    """A model without storage: the initial values would be thrown away."""
    try:
        with torch.device("meta"):
            model = cls(**config)
    except ConfigError as error:
        raise WeightsError(f"{path}: {error}") from error
    assert isinstance(model, nn.Module)
    return model


def _load_weights(model: nn.Module, path: Path, device: torch.device) -> None:
    """Give the model storage on the device and the file's tensors, names and shapes equal."""
    try:
        tensors = load_file(path, device=str(device))
    except SafetensorError as error:
        raise WeightsError(f"{path} is damaged or no safetensors file: {error}") from error
    expected = model.state_dict()
    if missing := sorted(expected.keys() - tensors.keys()):
        raise WeightsError(f"{path} lacks {_some(missing)}")
    if foreign := sorted(tensors.keys() - expected.keys()):
        raise WeightsError(f"{path} has unexpected {_some(foreign)}")
    misshapen = [
        f"{name} {_shape(tensors[name])} instead of {_shape(tensor)}"
        for name, tensor in expected.items()
        if tensors[name].shape != tensor.shape
    ]
    if misshapen:
        raise WeightsError(f"{path} disagrees with its config.json: {_some(misshapen)}")
    model.to_empty(device=device)
    model.load_state_dict(tensors)


def _some(names: list[str], limit: int = 5) -> str:
    """ "tensor a", or "7 tensors: a, b, c, d, e, ..."."""
    if len(names) == 1:
        return f"tensor {names[0]}"
    more = ", ..." if len(names) > limit else ""
    return f"{len(names)} tensors: {', '.join(names[:limit])}{more}"


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__

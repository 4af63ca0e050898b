"""Frozen, torch-free descriptions of a run; read from YAML, validated once, here.

A run is a model shape, the bars, how to train and how to score. `recipes.py` names some.
"""

import difflib
import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, Final, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from kronos.errors import ConfigError

Precision = Literal["float32", "bf16"]
Checkpointing = Literal["off", "block"]
Feature = Literal["open", "high", "low", "close", "volume", "amount"]
TimeFeature = Literal["minute", "hour", "weekday", "day", "month"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        annotation = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and annotation in (int, float):
            raise ValueError("a number is needed")
        return value


class TokenizerShape(_Frozen):
    """Constructor arguments of `KronosTokenizer`, named as in its config.json."""

    d_in: int = 6
    d_model: int
    n_heads: int
    ff_dim: int
    n_enc_layers: int
    n_dec_layers: int
    ffn_dropout_p: float = 0.0
    attn_dropout_p: float = 0.0
    resid_dropout_p: float = 0.0
    s1_bits: int
    s2_bits: int
    beta: float = 0.05
    gamma0: float = 1.0
    gamma: float = 1.1
    zeta: float = 0.05
    group_size: int


class ForecasterShape(_Frozen):
    """Constructor arguments of `Kronos`, named as in its config.json."""

    s1_bits: int
    s2_bits: int
    n_layers: int
    d_model: int
    n_heads: int
    ff_dim: int
    ffn_dropout_p: float = 0.0
    attn_dropout_p: float = 0.0
    resid_dropout_p: float = 0.0
    token_dropout_p: float = 0.0
    learn_te: bool = True


class ModelConfig(_Frozen):
    """A tokenizer and the forecaster over its tokens."""

    name: str
    tokenizer: TokenizerShape
    forecaster: ForecasterShape
    max_context: int = Field(gt=0)
    """Tokens the forecaster looks back on when it predicts."""
    pretrained: str | None = None
    """Where weights come from: "tiny" (shipped), the folder of a run (it holds
    tokenizer/best_model and basemodel/best_model), or None to start from scratch."""

    @model_validator(mode="after")
    def _bits_agree(self) -> Self:
        ours, theirs = self.tokenizer, self.forecaster
        if (ours.s1_bits, ours.s2_bits) != (theirs.s1_bits, theirs.s2_bits):
            raise ValueError(
                "tokenizer and forecaster must have the same s1_bits and s2_bits, got "
                f"{ours.s1_bits}+{ours.s2_bits} and {theirs.s1_bits}+{theirs.s2_bits}"
            )
        return self


class DataConfig(_Frozen):
    """The bars and how they are divided."""

    bars: str = "ibm"
    """A file, a folder or a pattern of files; or "ibm": the daily bars shipped with the package."""
    columns: tuple[str, ...] | None = None
    """Columns that go by other names in the file: [open=first, volume=lots]."""
    symbol: str | None = None
    """Only the bars of this symbol."""
    timezone: str | None = None
    """An IANA zone that all timestamps are converted to."""
    sort: bool = False
    dedupe: Literal["first", "last"] | None = None
    """Of bars with one timestamp, the one to keep."""
    fill: Literal["ffill", "drop"] | None = None
    """What becomes of cells without a number."""
    repair: bool = False
    """Widen high and low to contain open and close."""
    features: tuple[Feature, ...] | None = Field(None, min_length=1)
    """Features to learn from; the others are held at their mean. None is all six."""
    time_features: tuple[TimeFeature, ...] | None = None
    """Of minute, hour, weekday, day, month; the others are held at 0. None is all five."""
    validation_share: float = Field(0.17, gt=0, lt=1)
    """Share of the bars, the latest ones, that validation forecasts; no training sample has one
    of them, nor one of the `window` bars before, which these forecasts look back on."""
    cache: str | None = None
    """A folder that keeps what was read, so that the next start takes no time."""
    precompute_tokens: bool = False
    """Have the tokenizer, where it is not trained, make every window's tokens once."""
    workers: int | None = Field(None, ge=0)
    """Processes that gather batches; None: as many as the cores allow, which may be 0."""

    @model_validator(mode="after")
    def _tokens_have_a_place(self) -> Self:
        if self.precompute_tokens and self.cache is None:
            raise ValueError("precompute_tokens keeps the tokens in data.cache: name a folder")
        return self


class TrainingConfig(_Frozen):
    """One training step, and how many of them."""

    window: int = Field(gt=0)
    """Bars a sample looks back on; its normalisation comes from them alone."""
    horizon: int = Field(gt=0)
    """Bars to forecast behind the window."""
    batch_size: int = Field(gt=0)
    """Samples of one forward and backward pass, a micro-batch."""
    samples_per_epoch: int | None = Field(None, gt=0)
    """Windows that an epoch shows, other ones each time; None is all."""
    accumulation: int = Field(1, gt=0)
    """Micro-batches whose gradients make one step."""
    precision: Precision = "float32"
    """"bf16" is mixed precision: bfloat16 autocast over float32 weights."""
    checkpointing: Checkpointing = "off"
    """"block" recomputes each transformer block's activations in the backward pass."""
    steps: int = Field(gt=0)
    learning_rate: float = Field(gt=0)
    schedule: Literal["constant", "one-cycle"] = "constant"
    weight_decay: float = Field(0.1, ge=0)
    max_grad_norm: float = Field(3.0, gt=0)
    fused_optimizer: bool = False
    """One kernel makes the whole of AdamW's step, without temporaries."""
    teacher_forcing: bool = False
    """Condition s2 on the true s1 instead of a sampled one while training."""
    validate_every: int = Field(100, gt=0)
    """Steps between two looks at the validation loss."""
    seed: int = Field(0, ge=0, lt=2**63)


class ScoringConfig(_Frozen):
    """How forecasts of the validation bars are made and scored."""

    windows: int = Field(48, gt=0)
    """Forecasts, spread evenly over the validation bars."""
    sample_count: int = Field(4, gt=0)
    """Sampled paths whose mean is one forecast."""
    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(0.9, gt=0, le=1)
    seed: int = Field(0, ge=0, lt=2**63)


class RunConfig(_Frozen):
    """A whole run."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    model: ModelConfig
    data: DataConfig = DataConfig()
    training: TrainingConfig
    scoring: ScoringConfig = ScoringConfig()

    def sha256(self) -> str:
        """Digest of every setting that decides the result, for golden files and run records.

        Settings that are not given (None) are left out, so that another one that may be given
        leaves the digests of earlier runs as they are.
        """
        elsewhere = {"data": {"cache", "precompute_tokens", "workers"}}
        settings = self.model_dump(mode="json", exclude_none=True, exclude=elsewhere)
        canonical = json.dumps(settings, sort_keys=True, allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def with_overrides(self, overrides: list[str]) -> "RunConfig":
        """A copy with settings such as "training.batch_size=16" replaced.

        Raises:
            ConfigError: an unknown setting (the nearest is named) or a value against the rules.
        """
        settings = self.model_dump(mode="json")
        for override in overrides:
            key, equals, text = override.partition("=")
            if not equals:
                raise ConfigError(f"--set takes section.setting=value, got {override!r:.60}")
            path = key.strip().split(".")
            _replace(settings, path, _parse_value(override, text, plain=_is_text(path)))
        return validated(settings, source="--set")


_RECIPE_KEY: Final = "recipe"
_BOOL: Final = "tag:yaml.org,2002:bool"
_DEEPEST: Final = 3
"""Names in the longest setting, model.tokenizer.d_model; a YAML alias may nest without end."""


def load_config(path: Path) -> RunConfig:
    """Read a run from YAML: a whole one, or `recipe: NAME` with what differs from it.

    Raises:
        ConfigError: the file cannot be read, or a setting is unknown or against the rules.
    """
    source = " ".join(str(path).splitlines())
    try:
        settings = _read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"cannot read the configuration {source}: {reason}") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"{source}: settings are a mapping of sections, got {settings!r:.60}")
    if _RECIPE_KEY in settings:
        from kronos.recipes import recipe  # recipes stand on this module

        try:
            base = recipe(str(settings.pop(_RECIPE_KEY))).model_dump(mode="json")
            _merge(base, [], settings)
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from error
        settings = base
    return validated(settings, source=source)


def validated(settings: dict[str, Any], *, source: str) -> RunConfig:
    """A run from plain values; the first broken rule becomes one line.

    Raises:
        ConfigError: a setting is missing, unknown or against its rule.
    """
    try:
        return RunConfig.model_validate(settings)
    except ValidationError as error:
        faults = error.errors()
        # an unknown setting is told before a missing one: it may be the missing one misspelt
        first = next((one for one in faults if one["type"] == "extra_forbidden"), faults[0])
        where = ".".join(str(part) for part in first["loc"]) or "configuration"
        if first["type"] == "extra_forbidden":
            raise ConfigError(f"{source}: {_unknown(first['loc'])}") from error
        rule = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{source}: {where}: {rule}, got {first['input']!r:.60}") from error


def _is_text(path: list[str]) -> bool:
    """Whether a setting is a text, so that the symbol 000001 is not taken for the number 1."""
    model: Any = RunConfig
    for part in path:
        field = getattr(model, "model_fields", {}).get(part)
        model = field.annotation if field else None
    return model in (str, str | None)


def _parse_value(override: str, text: str, *, plain: bool) -> Any:
    try:
        value = _read_yaml(text)
        return text.strip() if plain and isinstance(value, int | float) else value
    except ValueError as error:
        raise ConfigError(f"--set cannot read the value of {override!r:.60}: {error}") from error


class _Yaml(yaml.SafeLoader):
    """YAML in which `off` is a word, as in YAML 1.2, and no key may stand twice."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        if repeated := [key for key, times in keys.items() if times > 1]:
            raise ValueError(f"{repeated[0]!r:.60} stands there twice; keep one")
        return node


_Yaml.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _BOOL]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Yaml.add_implicit_resolver(_BOOL, re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), [*"tTfF"])


def _read_yaml(text: str) -> Any:
    """The values of a YAML text; ValueError, in one line, where it cannot be read."""
    try:
        return yaml.load(text, _Yaml)
    except Exception as error:  # odd tags, dates and depths raise what they like in PyYAML
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


def _merge(settings: dict[str, Any], path: list[str], value: Any) -> None:
    if isinstance(value, dict) and len(path) < _DEEPEST:
        for key, inner in value.items():
            _merge(settings, [*path, str(key)], inner)
    else:
        _replace(settings, path, value)


def _replace(settings: dict[str, Any], path: list[str], value: Any) -> None:
    section = settings
    for depth, part in enumerate(path):
        if not isinstance(section, dict) or part not in section:
            raise ConfigError(_unknown(tuple(path[: depth + 1])))
        if depth < len(path) - 1:
            section = section[part]
    section[path[-1]] = value


def _unknown(location: tuple[Any, ...]) -> str:
    name = ".".join(str(part) for part in location)
    names = _setting_names(RunConfig)
    if name in names:  # written with dots as one key of a YAML mapping
        return f"no setting {name!r} in one key; nest it: {name.replace('.', ': {')}: ..."
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"no setting {name!r:.60}" + (f"; did you mean {near[0]}?" if near else "")


def _setting_names(model: type[BaseModel], prefix: str = "") -> list[str]:
    names = []
    for name, field in model.model_fields.items():
        names.append(prefix + name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            names += _setting_names(field.annotation, f"{prefix}{name}.")
    return names

"""The options of a session, read and checked once. No torch."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from kronos.errors import ConfigError, KronosError
from kronos.hardware import Card, find_card, parse_budget

if TYPE_CHECKING:
    import pytest

Parsed = TypeVar("Parsed")

MAX_MEMORY_GROWTH: Final = 0.02
"""How far the allocated peak may grow over the golden's. It is a count, the same in every run;
the rest is for another PyTorch release, whose operators may keep a little more."""

REPORT_SUFFIXES: Final = (".md", ".csv", ".json", ".html")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What the session was asked for."""

    budget: int | None
    """Bytes, from --gpu-budget or the ini."""
    card: Card | None
    """The card to plan for where none is present."""
    strict: bool
    """Whether a run that only fits by flushing the allocator's cache fails."""
    golden_dir: Path
    golden_update: bool
    max_accuracy_drop: float
    max_slowdown: float
    reports: tuple[Path, ...]
    allow_unmeasured: bool
    budget_asked_for: bool
    """Whether the command line gave a budget: then a session that meters no memory fails."""
    gate_asked_for: bool
    """Whether the command line made this session a gate: then measuring nothing fails it."""

    @classmethod
    def from_pytest(cls, config: "pytest.Config") -> "Settings":
        """Read options before ini values.

        Raises:
            KronosError: a value cannot be read; the message names the option and the text.
        """
        budget, card = _value(config, "gpu_budget", parse_budget) or (None, None)
        card = _value(config, "gpu", find_card) or card
        reports = tuple(Path(one) for one in config.getoption("capacity_report") or ())
        for report in reports:
            if report.suffix not in REPORT_SUFFIXES:
                raise ConfigError(
                    f"--capacity-report writes {', '.join(REPORT_SUFFIXES)}; got {str(report)!r}"
                )
            if report.is_dir() or any(one.is_file() for one in report.parents):
                raise ConfigError(f"--capacity-report cannot write a file at {str(report)!r}")
        update = bool(config.getoption("golden_update"))
        budget_asked_for = config.getoption("gpu_budget") is not None
        return cls(
            budget=budget,
            card=card,
            strict=bool(config.getoption("gpu_budget_strict")),
            golden_dir=_golden_dir(config),
            golden_update=update,
            max_accuracy_drop=_value(config, "max_accuracy_drop", parse_share) or 0.05,
            max_slowdown=_value(config, "max_slowdown", parse_factor) or 2.0,
            reports=reports,
            allow_unmeasured=bool(config.getoption("allow_unmeasured")),
            budget_asked_for=budget_asked_for,
            gate_asked_for=bool(budget_asked_for or reports or update),
        )


def parse_share(text: str) -> float:
    """A share such as "5%" or "0.05".

    Raises:
        ConfigError: no share above 0 and up to 100 %.
    """
    stripped = text.strip()
    try:
        share = float(stripped[:-1]) / 100 if stripped.endswith("%") else float(stripped)
    except ValueError:
        share = float("nan")
    if not 0 < share <= 1:
        raise ConfigError(f"a share is written 5% or 0.05, above 0 and up to 100%; got {text!r}")
    return share


def parse_factor(text: str) -> float:
    """A factor above 1, such as "2.0".

    Raises:
        ConfigError: no such number.
    """
    try:
        factor = float(text)
    except ValueError:
        factor = float("nan")
    if not 1 < factor < float("inf"):
        raise ConfigError(f"a slowdown is a factor above 1, such as 2.0; got {text!r}")
    return factor


def _golden_dir(config: "pytest.Config") -> Path:
    given = config.getoption("golden_dir")
    if given is not None:  # as typed, from where it was typed
        return config.invocation_params.dir / str(given)
    return config.rootpath / (config.getini("golden_dir") or "golden")


def _value(config: "pytest.Config", name: str, parse: Callable[[str], Parsed]) -> Parsed | None:
    """An option's value, else the ini's, else None; an error names where the text stood."""
    given, where = config.getoption(name), f"--{name.replace('_', '-')}"
    if given is None:
        given, where = config.getini(name) or None, f"ini {name}"
    if given is None:
        return None
    try:
        return parse(str(given))
    except KronosError as error:
        raise ConfigError(f"{where}: {error}") from error

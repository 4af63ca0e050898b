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

DEFAULT_MAX_ACCURACY_DROP: Final = "5%"
DEFAULT_MAX_SLOWDOWN: Final = "2.0"
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
    golden_dir: Path
    golden_update: bool
    max_accuracy_drop: float
    max_slowdown: float
    reports: tuple[Path, ...]
    allow_unmeasured: bool
    gate_asked_for: bool
    """Whether the command line made this session a gate: then measuring nothing fails it."""

    @classmethod
    def from_pytest(cls, config: "pytest.Config") -> "Settings":
        """Read options before ini values.

        Raises:
            KronosError: a value cannot be read; the message names the option and the text.
        """
        budget_text = _option(config, "gpu_budget")
        budget, card = None, None
        if budget_text is not None:
            budget, card = _named("--gpu-budget", parse_budget, budget_text)
        card_text = _option(config, "gpu")
        if card_text is not None:
            card = _named("--gpu", find_card, card_text)
        reports = tuple(Path(one) for one in config.getoption("capacity_report") or ())
        for report in reports:
            if report.suffix not in REPORT_SUFFIXES:
                raise ConfigError(
                    f"--capacity-report writes {', '.join(REPORT_SUFFIXES)}; got {str(report)!r}"
                )
        update = bool(config.getoption("golden_update"))
        asked = config.getoption("gpu_budget") is not None or reports or update
        return cls(
            budget=budget,
            card=card,
            golden_dir=config.rootpath / (_option(config, "golden_dir") or "golden"),
            golden_update=update,
            max_accuracy_drop=_named(
                "--max-accuracy-drop",
                parse_share,
                _option(config, "max_accuracy_drop") or DEFAULT_MAX_ACCURACY_DROP,
            ),
            max_slowdown=_named(
                "--max-slowdown",
                parse_factor,
                _option(config, "max_slowdown") or DEFAULT_MAX_SLOWDOWN,
            ),
            reports=reports,
            allow_unmeasured=bool(config.getoption("allow_unmeasured")),
            gate_asked_for=bool(asked),
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


def _option(config: "pytest.Config", name: str) -> str | None:
    given = config.getoption(name)
    return str(given) if given is not None else (config.getini(name) or None)


def _named(option: str, parse: Callable[[str], Parsed], text: str) -> Parsed:
    try:
        return parse(text)
    except KronosError as error:
        raise ConfigError(f"{option}: {error}") from error

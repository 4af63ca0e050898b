"""What counts as a step, and what builds one."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from kronos.errors import ConfigError

Step = Callable[[], object]
Build = Callable[[str], Step]
"""Constructs model and optimizer on the device; returns a callable that makes one step."""


def is_build(step_or_build: Callable[..., Any]) -> bool:
    """Whether a callable needs an argument, the device, and so is a build and no step."""
    return any(
        parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in inspect.signature(step_or_build).parameters.values()
    )


def as_build(step_or_build: Callable[..., Any]) -> Build:
    """A `build(device) -> step` from one, or from a step of no arguments that is already built.

    A callable that needs an argument is a build. The other way round, a builder that forgot its
    `device` would be "run" without ever making a step, so what looks like one is refused.

    Raises:
        ConfigError: from the build returned here, where it returns no step, or from the step,
            where it returns one.
    """
    if is_build(step_or_build):
        return partial(_built, step_or_build)
    return lambda device: partial(_stepped, step_or_build)


def _built(build: Build, device: str) -> Step:
    step = build(device)
    if not callable(step):
        raise ConfigError(f"build(device) must return a step, a callable; it returned {step!r:.60}")
    return step


def _stepped(step: Step) -> object:
    result = step()
    if callable(result) and not isinstance(result, type):
        raise ConfigError(
            "a step of no arguments returned a callable; if it builds a step, let it take the "
            "device: build(device)"
        )
    return result

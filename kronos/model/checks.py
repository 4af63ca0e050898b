"""Rules for constructor arguments; each error names the rule and the value that broke it."""

import math

from kronos.errors import ConfigError

CHECKPOINTING_MODES = ("off", "block")


def whole(name: str, value: int, minimum: int = 1) -> int:
    """`value`, an int of at least `minimum`; ConfigError otherwise (a bool is no number)."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ConfigError(f"{name} must be a whole number of at least {minimum}, got {value!r}")
    return value


def real(name: str, value: float) -> float:
    """`value` as a finite float; ConfigError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{name} must be a finite number, got {value!r}")
    return float(value)


def probability(name: str, value: float) -> float:
    """`value` as a dropout probability, 0 <= value < 1; ConfigError otherwise."""
    number = real(name, value)
    if not 0.0 <= number < 1.0:
        raise ConfigError(f"{name} must be a probability, 0 <= {name} < 1, got {value!r}")
    return number


def head_width(d_model: int, n_heads: int, where: str = "n_heads") -> int:
    """Width of one head; ConfigError unless d_model splits into heads of even width.

    Even, because the rotary embedding turns the first half of a head with its second half.
    """
    if d_model % n_heads:
        raise ConfigError(
            f"d_model must be divisible by {where}: {d_model} / {n_heads} is not whole"
        )
    head_dim = d_model // n_heads
    if head_dim % 2:
        raise ConfigError(
            f"d_model / {where} must be even for the rotary embedding: "
            f"{d_model} / {n_heads} = {head_dim}"
        )
    return head_dim


def code_bits(s1_bits: int, s2_bits: int) -> tuple[int, int]:
    """Both halves as ints; together they must fit a non-negative int64 id."""
    first, second = whole("s1_bits", s1_bits), whole("s2_bits", s2_bits)
    if first + second > 62:
        raise ConfigError(
            f"s1_bits + s2_bits must be at most 62 to fit one int64 id, got {first} + {second}"
        )
    return first, second


def checkpointing_mode(value: str) -> bool:
    """True for "block", False for "off"; ConfigError for any other text."""
    if value not in CHECKPOINTING_MODES:
        raise ConfigError(f"checkpointing must be one of {CHECKPOINTING_MODES}, got {value!r}")
    return value == "block"

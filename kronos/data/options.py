"""How a file of bars is to be read, where it does not say so itself."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

from kronos.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadOptions:
    """What a caller says of its bars, and which repairs it asks for. None is asked for unsaid."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns by their names here (timestamps, symbol, open, ..., amount), each with its name in
    the file, or its number, from 1, where the file has no header."""
    symbol: str | None = None
    """Read the bars of this symbol only."""
    timezone: str | None = None
    """An IANA zone: zoned times are converted to it, others are taken to be in it."""
    sort: bool = False
    """Put each symbol's bars in order of time."""
    dedupe: Literal["first", "last"] | None = None
    """Of bars with one symbol and timestamp, keep the first or the last as the file has them."""
    fill: Literal["ffill", "drop"] | None = None
    """For cells without a number: that of the symbol's bar before, or leave out the bar."""
    repair: bool = False
    """Widen high and low to contain open and close."""

    @classmethod
    def named(cls, columns: Iterable[str], **others: Any) -> Self:
        """Options whose columns are given as texts, such as open=first.

        Raises:
            ConfigError: a text of another form, or a column that is given twice.
        """
        pairs: dict[str, str] = {}
        for text in columns:
            name, equals, there = (part.strip() for part in text.partition("="))
            if not (name and equals and there):
                raise ConfigError(
                    f"a column is given as OURS=THEIRS, such as open=first; got {text!r:.60}"
                )
            if name in pairs:
                raise ConfigError(f"column {name} is given twice: {pairs[name]} and {there}")
            pairs[name] = there
        return cls(columns=pairs, **others)

    def plain(self) -> dict[str, Any]:
        """As JSON takes it; equal for options that read alike."""
        return {**asdict(self), "columns": dict(sorted(self.columns.items()))}

"""Every error a user can meet. A message says the rule, the offending value and the way out.

KronosError
├── ConfigError       a setting breaks a rule (also ValueError)
│   └── SizeError     a text that is no size or card ("12 potatoes")
├── DataError         bars or timestamps that cannot be used (also ValueError)
├── WeightsError      weights or a config.json that are missing, foreign or incomplete
├── SnapshotError     a file that is no memory snapshot or allocation trace (also ValueError)
├── TraceError        a step that cannot be traced without a card (also RuntimeError)
└── MeasurementError  something could not be measured (also RuntimeError)
"""


class KronosError(Exception):
    """Root of all errors raised on purpose; its text is one line, fit for a user."""


class ConfigError(KronosError, ValueError):
    """A setting breaks a rule."""


class SizeError(ConfigError):
    """A text is neither a size such as "12GB" nor a card of the catalogue."""


class DataError(KronosError, ValueError):
    """Bars or timestamps cannot be used as they are."""


class WeightsError(KronosError):
    """Weights or their config.json are missing, damaged, foreign or incomplete."""


class SnapshotError(KronosError, ValueError):
    """A file is no memory snapshot or allocation trace that can be replayed."""


class TraceError(KronosError, RuntimeError):
    """A step cannot be traced without allocating; the text names the operator."""


class MeasurementError(KronosError, RuntimeError):
    """Memory or time could not be measured."""

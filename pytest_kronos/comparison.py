"""The fixture `golden`: metrics and forecasts against the golden files, or into them."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kronos.errors import ConfigError
from pytest_kronos.accuracy import (
    HIGHER_IS_BETTER,
    LOWER_IS_BETTER,
    RECORDED_ONLY,
    Metric,
    judge_forecast,
    judge_metrics,
)
from pytest_kronos.golden import SETTINGS, GoldenStore, Row, Value, describe_changes, metrics_of
from pytest_kronos.settings import Settings
from pytest_kronos.verdicts import Finding, Ledger, Record, Verdict, raise_failures

if TYPE_CHECKING:
    import pandas as pd


class Golden:
    """The fixture `golden`: compares metrics and forecasts with what is on file."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._settings = settings
        self._store = GoldenStore(settings.golden_dir)
        self._ledger = ledger

    def check(
        self,
        case: str,
        metrics: Mapping[str, float],
        *,
        lower_is_better: tuple[str, ...] = (),
        higher_is_better: tuple[str, ...] = (),
    ) -> None:
        """Judge metrics against the golden row of `case`; with --golden-update, write it.

        Raises:
            GateFailure: a metric dropped by more than --max-accuracy-drop, is no number, is
                missing on one side, or there is no golden.
            ConfigError: nothing says which way a metric is better, or it cannot be a number.
        """
        __tracebackhide__ = True
        if not metrics:
            raise ConfigError(f"no metrics to check {case!r} by; give at least one, as in mae=0.1")
        record = self._ledger.open(case)
        directions = _directions(metrics, lower_is_better, higher_is_better)
        self.judge(record, metrics, {}, directions)
        raise_failures(record)

    def check_forecast(self, case: str, frame: "pd.DataFrame") -> None:
        """Judge a forecast against the golden one of `case`; with --golden-update, write it.

        Raises:
            GateFailure: it moved by more than --max-accuracy-drop, or there is no golden.
        """
        __tracebackhide__ = True
        record = self._ledger.open(case)
        if self._settings.golden_update:
            self._update(record, None, frame)
        else:
            self._judge_forecast(record, frame)
        raise_failures(record)

    def row(self, case: str) -> Row | None:
        """The golden row of a case for this machine's device, or None."""
        from kronos.measure import device_profile

        return self._store.row(case, device_profile())

    def judge(
        self,
        record: Record,
        metrics: Mapping[str, float],
        columns: Mapping[str, Value],
        lower_is_better: frozenset[str] = LOWER_IS_BETTER,
        forecast: "pd.DataFrame | None" = None,
        more: Callable[[Row], list[Finding]] = lambda row: [],
    ) -> None:
        """Add the findings on `metrics` and `forecast`, and what `more` finds in the golden row.

        `columns` is what else the row says; the settings among them must be the golden's. With
        --golden-update, row and forecast are written instead: both, or neither.
        """
        from kronos.measure import device_profile

        numbers = _numbers(metrics)
        device = record.device = device_profile()
        record.mae = numbers.get("mae")
        if self._settings.golden_update:
            row = {"case": record.case, "device": device, **columns, **numbers}
            self._update(record, row, forecast)
            return
        self._judge_row(record, self.row(record.case), numbers, columns, lower_is_better, more)
        if forecast is not None:
            self._judge_forecast(record, forecast)

    def _judge_row(
        self,
        record: Record,
        row: Row | None,
        numbers: Mapping[str, float],
        columns: Mapping[str, Value],
        lower_is_better: frozenset[str],
        more: Callable[[Row], list[Finding]],
    ) -> None:
        if row is None:
            text = f"no golden in {self._store.folder}; write it with --golden-update"
            record.findings.append(Finding("golden", Verdict.NO_BASELINE, text))
            return
        if row["device"] != record.device:
            record.baseline = str(row["device"])
        if moved := changed_settings(row, columns):
            text = f"the golden is of another configuration ({moved}); --golden-update writes it"
            record.findings.append(Finding("golden", Verdict.NO_BASELINE, text))
            return
        goldens = metrics_of(row, numbers)
        limit = self._settings.max_accuracy_drop
        record.findings += judge_metrics(goldens, numbers, limit, lower_is_better)
        record.findings += more(row)
        golden = goldens.get("mae")
        if golden is not None and record.mae is not None:
            record.mae_change = Metric("mae", lower_is_better=True).drop(golden, record.mae)

    def _judge_forecast(self, record: Record, frame: "pd.DataFrame") -> None:
        golden = self._store.forecast(record.case)
        if golden is None:
            text = "no golden forecast; write it with --golden-update"
            record.findings.append(Finding("forecast", Verdict.NO_BASELINE, text))
            return
        record.findings.append(judge_forecast(golden, frame, self._settings.max_accuracy_drop))

    def _update(self, record: Record, row: Row | None, forecast: "pd.DataFrame | None") -> None:
        limit = self._settings.max_accuracy_drop
        if row is not None:
            numbers = {name: value for name, value in row.items() if isinstance(value, float)}
            judged = judge_metrics(numbers, numbers, limit)
            record.findings += [one for one in judged if one.verdict.fails]
        if forecast is not None:
            record.findings.append(judge_forecast(forecast, forecast, limit))
        if record.failures():
            return  # what fails its own test is no golden
        if forecast is not None:
            self._store.write_forecast(record.case, forecast)
        if row is not None:
            old = self._store.write(record.case, row)
            text = f"golden written: {describe_changes(old, row)}"
            record.findings.append(Finding("golden", Verdict.PASS, text))


def changed_settings(row: Row, columns: Mapping[str, Value]) -> str:
    """The settings in which a golden row differs from this run, "batch_size 32 -> 8", or ""."""
    return ", ".join(
        f"{name} {row[name]} -> {columns[name]}"
        for name in SETTINGS
        if name in columns and row[name] != columns[name]
    )


def _numbers(metrics: Mapping[str, float]) -> dict[str, float]:
    numbers = {}
    for name, value in metrics.items():
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"metric {name} must be a number, got {value!r:.60}") from error
    return numbers


def _directions(
    metrics: Mapping[str, float], lower: tuple[str, ...], higher: tuple[str, ...]
) -> frozenset[str]:
    lower_names = LOWER_IS_BETTER | set(lower)
    known = lower_names | HIGHER_IS_BETTER | RECORDED_ONLY | set(higher)
    unknown = sorted(set(metrics) - known)
    if unknown:
        raise ConfigError(
            f"which way is better for {', '.join(unknown)}? "
            "say so with lower_is_better=(...) or higher_is_better=(...)"
        )
    return lower_names - set(higher)

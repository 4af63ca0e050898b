"""The fixtures `golden` and `regression`: all three promises against the golden files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
from pytest_kronos.budget import MemoryWatch, Usage, judge_growth
from pytest_kronos.golden import (
    SETTINGS,
    GoldenStore,
    Row,
    Value,
    describe_changes,
    metrics_of,
)
from pytest_kronos.settings import MAX_MEMORY_GROWTH, Settings
from pytest_kronos.throughput import StepsPerHour, Throughput, judge_slowdown
from pytest_kronos.verdicts import Finding, Ledger, Record, Verdict, raise_failures

if TYPE_CHECKING:
    import pandas as pd

    from kronos.config import RunConfig

Step = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class RegressionCase:
    """One configuration to hold to its goldens; of Kronos or of any other project."""

    name: str
    build: Callable[[str], Step]
    """Constructs model and optimizer on the device; returns a callable that makes one step."""
    evaluate: Callable[[Step], "tuple[Mapping[str, float], pd.DataFrame | None]"]
    """Scores what the steps have trained: metrics by name, and a forecast or None."""
    steps: int = 8
    """Steps taken under the meter before scoring."""
    settings: Mapping[str, Value] = field(default_factory=dict)
    """Descriptive columns of the golden file: window, horizon, batch_size, ..."""


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
        self.judge_forecast(record, frame)
        raise_failures(record)

    def judge(
        self,
        record: Record,
        metrics: Mapping[str, float],
        columns: Mapping[str, Value],
        lower_is_better: frozenset[str] = LOWER_IS_BETTER,
        more: Callable[[Row], list[Finding]] = lambda row: [],
    ) -> None:
        """Add the findings on `metrics`, and on whatever `more` looks at in the golden row.

        `columns` is what else the row says; the settings among them must be the golden's.
        """
        from kronos.measure import device_profile

        numbers = _numbers(metrics)
        device = record.device = device_profile()
        record.mae = numbers.get("mae")
        if self._settings.golden_update:
            self._update(record, device, {**columns, **numbers})
            return
        row = self._store.row(record.case, device)
        if row is None:
            text = f"no golden in {self._store.folder}; write it with --golden-update"
            record.findings.append(Finding("golden", Verdict.NO_BASELINE, text))
            return
        if row["device"] != device:
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

    def judge_forecast(self, record: Record, frame: "pd.DataFrame") -> None:
        """Add the finding on a forecast."""
        limit = self._settings.max_accuracy_drop
        golden = frame if self._settings.golden_update else self._store.forecast(record.case)
        if golden is None:
            text = "no golden forecast; write it with --golden-update"
            record.findings.append(Finding("forecast", Verdict.NO_BASELINE, text))
            return
        record.findings.append(judge_forecast(golden, frame, limit))
        if self._settings.golden_update and not record.failures():
            self._store.write_forecast(record.case, frame)

    def _update(self, record: Record, device: str, values: Row) -> None:
        numbers = {name: value for name, value in values.items() if isinstance(value, float)}
        limit = self._settings.max_accuracy_drop
        judged = judge_metrics(numbers, numbers, limit)
        record.findings += [one for one in judged if one.verdict.fails]
        if record.failures():
            return  # what fails its own test is no golden
        row: dict[str, Value] = {"case": record.case, "device": device, **values}
        text = f"golden written: {describe_changes(self._store.write(record.case, row), row)}"
        record.findings.append(Finding("golden", Verdict.PASS, text))


class Regression:
    """The fixture `regression`: one configuration, all three promises."""

    def __init__(
        self, settings: Settings, limit: int | None, steps_per_hour: StepsPerHour, ledger: Ledger
    ) -> None:
        self._settings = settings
        self._limit = limit
        self._steps_per_hour = steps_per_hour
        self._ledger = ledger
        self._golden = Golden(settings, ledger)

    def check(self, config: "RunConfig | RegressionCase") -> None:
        """Train, meter, time and score one configuration; judge it against its goldens.

        Raises:
            GateFailure: names every promise that was not kept.
        """
        __tracebackhide__ = True
        case = config if isinstance(config, RegressionCase) else kronos_case(config)
        record = self._ledger.open(case.name)
        with MemoryWatch(self._limit, self._settings.card) as watch:
            step = case.build(watch.device)
            for _ in range(case.steps):
                step()
        watch.note(record)
        if watch.overrun is None:
            metrics, forecast = case.evaluate(step)
            throughput = self._time(case, step)
            record.steps_per_hour = throughput.steps_per_hour
            self._judge(record, case, watch.usage_for_any_card(), metrics, throughput)
            if forecast is not None:
                self._golden.judge_forecast(record, forecast)
        raise_failures(record)

    def _time(self, case: RegressionCase, step: Step) -> Throughput:
        from kronos.measure import device_profile

        row = GoldenStore(self._settings.golden_dir).row(case.name, device_profile())
        golden = None if row is None else _number(row["relative_step_cost"])
        limit = self._settings.max_slowdown

        def decided(throughput: Throughput) -> bool:
            if golden is None:
                return True
            return judge_slowdown(throughput, golden, limit).verdict is not Verdict.INCONCLUSIVE

        precision = str(case.settings.get("precision", "float32"))
        return self._steps_per_hour.measure(step, precision=precision, decided=decided)

    def _judge(
        self,
        record: Record,
        case: RegressionCase,
        usage: Usage,
        metrics: Mapping[str, float],
        throughput: Throughput,
    ) -> None:
        def judge_memory_and_time(row: Row) -> list[Finding]:
            cost = _number(row["relative_step_cost"]) or 0.0
            record.slowdown = throughput.relative_step_cost / cost if cost > 0 else None
            return [
                judge_growth(usage, _number(row["peak_allocated_bytes"]), MAX_MEMORY_GROWTH),
                judge_slowdown(throughput, cost, self._settings.max_slowdown),
            ]

        columns = {**case.settings, **_measured_columns(usage, throughput)}
        self._golden.judge(record, metrics, columns, more=judge_memory_and_time)


def kronos_case(config: "RunConfig") -> RegressionCase:
    """A Kronos configuration as a case: fine-tune for its steps, score on held-out bars."""
    from kronos.experiments import Experiment, golden_columns

    def evaluate(step: Step) -> "tuple[Mapping[str, float], pd.DataFrame]":
        assert isinstance(step, Experiment)
        return step.score()

    return RegressionCase(
        name=config.name,
        build=lambda device: Experiment(config, device),
        evaluate=evaluate,
        steps=config.training.steps,
        settings=golden_columns(config),
    )


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


def _measured_columns(usage: Usage, throughput: Throughput) -> dict[str, Value]:
    import torch

    return {
        "torch": torch.__version__,
        "peak_allocated_bytes": usage.peak_allocated,
        "peak_reserved_bytes": usage.peak_reserved,
        "footprint_bytes": usage.footprint,
        "memory_source": usage.source,
        "steps_per_hour": throughput.steps_per_hour,
        "relative_step_cost": throughput.relative_step_cost,
    }


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


def _number(value: Value) -> float | None:
    return float(value) if isinstance(value, int | float) else None

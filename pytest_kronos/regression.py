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
from pytest_kronos.budget import MemoryWatch, Usage, judge_growth, note_usage
from pytest_kronos.golden import GoldenStore, Row, Value, describe_changes, metrics_of
from pytest_kronos.settings import MAX_MEMORY_GROWTH, Settings
from pytest_kronos.throughput import StepsPerHour, Throughput, judge_slowdown
from pytest_kronos.verdicts import Finding, Record, Verdict, raise_failures

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

    def __init__(self, settings: Settings, record: Record) -> None:
        self._settings = settings
        self._store = GoldenStore(settings.golden_dir)
        self._record = record

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
            ConfigError: nothing says which way a metric is better.
        """
        __tracebackhide__ = True
        self._record.case = case
        self.judge(case, metrics, {}, _directions(metrics, lower_is_better, higher_is_better))
        raise_failures(self._record)

    def check_forecast(self, case: str, frame: "pd.DataFrame") -> None:
        """Judge a forecast against the golden one of `case`; with --golden-update, write it.

        Raises:
            GateFailure: it moved by more than --max-accuracy-drop, or there is no golden.
        """
        __tracebackhide__ = True
        self._record.case = case
        self.judge_forecast(case, frame)
        raise_failures(self._record)

    def judge(
        self,
        case: str,
        metrics: Mapping[str, float],
        columns: Mapping[str, Value],
        lower_is_better: frozenset[str] = LOWER_IS_BETTER,
        more: Callable[[Row], list[Finding]] = lambda row: [],
    ) -> None:
        """Add the findings on `metrics`, and on whatever `more` looks at in the golden row."""
        from kronos.measure import device_profile

        device = self._record.device = device_profile()
        if self._settings.golden_update:
            self._update(case, device, {**columns, **metrics})
            return
        row = self._store.row(case, device)
        if row is None:
            text = f"no golden of {case} in {self._store.folder}; write it with --golden-update"
            self._record.findings.append(Finding("golden", Verdict.NO_BASELINE, text))
            return
        limit = self._settings.max_accuracy_drop
        goldens = metrics_of(row, metrics)
        self._record.findings += judge_metrics(goldens, metrics, limit, lower_is_better)
        self._record.findings += more(row)
        self._note_accuracy(goldens, metrics)
        if row["device"] != device:
            self._record.baseline = str(row["device"])

    def judge_forecast(self, case: str, frame: "pd.DataFrame") -> None:
        """Add the finding on a forecast."""
        golden = self._store.forecast(case)
        record = self._record
        if self._settings.golden_update:
            finding = judge_forecast(frame, frame, self._settings.max_accuracy_drop)
            if not finding.verdict.fails:
                self._store.write_forecast(case, frame)
            record.findings.append(finding)
        elif golden is None:
            text = f"no golden forecast of {case}; write it with --golden-update"
            record.findings.append(Finding("forecast", Verdict.NO_BASELINE, text))
        else:
            limit = self._settings.max_accuracy_drop
            record.findings.append(judge_forecast(golden, frame, limit))

    def _note_accuracy(
        self, goldens: Mapping[str, float | None], metrics: Mapping[str, float]
    ) -> None:
        golden, current = goldens.get("mae"), metrics.get("mae")
        self._record.mae = current
        if golden is not None and current is not None:
            self._record.mae_change = Metric("mae", lower_is_better=True).drop(golden, current)

    def _update(self, case: str, device: str, values: Row) -> None:
        numbers = {name: value for name, value in values.items() if isinstance(value, float)}
        limit = self._settings.max_accuracy_drop
        broken = [one for one in judge_metrics(numbers, numbers, limit) if one.verdict.fails]
        if broken:
            self._record.findings += broken
            return
        row: dict[str, Value] = {"case": case, "device": device, **values}
        old = self._store.write(case, row)
        text = f"golden written: {describe_changes(old, row)}"
        self._record.findings.append(Finding("golden", Verdict.PASS, text))


class Regression:
    """The fixture `regression`: one configuration, all three promises."""

    def __init__(
        self, settings: Settings, limit: int | None, steps_per_hour: StepsPerHour, record: Record
    ) -> None:
        self._settings = settings
        self._limit = limit
        self._steps_per_hour = steps_per_hour
        self._record = record
        self._golden = Golden(settings, record)

    def check(self, config: "RunConfig | RegressionCase") -> None:
        """Train, meter, time and score one configuration; judge it against its goldens.

        Raises:
            GateFailure: names every promise that was not kept.
        """
        __tracebackhide__ = True
        case = config if isinstance(config, RegressionCase) else kronos_case(config)
        self._record.case = case.name
        watch = MemoryWatch(self._limit, self._settings.card)
        watch.start()
        try:
            step = case.build(watch.device)
            for _ in range(case.steps):
                step()
        finally:
            watch.abandon()
        usage = watch.stop()
        metrics, forecast = case.evaluate(step)
        throughput = self._time(case, step)
        self._judge(case, usage, metrics, throughput)
        if forecast is not None:
            self._golden.judge_forecast(case.name, forecast)
        raise_failures(self._record)

    def _time(self, case: RegressionCase, step: Step) -> Throughput:
        from kronos.measure import device_profile

        row = GoldenStore(self._settings.golden_dir).row(case.name, device_profile())
        golden = None if row is None else row["relative_step_cost"]
        if not isinstance(golden, int | float) or not golden > 0:
            return self._steps_per_hour(step)
        bound = golden * self._settings.max_slowdown

        def decided(throughput: Throughput) -> bool:
            low, high = throughput.interval()
            return high <= bound or low > bound

        return self._steps_per_hour(step, decided=decided)

    def _judge(
        self,
        case: RegressionCase,
        usage: Usage,
        metrics: Mapping[str, float],
        throughput: Throughput,
    ) -> None:
        record = self._record
        note_usage(record, usage, self._limit)
        record.steps_per_hour = throughput.steps_per_hour

        def judge_memory_and_time(row: Row) -> list[Finding]:
            cost = _number(row["relative_step_cost"])
            record.slowdown = throughput.relative_step_cost / cost if cost else None
            return [
                judge_growth(usage, _number(row["peak_allocated_bytes"]), MAX_MEMORY_GROWTH),
                judge_slowdown(throughput, cost or 0.0, self._settings.max_slowdown),
            ]

        columns = {**case.settings, **_measured_columns(usage, throughput)}
        self._golden.judge(case.name, metrics, columns, more=judge_memory_and_time)


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

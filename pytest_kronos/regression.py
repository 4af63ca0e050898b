"""The fixture `regression`: one configuration, all three promises against the golden files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_kronos.budget import MemoryWatch, Promise, note_usage, traced_usage
from pytest_kronos.comparison import Golden
from pytest_kronos.golden import Row, Value
from pytest_kronos.settings import MAX_MEMORY_GROWTH, Settings
from pytest_kronos.throughput import StepsPerHour, Throughput, judge_slowdown
from pytest_kronos.usage import Usage, judge_growth
from pytest_kronos.verdicts import Finding, Ledger, Record, Verdict, raise_failures

if TYPE_CHECKING:
    import pandas as pd

    from kronos.config import RunConfig

Step = Callable[[], object]

MOST_TRACED_STEPS: Final = 4
"""What is held from step to step has grown three times by the last of them."""


@dataclass(frozen=True, kw_only=True)
class RegressionCase:
    """One configuration to hold to its goldens; of Kronos or of any other project."""

    name: str
    build: Callable[[str], Step]
    """Constructs model and optimizer on the device; returns a callable that makes one step."""
    evaluate: Callable[[Step], "tuple[Mapping[str, float], pd.DataFrame | None]"]
    """Scores what the steps have trained: metrics by name, and a forecast or None."""
    steps: int = 8
    """Steps taken before scoring; on a card, under the meter."""
    settings: Mapping[str, Value] = field(default_factory=dict)
    """Descriptive columns of the golden file: window, horizon, batch_size, ..."""


class Regression:
    """The fixture `regression`: one configuration, all three promises."""

    def __init__(
        self, settings: Settings, promise: Promise, steps_per_hour: StepsPerHour, ledger: Ledger
    ) -> None:
        self._settings = settings
        self._promise = promise
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
        ran = self._run(case, record)
        if ran is not None:
            step, usage = ran
            metrics, forecast = case.evaluate(step)
            throughput = self._time(case, step)
            record.steps_per_hour = throughput.steps_per_hour
            self._judge(record, case, usage, throughput, metrics, forecast)
        raise_failures(record)

    def _run(self, case: RegressionCase, record: Record) -> tuple[Step, Usage] | None:
        """Make the case's steps and note their memory; None where that ran out.

        The usage is for no card in particular: goldens must not depend on the one planned for.
        """
        from kronos.measure import default_device

        reason = None
        if default_device() == "cpu":
            traced = self._trace(case, record)
            if isinstance(traced, Usage):
                return _stepped(case, "cpu"), traced
            reason = traced
        with MemoryWatch(self._promise, reason) as watch:
            step = _stepped(case, watch.device)
        watch.note(record)
        return None if watch.overrun is not None else (step, watch.usage_for_any_card())

    def _trace(self, case: RegressionCase, record: Record) -> Usage | str:
        build, card = case.build, self._promise.card
        steps = min(case.steps, MOST_TRACED_STEPS)
        for_any = traced_usage(build, steps, None)
        planned = traced_usage(build, steps, card) if card else for_any
        if isinstance(planned, Usage):
            note_usage(record, planned, self._promise)
        return for_any

    def _time(self, case: RegressionCase, step: Step) -> Throughput:
        row = self._golden.row(case.name)
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
        throughput: Throughput,
        metrics: Mapping[str, float],
        forecast: "pd.DataFrame | None",
    ) -> None:
        def judge_memory_and_time(row: Row) -> list[Finding]:
            cost = _number(row["relative_step_cost"]) or 0.0
            record.slowdown = throughput.relative_step_cost / cost if cost > 0 else None
            return [
                judge_growth(usage, _number(row["peak_allocated_bytes"]), MAX_MEMORY_GROWTH),
                judge_slowdown(throughput, cost, self._settings.max_slowdown),
            ]

        columns = {**case.settings, **_measured_columns(usage, throughput)}
        self._golden.judge(record, metrics, columns, forecast=forecast, more=judge_memory_and_time)


def _stepped(case: RegressionCase, device: str) -> Step:
    step = case.build(device)
    for _ in range(case.steps):
        step()
    return step


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


def _number(value: Value) -> float | None:
    return float(value) if isinstance(value, int | float) else None

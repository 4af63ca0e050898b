"""Steps per hour: timing a step in turn with a reference workload, and judging the ratio."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pytest_kronos.verdicts import Finding, Ledger, Verdict

FIRST_ROUNDS: Final = 12
MORE_ROUNDS: Final = 12
MOST_ROUNDS: Final = 60
MOST_SECONDS: Final = 30.0
CONFIDENCE: Final = 0.99
_RESAMPLES: Final = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Throughput:
    """How fast a step is, here and relative to the reference workload."""

    device: str
    """The profile of the device, as golden rows are keyed."""
    step_seconds: tuple[float, ...]
    relative_costs: tuple[float, ...]
    """Step time over reference time, pair by pair."""
    warmup_rounds: int
    """Rounds before, which do not count."""

    @property
    def steps_per_hour(self) -> float:
        """3600 over the median step time in seconds; depends on the machine and its load."""
        return 3600 / statistics.median(self.step_seconds)

    @property
    def relative_step_cost(self) -> float:
        """Median step time in reference workloads; comparable across machines and loads."""
        return statistics.median(self.relative_costs)

    def interval(self) -> tuple[float, float]:
        """Bootstrap interval of the relative step cost, at the confidence of `CONFIDENCE`."""
        return bootstrap_interval(self.relative_costs)


def bootstrap_interval(costs: Sequence[float]) -> tuple[float, float]:
    """Percentile bootstrap interval of the median (Efron 1979), with a fixed seed."""
    generator = np.random.default_rng(0)
    values = np.asarray(costs, dtype=float)
    draws = generator.integers(0, len(values), size=(_RESAMPLES, len(values)))
    medians = np.median(values[draws], axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return float(low), float(high)


def judge_slowdown(throughput: Throughput, golden: float, limit: float) -> Finding:
    """Judge the relative step cost against the golden's.

    A regression only where the whole interval is over `limit` times the golden; a machine
    too busy to tell is inconclusive.
    """
    if not golden > 0:
        return Finding(
            "steps per hour", Verdict.REGRESSION, f"the golden's relative step cost is {golden}"
        )
    low, high = (bound / golden for bound in throughput.interval())
    slowdown = throughput.relative_step_cost / golden
    text = (
        f"{slowdown:.2f} x the golden's time per step ({low:.2f} to {high:.2f}; "
        f"{throughput.steps_per_hour:,.0f} steps per hour)"
    )
    if low > limit:
        return Finding("steps per hour", Verdict.REGRESSION, f"{text}; the limit is {limit:g} x")
    if high > limit:
        return Finding("steps per hour", Verdict.INCONCLUSIVE, f"{text} straddles {limit:g} x")
    if high < 1 / limit:
        return Finding("steps per hour", Verdict.IMPROVEMENT, text)
    return Finding("steps per hour", Verdict.PASS, text)


class StepsPerHour:
    """The fixture `steps_per_hour`: call it with a step to time it.

    Example:
        >>> def test_speed(steps_per_hour):
        ...     assert steps_per_hour(my_step).steps_per_hour > 1000
    """

    def __init__(
        self, benchmark: Callable[[], Any] = lambda: None, ledger: Ledger | None = None
    ) -> None:
        self._benchmark = benchmark
        """Gives pytest-benchmark's fixture when a step is timed, or None."""
        self._ledger = ledger

    def __call__(
        self,
        step: Callable[[], object],
        *,
        device: str | None = None,
        precision: str = "float32",
        warmup: int = 2,
        label: str = "",
    ) -> Throughput:
        """Time `step` in turn with the reference workload, and note it in the table.

        `device` and `precision` ("float32" or "bf16") are those of the step, for the reference
        to run alike; without a device it is the card, if any.
        """
        throughput = self.measure(step, device=device, precision=precision, warmup=warmup)
        if self._ledger is not None:
            low, high = throughput.interval()
            text = (
                f"{throughput.steps_per_hour:,.0f}; one step costs "
                f"{throughput.relative_step_cost:.3g} reference workloads ({low:.3g} to {high:.3g})"
            )
            record = self._ledger.open(label)
            record.device = throughput.device
            record.steps_per_hour = throughput.steps_per_hour
            record.findings.append(Finding("steps per hour", Verdict.PASS, text))
        return throughput

    def measure(
        self,
        step: Callable[[], object],
        *,
        device: str | None = None,
        precision: str = "float32",
        warmup: int = 2,
        decided: Callable[[Throughput], bool] = lambda throughput: True,
    ) -> Throughput:
        """Time `step` in turn with the reference workload until `decided`.

        It gives up deciding after `MOST_ROUNDS` rounds or `MOST_SECONDS` seconds of steps. The
        first rounds are pytest-benchmark's, so that its storage, its comparison and its
        histograms work; where it is switched off (as under xdist) the same turns are taken
        without it.
        """
        from kronos.measure import (
            PairedStopwatch,
            ReferenceWorkload,
            default_device,
            device_profile,
        )

        device = device or default_device()
        pairs = PairedStopwatch(step, ReferenceWorkload(device, precision), device=device)
        pairs.warm_up(warmup)
        self._first_rounds(pairs)
        while True:
            throughput = Throughput(
                device=device_profile(device),
                step_seconds=tuple(pairs.step_seconds),
                relative_costs=tuple(pairs.relative_costs()),
                warmup_rounds=warmup,
            )
            spent = sum(pairs.step_seconds)
            if (
                decided(throughput)
                or len(pairs.step_seconds) >= MOST_ROUNDS
                or spent > MOST_SECONDS
            ):
                return throughput
            _take_turns(pairs, MORE_ROUNDS)

    def _first_rounds(self, pairs: Any) -> None:
        benchmark, self._benchmark = self._benchmark(), lambda: None  # it serves one step a test
        if benchmark is not None:
            benchmark.pedantic(pairs.time_step, setup=pairs.time_reference, rounds=FIRST_ROUNDS)
            benchmark.extra_info["relative_step_cost"] = statistics.median(pairs.relative_costs())
        _take_turns(pairs, FIRST_ROUNDS - len(pairs.step_seconds))


def _take_turns(pairs: Any, rounds: int) -> None:
    for _ in range(rounds):
        pairs.time_reference()
        pairs.time_step()

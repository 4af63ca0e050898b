"""THE stopwatch: wall time of calls on a device, and of two calls taken in turn."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from kronos.errors import MeasurementError
from kronos.measure.cuda import card_of

Step = Callable[[], object]
Result = TypeVar("Result")

_MOST_REPEATS = 20


class Stopwatch:
    """Times calls on one device, whose queued work is finished before and after each."""

    def __init__(self, device: str = "cpu") -> None:
        card = card_of(device)
        self._synchronize: Callable[[], None] = card.synchronize if card else lambda: None

    def timed(self, call: Callable[[], Result]) -> tuple[Result, float]:
        """What `call()` returned, and the seconds of wall time it took."""
        self._synchronize()
        start = time.perf_counter()
        result = call()
        self._synchronize()
        return result, time.perf_counter() - start

    def time(self, call: Step) -> float:
        """Seconds of wall time that `call()` took."""
        return self.timed(call)[1]


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of each timed step, and of the warm-up steps before, which do not count."""

    seconds: tuple[float, ...]
    warmup: tuple[float, ...]

    @property
    def median(self) -> float:
        """Seconds of the middle step."""
        return statistics.median(self.seconds)

    @property
    def steps_per_hour(self) -> float:
        """3600 / median."""
        return 3600 / self.median


def time_steps(step: Step, *, device: str = "cpu", warmup: int = 2, rounds: int = 10) -> StepTimes:
    """Time `rounds` calls of `step` after `warmup` calls that are timed apart.

    Raises:
        MeasurementError: no rounds were asked for.
    """
    if rounds < 1:
        raise MeasurementError(f"timing needs at least 1 round, got {rounds}")
    stopwatch = Stopwatch(device)
    before = tuple(stopwatch.time(step) for _ in range(warmup))
    return StepTimes(tuple(stopwatch.time(step) for _ in range(rounds)), before)


class PairedStopwatch:
    """Times a step and a reference in turn (A B A B ...), so that a busy machine slows both.

    A turn of the reference repeats it until it lasts about half as long as a step: a neighbour
    that comes and goes then weighs on both alike.
    """

    def __init__(self, step: Step, reference: Step, *, device: str = "cpu") -> None:
        self._stopwatch = Stopwatch(device)
        self._step = step
        self._reference = reference
        self.repeats = 1
        """Runs of the reference in one of its turns; `warm_up` sets it."""
        self.step_seconds: list[float] = []
        self.reference_seconds: list[float] = []
        """Seconds of one run of the reference, the mean of each turn."""

    def warm_up(self, rounds: int) -> None:
        """Run both `rounds` times without recording."""
        for _ in range(rounds):
            reference = self._stopwatch.time(self._reference)
            step = self._stopwatch.time(self._step)
            self.repeats = round(min(max(step / max(reference, 1e-9) / 2, 1), _MOST_REPEATS))

    def time_reference(self) -> None:
        """One turn of the reference."""
        seconds = sum(self._stopwatch.time(self._reference) for _ in range(self.repeats))
        self.reference_seconds.append(seconds / self.repeats)

    def time_step(self) -> None:
        """One turn of the step."""
        self.step_seconds.append(self._stopwatch.time(self._step))

    def relative_costs(self) -> list[float]:
        """Step time over the time of the reference just before it, for each full pair."""
        pairs = zip(self.step_seconds, self.reference_seconds, strict=False)
        return [step / reference for step, reference in pairs]

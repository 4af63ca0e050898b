"""Memory against a budget: measured on a card, estimated elsewhere. No pytest; torch when used.

Where there is no card a `build(device) -> step` is traced, which allocates nothing. What cannot be
traced (a step that is built already, or one that asks tensors for their values) runs on the CPU
under the meter, and the estimate is made of that.
"""

import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kronos.errors import ConfigError
from kronos.hardware import Card, format_size
from pytest_kronos.usage import Usage, judge_budget, usage_of, usage_of_estimate
from pytest_kronos.verdicts import Finding, Ledger, Record, Verdict, raise_failures

if TYPE_CHECKING:
    from kronos.capacity import Build, MemoryEstimate, Step


@dataclass(frozen=True, kw_only=True, slots=True)
class Promise:
    """What a test may take of a card."""

    limit: int | None = None
    """Bytes; the tighter one of marker and option, None without either."""
    card: Card | None = None
    """The card to plan for where none is present."""
    strict: bool = False
    """Whether a run that only fits by flushing the allocator's cache breaks it."""


def note_usage(record: Record, usage: Usage, promise: Promise) -> None:
    """Put what was found of memory into a record; figures only where there are some."""
    from kronos.measure import device_profile

    finding = judge_budget(usage, promise.limit, strict=promise.strict)
    record.findings.append(finding)
    record.device = device_profile()
    record.budget_bytes = promise.limit
    if finding.verdict is Verdict.NOT_MEASURED:
        return
    record.card = usage.card
    record.memory_source = usage.source
    record.footprint_bytes = usage.footprint
    record.peak_allocated_bytes = usage.peak_allocated
    record.peak_reserved_bytes = usage.peak_reserved
    record.breakdown = dict(usage.breakdown)


def note_overrun(record: Record, error: BaseException, limit: int | None) -> None:
    """Put an out-of-memory error, or a budget that the context alone exceeds, into a record."""
    from kronos.measure import default_device, device_profile

    record.device = device_profile()
    record.budget_bytes = limit
    source = "on the card" if default_device() == "cuda" else "on this machine"
    shown = format_size(limit) if limit is not None else "none"
    reason = " ".join(str(error).split())
    text = f"limit {shown}, out of memory {source}: {reason:.300}"
    record.findings.append(Finding("memory", Verdict.REGRESSION, text))


class MemoryWatch:
    """Context manager that meters memory; on a card under a real cap.

    An overrun of the cap is an out-of-memory error; it ends the block and is kept in `overrun`.
    Other errors pass.
    """

    def __init__(self, promise: Promise, remark: str | None = None) -> None:
        from kronos.measure import MemoryMeter, card_of, default_device

        self.device = default_device()
        self.overrun: BaseException | None = None
        self._promise = promise
        self._remark = remark
        self._live = card_of(self.device)
        self._meter = MemoryMeter(self.device, card=self._live)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._meter)
        if self._live and self._promise.limit is not None:
            self._stack.enter_context(self._live.capped(self._promise.limit))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        from kronos.measure import is_out_of_memory

        self._stack.close()
        if error is None or not is_out_of_memory(error):
            return False
        traceback.clear_frames(trace)  # they hold the tensors that did not fit
        self.overrun = error.with_traceback(None)
        return True

    def usage(self) -> Usage:
        """What was used, on the card or estimated for the one that is planned for."""
        return self._with_remark(usage_of(self._meter.reading, self._promise.card))

    def usage_for_any_card(self) -> Usage:
        """The same with nothing of the card that is planned for: goldens must not depend on it."""
        return self._with_remark(usage_of(self._meter.reading, None))

    def note(self, record: Record) -> None:
        """Put what was found into a record."""
        if self.overrun is not None:
            note_overrun(record, self.overrun, self._promise.limit)
        else:
            note_usage(record, self.usage(), self._promise)

    def _with_remark(self, usage: Usage) -> Usage:
        return replace(usage, remark=usage.remark or self._remark)


def traced_usage(build: "Build", steps: int, card: Card | None) -> Usage | str:
    """The estimate of a step that is traced, or why it cannot be: then it has to be run.

    Any error counts: a mistake of the step's own shows again, and in full, when it is run.
    """
    from kronos.capacity import estimate_memory

    try:
        estimate = estimate_memory(build, gpu=card, warmup=1, steps=max(steps - 1, 0))
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        return f"metered on the CPU, since it cannot be traced ({reason:.160})"
    return usage_of_estimate(estimate, card)


class GpuBudget:
    """The fixture `gpu_budget`: promises about the memory of a card.

    Example:
        >>> def test_fits(gpu_budget):
        ...     gpu_budget.check(build)      # build(device) -> step
    """

    def __init__(self, promise: Promise, ledger: Ledger) -> None:
        self.limit = promise.limit
        """Bytes a test may take; the tighter one of marker and option, None without either. A
        test may set another."""
        self._card = promise.card
        self._strict = promise.strict
        self._ledger = ledger

    @property
    def _promise(self) -> Promise:
        return Promise(limit=self.limit, card=self._card, strict=self._strict)

    @contextmanager
    def measure(self, label: str = "") -> Iterator[None]:
        """Meter what runs inside and judge it; `label` names its row in the table.

        Raises:
            GateFailure: it does not fit the limit.
        """
        __tracebackhide__ = True
        with self._metered(label, remark=None):
            yield

    def check(self, step: "Step | Build", *, steps: int = 3, label: str = "") -> None:
        """Judge what `steps` steps take, construction included.

        `step` is a `build(device) -> step`, so that the same test builds on a card where there
        is one and is traced elsewhere, or a step of no arguments that is already built.

        Raises:
            GateFailure: it does not fit the limit.
            ConfigError: no steps, or something that is neither a step nor a build.
        """
        __tracebackhide__ = True
        from kronos.capacity import as_build, is_build
        from kronos.measure import default_device

        if steps < 1:
            raise ConfigError(f"a check needs at least 1 step, got {steps}")
        build, reason = as_build(step), None
        if is_build(step) and default_device() == "cpu":
            traced = traced_usage(build, steps, self._card)
            if isinstance(traced, Usage):
                record = self._ledger.open(label)
                note_usage(record, traced, self._promise)
                raise_failures(record)
                return
            reason = traced
        with self._metered(label, remark=reason):
            run = build(default_device())
            for _ in range(steps):
                run()

    def estimate(self, step: "Step | Build", *, steps: int = 3) -> "MemoryEstimate":
        """What the step would take on the card that is planned for; judges nothing.

        Raises:
            TraceError: a build that cannot be traced; the text names the operator.
        """
        from kronos.capacity import as_build, estimate_from_cpu, estimate_memory, is_build
        from kronos.measure import MemoryMeter

        card = self._card
        if is_build(step):
            return estimate_memory(as_build(step), gpu=card, warmup=1, steps=steps - 1)
        with MemoryMeter("cpu") as meter:
            run = as_build(step)("cpu")
            for _ in range(steps):
                run()
        return estimate_from_cpu(meter.reading.events, card)

    @contextmanager
    def _metered(self, label: str, remark: str | None) -> Iterator[None]:
        __tracebackhide__ = True
        with MemoryWatch(self._promise, remark) as watch:
            yield
        record = self._ledger.open(label)
        watch.note(record)
        raise_failures(record)


def tighter(*limits: int | None) -> int | None:
    """The smallest of the limits that are set."""
    return min((limit for limit in limits if limit is not None), default=None)

"""Memory against a budget: measured on a card, estimated elsewhere. No pytest; torch when used."""

import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from kronos.errors import ConfigError
from kronos.hardware import Card, format_size
from pytest_kronos.verdicts import Finding, Ledger, Record, Verdict, raise_failures

if TYPE_CHECKING:
    from kronos.capacity import Build, MemoryEstimate, Step
    from kronos.measure import MemoryReading

_SHOWN_PARTS: Final = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Peaks of one run, in bytes, with their source."""

    source: str
    """"measured" or "estimated"."""
    card: str
    """The card that was measured, or that the estimate is for."""
    peak_allocated: int
    peak_reserved: int | None
    context: int | None
    breakdown: Mapping[str, int]
    """What fills the reserved peak, where that is known."""
    where: str
    """Phase and operator of the peak, where that is known."""
    remark: str | None = None
    """What makes the figures less sure than they look."""

    @property
    def footprint(self) -> int | None:
        """Context plus reserved, or None where either could not be read."""
        if self.context is None or self.peak_reserved is None:
            return None
        return self.context + self.peak_reserved

    def describe_peak(self) -> str:
        """What fills the card at the peak, largest first."""
        parts = dict(self.breakdown)
        if self.context is not None:
            parts["CUDA context"] = self.context
        largest = sorted(parts.items(), key=lambda part: -part[1])[:_SHOWN_PARTS]
        listed = ", ".join(f"{name} {format_size(size)}" for name, size in largest)
        return f"at the peak{self.where}: {listed}"


def usage_of(reading: "MemoryReading", card: Card | None) -> Usage:
    """A card's reading as it is; a CPU's as the estimate for `card`."""
    if reading.device != "cpu":
        return Usage(
            source="measured",
            card=reading.device,
            peak_allocated=reading.peak_allocated,
            peak_reserved=reading.peak_reserved,
            context=reading.context,
            breakdown={"reserved by the allocator": reading.peak_reserved or 0},
            where="",
            remark=reading.remark,
        )
    from kronos.capacity import estimate_from_cpu

    return usage_of_estimate(estimate_from_cpu(reading, card), card)


def usage_of_estimate(estimate: "MemoryEstimate", card: Card | None) -> Usage:
    """An estimate in the same words as a measurement."""
    return Usage(
        source="estimated",
        card=card.name if card else "a CUDA card",
        peak_allocated=estimate.peak_allocated,
        peak_reserved=estimate.peak_reserved,
        context=estimate.context,
        breakdown=estimate.breakdown,
        where=f" ({estimate.peak_phase}, {estimate.peak_op})",
    )


def judge_budget(usage: Usage, limit: int | None) -> Finding:
    """Judge a footprint against a limit in bytes; exactly the limit fits."""
    if usage.peak_allocated == 0 or not any(usage.breakdown.values()):
        return Finding(
            "memory", Verdict.NOT_MEASURED, "no tensor was seen, so nothing was measured"
        )
    if usage.footprint is None:
        return Finding(
            "memory", Verdict.NOT_MEASURED, f"the footprint on {usage.card} could not be read"
        )
    text = f"footprint {format_size(usage.footprint)} ({usage.source}, {usage.card})"
    if usage.remark:
        text = f"{text}; {usage.remark}"
    if limit is None:
        return Finding("memory", Verdict.PASS, f"{text}, no budget")
    if usage.footprint <= limit:
        return Finding("memory", Verdict.PASS, f"{text} fits the limit of {format_size(limit)}")
    excess = format_size(usage.footprint - limit)
    return Finding(
        "memory",
        Verdict.REGRESSION,
        f"limit {format_size(limit)}, {text}, excess {excess}; {usage.describe_peak()}",
    )


def judge_growth(usage: Usage, golden: float | None, limit: float) -> Finding:
    """Judge the allocated peak against the golden's."""
    if golden is None or not golden > 0:
        return Finding(
            "memory", Verdict.REGRESSION, f"the golden's peak_allocated_bytes is {golden}"
        )
    growth = usage.peak_allocated / golden - 1
    text = (
        f"allocated peak {format_size(usage.peak_allocated)} against {format_size(int(golden))}, "
        f"{growth:+.2%} ({usage.source})"
    )
    if growth > limit:
        return Finding(
            "memory",
            Verdict.REGRESSION,
            f"{text}; the limit is {limit:+.0%}; {usage.describe_peak()}",
        )
    return Finding("memory", Verdict.IMPROVEMENT if growth < -limit else Verdict.PASS, text)


def note_usage(record: Record, usage: Usage, limit: int | None) -> None:
    """Put what was found of memory into a record; figures only where there are some."""
    from kronos.measure import device_profile

    finding = judge_budget(usage, limit)
    record.findings.append(finding)
    record.device = device_profile()
    record.budget_bytes = limit
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

    def __init__(self, limit: int | None, card: Card | None) -> None:
        from kronos.measure import MemoryMeter, card_of, default_device

        self.device = default_device()
        self.overrun: BaseException | None = None
        self._card = card
        self._limit = limit
        self._live = card_of(self.device)
        self._meter = MemoryMeter(self.device, card=self._live)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._meter)
        if self._live and self._limit is not None:
            self._stack.enter_context(self._live.capped(self._limit))
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
        return usage_of(self._meter.reading, self._card)

    def usage_for_any_card(self) -> Usage:
        """The same with nothing of the card that is planned for: goldens must not depend on it."""
        return usage_of(self._meter.reading, None)

    def note(self, record: Record) -> None:
        """Put what was found into a record."""
        if self.overrun is not None:
            note_overrun(record, self.overrun, self._limit)
        else:
            note_usage(record, self.usage(), self._limit)


class GpuBudget:
    """The fixture `gpu_budget`: promises about the memory of a card.

    Example:
        >>> def test_fits(gpu_budget):
        ...     gpu_budget.check(build)      # build(device) -> step
    """

    def __init__(self, limit: int | None, card: Card | None, ledger: Ledger) -> None:
        self.limit = limit
        """Bytes a test may take; the tighter one of marker and option, None without either."""
        self._card = card
        self._ledger = ledger

    @contextmanager
    def measure(self, label: str = "") -> Iterator[None]:
        """Meter what runs inside and judge it; `label` names its row in the table.

        Raises:
            GateFailure: the footprint exceeds the limit.
        """
        __tracebackhide__ = True
        with MemoryWatch(self.limit, self._card) as watch:
            yield
        record = self._ledger.open(label)
        watch.note(record)
        raise_failures(record)

    def check(self, step: "Step | Build", *, steps: int = 3, label: str = "") -> None:
        """Run `steps` steps, construction included, and judge their footprint.

        `step` is a `build(device) -> step`, so that the same test builds on a card where there
        is one and on the CPU elsewhere, or a step of no arguments that is already built.

        Raises:
            GateFailure: the footprint exceeds the limit.
            ConfigError: no steps, or something that is neither a step nor a build.
        """
        __tracebackhide__ = True
        from kronos.capacity import as_build
        from kronos.measure import default_device

        if steps < 1:
            raise ConfigError(f"a check needs at least 1 step, got {steps}")
        with self.measure(label):
            run = as_build(step)(default_device())
            for _ in range(steps):
                run()

    def estimate(self, step: "Step | Build", *, steps: int = 3) -> "MemoryEstimate":
        """What the step would take on the card that is planned for; judges nothing."""
        from kronos.capacity import as_build, estimate_memory

        return estimate_memory(as_build(step), gpu=self._card, warmup=0, steps=steps)


def tighter(*limits: int | None) -> int | None:
    """The smallest of the limits that are set."""
    return min((limit for limit in limits if limit is not None), default=None)

"""What a run took of a card, measured or estimated, and the judgement of it. Torch when used."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kronos.hardware import Card, format_size
from pytest_kronos.verdicts import Finding, Verdict

if TYPE_CHECKING:
    from kronos.capacity import MemoryEstimate
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
    """Measured: under the cap. Estimated: where nothing limits it."""
    context: int | None
    breakdown: Mapping[str, int]
    """What fills the reserved peak, where that is known."""
    where: str
    """Phase and operator of the peak, where that is known."""
    flushes: int | None = None
    """Measured: how often the allocator gave its cache back to go on."""
    estimate: "MemoryEstimate | None" = field(default=None, repr=False, compare=False)
    """What can say how the run would do under a limit."""
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
            flushes=reading.flushes,
            remark=reading.remark,
        )
    from kronos.capacity import estimate_from_cpu

    return usage_of_estimate(estimate_from_cpu(reading.events, card), card)


def usage_of_estimate(
    estimate: "MemoryEstimate", card: Card | None, remark: str | None = None
) -> Usage:
    """An estimate in the same words as a measurement."""
    return Usage(
        source="estimated",
        card=card.name if card else "a CUDA card",
        peak_allocated=estimate.peak_allocated,
        peak_reserved=estimate.peak_reserved,
        context=estimate.context,
        breakdown=estimate.breakdown,
        where=f" ({estimate.peak_phase}, {estimate.peak_op})",
        estimate=estimate,
        remark=remark,
    )


def judge_budget(usage: Usage, limit: int | None, *, strict: bool = False) -> Finding:
    """Judge a run against a limit in bytes; exactly the limit fits.

    A run that fits only by flushing the allocator's cache passes, and is told; it fails where
    `strict`.
    """
    if usage.peak_allocated == 0 or not any(usage.breakdown.values()):
        nothing = "no tensor was seen on the device that build(device) is told to use"
        return Finding("memory", Verdict.NOT_MEASURED, f"{nothing}, so nothing was measured")
    if usage.footprint is None:
        return Finding(
            "memory", Verdict.NOT_MEASURED, f"the footprint on {usage.card} could not be read"
        )
    text = f"footprint {format_size(usage.footprint)} ({usage.source}, {usage.card})"
    if usage.remark:
        text = f"{text}; {usage.remark}"
    if limit is None:
        return Finding("memory", Verdict.PASS, f"{text}, no budget")
    if usage.footprint <= limit and not usage.flushes:
        return Finding("memory", Verdict.PASS, f"{text} fits the limit of {format_size(limit)}")
    if (flushes := _flushes(usage, limit)) is not None:
        fits = f"{text} fits the limit of {format_size(limit)} only by flushing the cache"
        fits = f"{fits}, {flushes}, which is slow"
        if not strict:
            return Finding("memory", Verdict.PASS, fits, notable=True)
        return Finding("memory", Verdict.REGRESSION, f"{fits}; --gpu-budget-strict forbids it")
    excess = format_size(usage.footprint - limit)
    return Finding(
        "memory",
        Verdict.REGRESSION,
        f"limit {format_size(limit)}, {text}, excess {excess}{_where_it_fails(usage, limit)}; "
        f"{usage.describe_peak()}",
    )


def _flushes(usage: Usage, limit: int) -> str | None:
    """How often the cache would have to be flushed under a limit; None where that is not enough."""
    if usage.flushes and usage.footprint is not None and usage.footprint <= limit:
        return f"{usage.flushes} times in all"
    if usage.estimate is None:
        return None
    outcome = usage.estimate.under(limit - usage.estimate.context)
    if outcome.missing:
        return None
    return f"{outcome.flushes_per_step:.2g} times a step"


def _where_it_fails(usage: Usage, limit: int) -> str:
    if usage.estimate is None:
        return ""
    if limit < usage.estimate.context:
        return "; the CUDA context alone takes more"
    outcome = usage.estimate.under(limit - usage.estimate.context)
    where = f"in {outcome.phase}, {outcome.operation}" if outcome.operation else "at once"
    return f"; out of memory {where}, {format_size(outcome.missing)} missing"


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

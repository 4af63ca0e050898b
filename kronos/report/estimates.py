"""Estimates of memory and judgements of snapshots as text, from plain values. Sizes are bytes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tabulate import tabulate

from kronos.hardware import format_size

Values = Mapping[str, Any]

_MODULES: Final = 5
_THUMB: Final = {"parameters": "weights", "inputs": "inputs", "optimizer states": "optimizer"}
"""The rule of thumb's figures, by the part of the estimate beside which they stand."""
_LEFT_OUT: Final = "left out"


def estimate_text(found: Sequence[Values]) -> str:
    """One estimate with all that is known of it, several as a table of a line each."""
    return _one_estimate(found[0]) if len(found) == 1 else _several(found)


def _one_estimate(values: Values) -> str:
    where = values["card"] or "a CUDA card"
    lines = [
        f"{values['run']} ({values['model']}) on {where}: estimated, no card was used",
        f"batch {values['batch_size']} x {values['accumulation']}, window {values['window']}, "
        f"{values['precision']}, checkpointing {values['checkpointing']}",
        "",
        _breakdown(values),
        "",
        f"allocated {format_size(values['allocated'])} at the peak, in {values['peak_phase']}, "
        f"{values['peak_op']}; reserved {format_size(values['reserved'])}",
        f"the smallest budget it still goes through with: {format_size(values['smallest_budget'])}",
        f"the rule of thumb (weights, one batch, 3 x weights for AdamW) says "
        f"{format_size(values['rule_of_thumb']['total'])}: it leaves out activations, temporaries, "
        "workspaces, fragmentation and the CUDA context",
        "the largest shares:",
        *_modules(values["modules"]),
    ]
    if values["outcome"] is not None:
        lines += ["", _verdict(values["outcome"], values["budget"], values["footprint"])]
    if "remedies" in values:
        lines += ["", "what would help, each change alone and traced anew:"]
        lines.append(_remedies(values["remedies"], values["budget"]))
    return "\n".join(lines)


def _breakdown(values: Values) -> str:
    parts, thumb = values["breakdown"], values["rule_of_thumb"]
    names = dict.fromkeys([*(name for name, size in parts.items() if size), *_THUMB])
    rows = [
        (
            name,
            format_size(parts.get(name, 0)),
            format_size(thumb[_THUMB[name]]) if name in _THUMB else _LEFT_OUT,
        )
        for name in names
    ]
    rows.append(("CUDA context", format_size(values["context"]), _LEFT_OUT))
    rows.append(("footprint", format_size(values["footprint"]), format_size(thumb["total"])))
    headers = ("at the peak", "estimated", "rule of thumb")
    return tabulate(rows, headers, disable_numparse=True, colalign=("left", "right", "right"))


def _modules(modules: Mapping[str, int]) -> Iterator[str]:
    named = [(name, size) for name, size in modules.items() if name]
    for name, size in named[:_MODULES]:
        yield f"  {format_size(size):>12}  {name}"


def _verdict(outcome: Values, budget: int, footprint: int) -> str:
    shown = format_size(budget)
    if outcome["capacity"] < 0:
        return f"does not fit {shown}: the CUDA context alone takes more"
    if outcome["missing"]:
        place = f"in {outcome['phase']}, {outcome['operation']}" if outcome["phase"] else "at once"
        return (
            f"does not fit {shown}: out of memory {place}, "
            f"{format_size(outcome['missing'])} missing"
        )
    if footprint > budget:
        return (
            f"fits {shown} only by flushing the allocator's cache, "
            f"{outcome['flushes_per_step']:.2g} times a step, which is slow"
        )
    return f"fits {shown}, {format_size(budget - footprint)} left"


def _remedies(remedies: Sequence[Values], budget: int) -> str:
    rows: list[tuple[str | None, ...]] = []
    for remedy in remedies:
        if "outcome" not in remedy:
            size = remedy["batch_size"]
            change = f"training.batch_size={size}" if size else "not even a batch of 1 fits"
            rows.append((remedy["name"], change, None, "fits" if size else "does not fit"))
            continue
        verdict = _verdict(remedy["outcome"], budget, remedy["footprint"]).partition(":")[0]
        rows.append((remedy["name"], remedy["change"], format_size(remedy["footprint"]), verdict))
    headers = ("change", "set", "footprint", "then it")
    return tabulate(rows, headers, disable_numparse=True, missingval="-")


def _several(found: Sequence[Values]) -> str:
    rows = [
        (
            one["batch_size"],
            format_size(one["allocated"]),
            format_size(one["reserved"]),
            format_size(one["footprint"]),
            format_size(one["rule_of_thumb"]["total"]),
            _verdict(one["outcome"], one["budget"], one["footprint"]) if one["outcome"] else None,
        )
        for one in found
    ]
    headers = ("batch", "allocated", "reserved", "footprint", "rule of thumb", "verdict")
    return tabulate(rows, headers, disable_numparse=True, missingval="-")


def snapshot_text(found: Sequence[Values]) -> str:
    """What a snapshot's devices reached, and whether that would have fit the budget."""
    return "\n".join(line for device in found for line in _device(device))


def _device(device: Values) -> Iterator[str]:
    for answer in device["answers"]:
        kind = "with expandable segments" if answer["expandable_segments"] else "as it ran"
        yield (
            f"device {device['device']}, {kind}: allocated "
            f"{format_size(answer['peak_allocated'])}, reserved "
            f"{format_size(answer['peak_reserved'])} at the peaks"
        )
        if device["budget"] is not None:
            yield f"  {_fit(answer, device['budget'], device['context'])}"
    for remark in device["remarks"]:
        yield f"  note: {remark}"


def _fit(answer: Values, budget: int, context: int) -> str:
    shown = f"{format_size(budget)} (CUDA context {format_size(context)})"
    oom = answer["oom"]
    if oom is not None:
        return (
            f"would not have fit {shown}: out of memory at event {oom['event']}, "
            f"{format_size(oom['missing'])} missing for a request of "
            f"{format_size(oom['requested'])}"
        )
    flushes = answer["flushes"]
    how = f"flushing the cache {flushes} times" if flushes else "without flushing the cache"
    if answer["fits"] is None:
        return f"what was recorded fits {shown}, {how}; the recording is not the whole run"
    return f"would have fit {shown}, {how}"

"""Memory over a step: live bytes by category after every event, ready to be drawn."""

from array import array
from dataclasses import dataclass

from kronos.capacity.trace import StepTrace
from kronos.measure.events import rounded_up


@dataclass(frozen=True, slots=True)
class Timeline:
    """Columns of equal length, one row for each event."""

    allocated: dict[str, "array[int]"]
    """Live bytes by category, the category with the largest peak first."""
    phases: "array[int]"
    """Index into `measure.events.PHASES`."""
    starts: tuple[int, ...]
    """The row at which each step begins."""


def timeline_of(trace: StepTrace) -> Timeline:
    """The rows of a traced step, from the construction on."""
    events = trace.events
    columns = {name: array("q") for name in dict.fromkeys(events.categories)}
    now = dict.fromkeys(columns, 0)
    for storage, delta in zip(events.storage, events.delta, strict=True):
        if delta:
            now[events.categories[storage]] += rounded_up(delta)
        for name, column in columns.items():
            column.append(now[name])
    ordered = sorted(columns, key=lambda name: -max(columns[name], default=0))
    return Timeline(
        allocated={name: columns[name] for name in ordered},
        phases=events.phase,
        starts=trace.starts,
    )

"""What happened to the live tensor storage, in order: columns, for millions of operators."""

from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

PARAMETERS: Final = "parameters"
GRADIENTS: Final = "gradients"
OPTIMIZER: Final = "optimizer states"
ACTIVATIONS: Final = "activations"
INPUTS: Final = "inputs"
TEMPORARIES: Final = "temporaries"

PHASES: Final = ("forward", "backward", "optimizer")

NO_STORAGE: Final = -1

ALLOCATION_GRANULE: Final = 512
"""The CUDA caching allocator rounds every request up to a multiple of 512 bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoragePeak:
    """The largest amount of live tensor storage and what it was made of.

    Taken where the sum of the granule-rounded sizes is largest, which is what a card sees.
    """

    bytes: int
    """Largest sum of exact storage sizes."""
    rounded_bytes: int
    """Largest sum of sizes rounded up to `ALLOCATION_GRANULE`."""
    categories: Mapping[str, int]
    """Rounded bytes by category at the peak; sums to `rounded_bytes`."""
    phase: str
    """"forward", "backward" or "optimizer": where in the step the peak was reached."""
    operation: str
    """The operator that reached the peak, such as "aten.mm"."""


@dataclass(slots=True)
class StorageEvents:
    """Every change of the live storage, and what is known of each storage.

    An event is a row of four columns: which storage, its bytes as it is born or their negative
    as it is given back, the index of the phase in `PHASES` and that of the operator in
    `operations`. Storages count from 0 in order of birth; the number `NO_STORAGE` stands for
    `torch.cuda.empty_cache()`.
    """

    storage: "array[int]" = field(default_factory=lambda: array("q"))
    delta: "array[int]" = field(default_factory=lambda: array("q"))
    phase: "array[int]" = field(default_factory=lambda: array("b"))
    operation: "array[int]" = field(default_factory=lambda: array("i"))
    operations: list[str] = field(default_factory=lambda: [""])
    categories: list[str] = field(default_factory=list)
    """Of each storage."""
    modules: list[str] = field(default_factory=list)
    """Of each storage: the module it belongs to or was born in, "" where that is not known."""

    def __len__(self) -> int:
        return len(self.storage)

    def born(self, category: str, module: str = "") -> int:
        """The number of a new storage; what it holds is an event of its own."""
        self.categories.append(category)
        self.modules.append(module)
        return len(self.categories) - 1

    def add(self, storage: int, delta: int, phase: int, operation: int) -> None:
        """One change of one storage."""
        self.storage.append(storage)
        self.delta.append(delta)
        self.phase.append(phase)
        self.operation.append(operation)

    def order_from(self, first: int) -> None:
        """Put the events from `first` on into the order of their storages' birth."""
        rows = sorted(
            zip(
                self.storage[first:],
                self.delta[first:],
                self.phase[first:],
                self.operation[first:],
                strict=True,
            )
        )
        for column in (self.storage, self.delta, self.phase, self.operation):
            del column[first:]
        for row in rows:
            self.add(*row)

    def where(self, event: int) -> tuple[str, str]:
        """Phase and operator of an event."""
        return PHASES[self.phase[event]], self.operations[self.operation[event]]

    def peak(self) -> StoragePeak:
        """The largest sum over all events."""
        rounded = exact = highest = highest_exact = 0
        at = -1
        for index, delta in enumerate(self.delta):
            exact += delta
            rounded += rounded_up(delta)
            highest_exact = max(highest_exact, exact)
            if rounded > highest:
                highest, at = rounded, index
        phase, operation = self.where(at) if at >= 0 else (PHASES[0], "")
        return StoragePeak(
            bytes=highest_exact,
            rounded_bytes=highest,
            categories=self._categories_at(at),
            phase=phase,
            operation=operation,
        )

    def alive_after(self, event: int) -> dict[int, int]:
        """Rounded bytes of every storage that is alive after an event, by its number."""
        sizes: dict[int, int] = {}
        for storage, delta in zip(self.storage[: event + 1], self.delta[: event + 1], strict=True):
            if delta > 0:
                sizes[storage] = rounded_up(delta)
            elif delta < 0:
                del sizes[storage]
        return sizes

    def _categories_at(self, event: int) -> dict[str, int]:
        categories: Counter[str] = Counter()
        for storage, size in self.alive_after(event).items():
            categories[self.categories[storage]] += size
        return dict(categories.most_common())


def rounded_up(delta: int) -> int:
    """Bytes, or their negative, as the allocator counts them."""
    size = -(-abs(delta) // ALLOCATION_GRANULE) * ALLOCATION_GRANULE
    return size if delta > 0 else -size

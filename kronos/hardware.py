"""Sizes ("12GB"), the catalogue of cards, and the cards of this machine (NVML).

Nothing here imports torch. What torch says of a card is in `kronos.measure.cuda`.
"""

import difflib
import re
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from types import ModuleType
from typing import Any, Final

from kronos.errors import SizeError

KIB: Final = 1024
MIB: Final = 1024**2
GIB: Final = 1024**3

_UNITS: Final = {None: 1, "K": KIB, "M": MIB, "G": GIB, "T": 1024**4}
_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)[ ]?(?:(?P<prefix>[KMGT])I?)?B")
_LARGEST = 2**60


def parse_size(text: str) -> int:
    """Bytes of a size such as "12GB", "12 GiB", "512mb" or "1.5GiB".

    GB and GiB both mean 1024^3, as card makers and nvidia-smi use them. A unit is needed.
    "Gb" is refused: with a small b it reads as gigabit.

    Raises:
        SizeError: the text is no positive size.
    """
    stripped = text.strip()
    unit = stripped.lstrip("0123456789. ")
    one_case = unit.isupper() or unit.islower() or (unit[1:] == "iB" and unit[0] in "KMGT")
    match = _SIZE.fullmatch(stripped.upper()) if stripped.isascii() and one_case else None
    if match is None:
        raise SizeError(
            f"a size is a number with a unit, such as 12GB, 12GiB or 512MB; got {text!r:.60}"
        )
    number = Decimal(match["number"])
    number = min(number, Decimal(2 * _LARGEST))  # the product may overflow even a Decimal
    size = int(number * _UNITS[match["prefix"]])
    if not 0 < size <= _LARGEST:
        raise SizeError(f"a size lies between 1B and 1048576TB; got {text!r:.60}")
    return size


def format_size(size: int) -> str:
    """A size for people, in the largest unit that leaves a number of at least 1."""
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(size) >= factor:
            return f"{size / factor:,.2f} {unit}"
    return f"{size} B"


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """One card of the catalogue."""

    slug: str
    """Name on the command line."""
    name: str
    """Name as NVML reports it."""
    memory: int
    """Bytes, as nvidia-smi reports the total (memory.total)."""
    architecture: str
    """NVIDIA's name of the generation; the cuBLAS workspace follows from it."""
    context: int
    """Bytes of CUDA context and libraries of one PyTorch process, outside the allocator."""

    @property
    def cublas_workspace(self) -> int:
        """Bytes of one cuBLAS workspace; PyTorch takes one per stream and thread."""
        return 33_554_432 if self.architecture == "hopper" else DEFAULT_CUBLAS_WORKSPACE


DEFAULT_CUBLAS_WORKSPACE: Final = 8_519_680
"""Bytes of one cuBLAS workspace on cards other than Hopper, or where the card is unknown."""
DEFAULT_CONTEXT: Final = 1429 * MIB
"""What 1,500 real training runs on one card had in common beside the allocator's segments.

Contexts of 0.3 to 1.5 GiB are known, by card, driver and torch build. The largest that was
measured is the safe assumption until a card's own figure is known.
"""


def _card(slug: str, name: str, mib: int, architecture: str) -> Card:
    return Card(
        slug=slug,
        name=name,
        memory=mib * MIB,
        architecture=architecture,
        context=DEFAULT_CONTEXT,
    )


CATALOGUE: Final[Mapping[str, Card]] = {
    card.slug: card
    for card in (
        _card("rtx-3060-12gb", "NVIDIA GeForce RTX 3060", 12288, "ampere"),
        _card("rtx-3080-12gb", "NVIDIA GeForce RTX 3080", 12288, "ampere"),
        _card("rtx-3090", "NVIDIA GeForce RTX 3090", 24576, "ampere"),
        _card("rtx-4090", "NVIDIA GeForce RTX 4090", 24564, "ada"),
        _card("t4", "Tesla T4", 15360, "turing"),
        _card("a10", "NVIDIA A10", 23028, "ampere"),
        _card("a100-40gb", "NVIDIA A100-SXM4-40GB", 40960, "ampere"),
        _card("a100-80gb", "NVIDIA A100-SXM4-80GB", 81920, "ampere"),
        _card("l4", "NVIDIA L4", 23034, "ada"),
        _card("rtx-a6000", "NVIDIA RTX A6000", 49140, "ampere"),
        _card("h100", "NVIDIA H100 80GB HBM3", 81559, "hopper"),
        _card("h200", "NVIDIA H200", 143771, "hopper"),
    )
}


def find_card(name: str) -> Card:
    """The catalogue's card of that slug, upper or lower case.

    Raises:
        SizeError: no such card; the message names the nearest.
    """
    slug = _slug(name)
    if slug in CATALOGUE:
        return CATALOGUE[slug]
    near = _nearest(slug, cutoff=0.5)
    hint = f"did you mean {near}? " if near else ""
    raise SizeError(f"no card {name!r:.60} in the catalogue; {hint}`kronos gpus` lists them all")


def _slug(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(" ", "-")


def _nearest(slug: str, cutoff: float) -> str | None:
    begun = [known for known in CATALOGUE if slug and known.startswith(slug)]
    return next(iter(begun or difflib.get_close_matches(slug, CATALOGUE, 1, cutoff)), None)


def parse_budget(text: str) -> tuple[int, Card | None]:
    """Bytes of a budget given as a size or as a card of the catalogue, and that card.

    Raises:
        SizeError: the text is neither.
    """
    slug = _slug(text)
    if slug in CATALOGUE:
        return CATALOGUE[slug].memory, CATALOGUE[slug]
    try:
        return parse_size(text), None
    except SizeError as error:
        if not any(letter.isalpha() for letter in slug) or slug[0] in "-0123456789":
            raise
        near = _nearest(slug, cutoff=0.6)
        hint = f"; did you mean {near}?" if near else "; or a card listed by `kronos gpus`"
        raise SizeError(f"{error}{hint}") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveGpu:
    """One card of this machine, as NVML reports it; None where NVML could not say."""

    index: int
    name: str
    uuid: str
    memory_total: int | None
    memory_used: int | None
    utilisation: int | None
    """Percent of the last sampling period in which a kernel ran."""


@contextmanager
def _nvml_session(nvml: Any) -> Any:
    nvml.nvmlInit()
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def _nvml_module() -> ModuleType:
    import pynvml  # from nvidia-ml-py; loads no driver until nvmlInit

    return pynvml


def live_gpus(nvml: Any = None) -> tuple[list[LiveGpu], str | None]:
    """The cards of this machine, and the reason where there are none to list."""
    nvml = nvml or _nvml_module()
    try:
        with _nvml_session(nvml):
            count = nvml.nvmlDeviceGetCount()
            gpus = [_describe_gpu(nvml, index) for index in range(count)]
    except nvml.NVMLError as error:
        return [], f"NVML: {error}"
    return gpus, None if gpus else "NVML: no device"


def _describe_gpu(nvml: Any, index: int) -> LiveGpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    utilisation = _ask(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    return LiveGpu(
        index=index,
        name=_text(nvml.nvmlDeviceGetName(handle)),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        memory_total=None if memory is None else int(memory.total),
        memory_used=None if memory is None else int(memory.used),
        utilisation=None if utilisation is None else int(utilisation.gpu),
    )


def _ask(nvml: Any, query: Any, handle: Any) -> Any:
    try:
        return query(handle)
    except nvml.NVMLError:  # not supported on this card, or not permitted on a MIG slice
        return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def process_footprint(uuid: str, pid: int, nvml: Any = None) -> tuple[int | None, str | None]:
    """Bytes that process `pid` holds on the card `uuid`, context included, or None and why.

    The card is asked for by UUID: `CUDA_VISIBLE_DEVICES` may have renumbered the indices.
    """
    nvml = nvml or _nvml_module()
    try:
        with _nvml_session(nvml):
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            total = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
            processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError as error:
        return None, f"NVML: {error}"
    used = [process.usedGpuMemory for process in processes if process.pid == pid]
    if not used:
        return None, f"NVML lists no process {pid}; in a container it may show the host's ids"
    if used[0] is None:
        return None, "NVML gives no memory per process here (as under WSL)"
    if not 0 < used[0] <= total:
        return None, f"NVML reports {used[0]} B for this process on a card of {total} B"
    return int(used[0]), None

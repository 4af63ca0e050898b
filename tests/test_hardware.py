"""Sizes and cards by name, and what a made-up NVML says of a machine."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kronos.errors import SizeError
from kronos.hardware import (
    CATALOGUE,
    GIB,
    LiveGpu,
    find_card,
    format_size,
    live_gpus,
    parse_budget,
    parse_size,
    process_footprint,
)


@given(n=st.integers(1, 2**30), unit=st.sampled_from(["GB", "GiB", "gb", " GB", "gib", " GiB"]))
def test_GB_and_GiB_both_mean_1024_cubed(n, unit):
    assert parse_size(f"{n}{unit}") == n * 1024**3


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1B", 1),
        ("7kb", 7 * 1024),
        ("512MB", 512 * 1024**2),
        ("1.5GiB", 3 * 1024**3 // 2),
        ("2TiB", 2 * 1024**4),
        ("  12 GB\n", 12 * 1024**3),
        ("0.0000000009313225746154785156250GB", 1),
        ("1048576TB", 2**60),
        ("1152921504606846976B", 2**60),
    ],
)
def test_a_size_is_read(text, size):
    assert parse_size(text) == size


BAD_SIZES = [
    *("", " ", "GB", "12", "12G", "-1GB", "+1GB", "0GB", "0B", "12 potatoes", "1e3GB", "nanGB"),
    *("12Gb", "12gB", "12gib2", "12iB", "12ib", "12IB", "12.GB", ".5GB", "1,5GB", "1_000MB"),
    *("12  GB", "12G B", "1 2GB", "12\nGB", "１２GB", "12ＧＢ", "0.5B", "12PB", "1048577TB"),
    *("1152921504606846977B", "9" * 400 + "GB", "9" * 1_100_000 + "GB", "x" * 10**6),
    "0." + "0" * 400 + "1GB",
]


@pytest.mark.parametrize("text", BAD_SIZES, ids=lambda text: ascii(text[:20]))
@pytest.mark.parametrize("ask", [parse_size, parse_budget, find_card])
def test_another_text_is_told_in_one_short_line(ask, text):
    with pytest.raises(SizeError) as caught:
        ask(text)
    message = str(caught.value)
    assert message.splitlines() == [message]
    assert len(message) <= 200
    assert repr(text)[:50] in message


@given(text=st.text() | st.from_regex(r"[-+ 0-9.eE]*[ ]?[kmgtKMGT]?[iI]?[bB]?"))
def test_any_text_is_a_size_or_a_SizeError_in_one_short_line(text):
    for ask in (parse_size, parse_budget, find_card):
        told = ""
        try:
            answer = ask(text)
        except SizeError as error:
            told = str(error)
        else:
            assert answer
        assert len(told.splitlines()) <= 1
        assert len(told) <= 200


@given(size=st.integers(1, 2**60))
def test_a_size_for_people_is_within_half_a_hundredth_of_its_unit(size):
    shown, unit = format_size(size).split()
    number = float(shown.replace(",", ""))
    factor = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}[unit]
    assert number >= 1
    assert abs(number * factor - size) <= 0.006 * factor + 1e-15 * size
    assert unit == "GiB" or size < 1024 * factor


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (12 * GIB, "12.00 GiB"),
        (2**50, "1,048,576.00 GiB"),
        (-3 * GIB, "-3.00 GiB"),
    ],
)
def test_sizes_for_people(size, text):
    assert format_size(size) == text


@pytest.mark.parametrize("slug", CATALOGUE)
def test_a_card_is_found_by_its_name_in_any_case(slug):
    card = CATALOGUE[slug]
    for name in (slug, slug.upper(), f" {slug} ", slug.replace("-", "_"), slug.replace("-", " ")):
        assert find_card(name) is card
        assert parse_budget(name) == (card.memory, card)
    assert 0 < card.context < card.memory


def test_a_budget_is_a_size_or_a_card():
    assert parse_budget("12GB") == (12 * GIB, None)
    assert parse_budget("h200")[1] is CATALOGUE["h200"]


@pytest.mark.parametrize(
    ("name", "nearest"), [("rtx-3080", "rtx-3080-12gb"), ("h10", "h100"), ("a100-80", "a100-80gb")]
)
def test_a_card_that_is_near_is_named(name, nearest):
    for ask in (find_card, parse_budget):
        with pytest.raises(SizeError, match=f"did you mean {nearest}\\?"):
            ask(name)


def test_a_name_far_from_any_card_is_told_where_they_are_listed():
    for ask in (find_card, parse_budget):
        with pytest.raises(SizeError, match="`kronos gpus`"):
            ask("voodoo")


class FakeNvml:
    """NVML of a machine with the given cards; `refuses` are the functions that fail."""

    class NVMLError(Exception):
        pass

    def __init__(self, *cards, refuses=(), processes=()):
        self.cards = cards
        self.refuses = refuses
        self.processes = processes
        self.open = 0

    def __getattr__(self, name):
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return lambda *arguments: self._answer(name.removeprefix("nvml"), *arguments)

    def _answer(self, name, *arguments):
        if name in self.refuses:
            raise self.NVMLError("Not Supported")
        if name == "Init":
            self.open += 1
            return None
        assert self.open == 1, "NVML is asked while it is open"
        return getattr(self, f"_{name.removeprefix('Device')}")(*arguments)

    def _Shutdown(self):
        self.open -= 1

    def _GetCount(self):
        return len(self.cards)

    def _GetHandleByIndex(self, index):
        return self.cards[index]

    def _GetHandleByUUID(self, uuid):
        found = [card for card in self.cards if card["uuid"] == uuid]
        if not found:
            raise self.NVMLError("Not Found")
        return found[0]

    def _GetName(self, card):
        return card["name"]

    def _GetUUID(self, card):
        return card["uuid"]

    def _GetMemoryInfo(self, card):
        return SimpleNamespace(total=12 * GIB, used=GIB)

    def _GetUtilizationRates(self, card):
        return SimpleNamespace(gpu=40, memory=1)

    def _GetComputeRunningProcesses(self, card):
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.processes]


CARD = {"name": "NVIDIA Fake", "uuid": "GPU-1"}
SEEN = LiveGpu(
    index=0,
    name="NVIDIA Fake",
    uuid="GPU-1",
    memory_total=12 * GIB,
    memory_used=GIB,
    utilisation=40,
)


def test_live_cards_are_listed_and_nvml_is_closed():
    nvml = FakeNvml(CARD, {"name": b"NVIDIA \xff Fake", "uuid": b"GPU-2"})
    gpus, reason = live_gpus(nvml)
    assert reason is None
    assert gpus[0] == SEEN
    assert (gpus[1].index, gpus[1].name, gpus[1].uuid) == (1, "NVIDIA � Fake", "GPU-2")
    assert nvml.open == 0


def test_what_a_card_does_not_say_is_none():
    nvml = FakeNvml(CARD, refuses=["DeviceGetMemoryInfo", "DeviceGetUtilizationRates"])
    (gpu,), reason = live_gpus(nvml)
    assert reason is None
    assert (gpu.memory_total, gpu.memory_used, gpu.utilisation) == (None, None, None)
    assert gpu.name == "NVIDIA Fake"


@pytest.mark.parametrize("refused", ["Init", "DeviceGetCount", "DeviceGetHandleByIndex"])
def test_a_machine_that_cannot_be_asked_has_no_cards_and_a_reason(refused):
    nvml = FakeNvml(CARD, refuses=[refused])
    assert live_gpus(nvml) == ([], "NVML: Not Supported")
    assert nvml.open == 0


def test_a_machine_without_cards_says_so():
    assert live_gpus(FakeNvml()) == ([], "NVML: no device")


def test_the_real_nvml_answers_with_or_without_a_driver():
    gpus, reason = live_gpus()
    assert bool(gpus) == (reason is None)
    if reason is not None:
        assert process_footprint("GPU-1", 1) == (None, reason)


def test_a_footprint_is_that_of_the_process_on_the_card():
    nvml = FakeNvml(CARD, processes=[(6, 1), (7, 3 * GIB), (8, 2)])
    assert process_footprint("GPU-1", 7, nvml) == (3 * GIB, None)
    assert nvml.open == 0
    whole = FakeNvml(CARD, processes=[(7, 12 * GIB)])
    assert process_footprint("GPU-1", 7, whole) == (12 * GIB, None)


@pytest.mark.parametrize(
    ("nvml", "reason"),
    [
        (FakeNvml(CARD, refuses=["Init"]), "NVML: Not Supported"),
        (FakeNvml(CARD, refuses=["DeviceGetMemoryInfo"]), "NVML: Not Supported"),
        (FakeNvml(CARD, refuses=["DeviceGetComputeRunningProcesses"]), "NVML: Not Supported"),
        (FakeNvml({**CARD, "uuid": "GPU-2"}), "NVML: Not Found"),
        (FakeNvml(CARD), "no process 7"),
        (FakeNvml(CARD, processes=[(8, GIB)]), "no process 7"),
        (FakeNvml(CARD, processes=[(7, None)]), "no memory per process"),
        (FakeNvml(CARD, processes=[(7, 0)]), "reports 0 B"),
        (FakeNvml(CARD, processes=[(7, 12 * GIB + 1)]), f"on a card of {12 * GIB} B"),
        (FakeNvml(CARD, processes=[(7, 2**64 - 1)]), f"reports {2**64 - 1} B"),
    ],
)
def test_a_footprint_that_cannot_be_known_is_none_and_why(nvml, reason):
    footprint, why = process_footprint("GPU-1", 7, nvml)
    assert footprint is None
    assert reason in why
    assert nvml.open == 0

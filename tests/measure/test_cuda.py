"""The card's side of measuring: against a fake everywhere, against a card where there is one."""

import weakref
from types import SimpleNamespace

import pytest
import torch

from kronos.errors import MeasurementError
from kronos.measure import CudaCard, MemoryMeter, card_of, device_profile, is_out_of_memory

GIB = 1024**3
TOTAL = 12 * GIB
FREE = 9 * GIB


class FakeCuda:
    """Answers as torch.cuda does, of one card; writes down what it was asked to do."""

    def __init__(self, index=0):
        self.index = index
        self.calls = []
        self.fraction = 1.0
        self.allocated = 1 * GIB
        self.reserved = 2 * GIB
        self.most_reserved = 2 * GIB
        self.retries = 3

    def _note(self, index, call):
        assert index == self.index
        self.calls.append(call)

    def get_device_properties(self, index):
        assert index == self.index
        return SimpleNamespace(name="Fake 12GB", total_memory=TOTAL, uuid="1234")

    def synchronize(self, index):
        self._note(index, "synchronize")

    def empty_cache(self):
        self.calls.append("empty_cache")

    def reset_peak_memory_stats(self, index):
        self._note(index, "reset")

    def max_memory_allocated(self, index):
        self._note(index, "peak")
        return self.allocated

    def mem_get_info(self, index):
        assert index == self.index
        return FREE, TOTAL

    def memory_stats(self, index):
        assert index == self.index
        return {"num_alloc_retries": self.retries}

    def max_memory_reserved(self, index):
        self._note(index, "peak")
        return self.most_reserved

    def memory_reserved(self, index):
        self._note(index, "held")
        return self.reserved

    def set_per_process_memory_fraction(self, fraction, index):
        assert index == self.index
        self.fraction = fraction


class FakeNvml:
    class NVMLError(Exception):
        pass

    def __init__(self, used, total=TOTAL, pid=None):
        self.used, self.total, self.pid, self.asked = used, total, pid, []

    def nvmlInit(self): ...

    def nvmlShutdown(self): ...

    def nvmlDeviceGetHandleByUUID(self, uuid):
        self.asked.append(uuid)
        return uuid

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(total=self.total, used=0)

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        if isinstance(self.used, Exception):
            raise self.used
        import os

        return [SimpleNamespace(pid=self.pid or os.getpid(), usedGpuMemory=self.used)]


def _card(used=2 * GIB + 300, index=0):
    cuda = FakeCuda(index)
    return CudaCard(index, cuda=cuda, nvml=FakeNvml(used)), cuda


def test_a_reading_holds_the_allocator_s_peaks_and_the_context():
    card, cuda = _card()
    with MemoryMeter("cuda", card=card) as meter:
        assert cuda.calls == ["empty_cache", "reset"]
        cuda.most_reserved = 3 * GIB
    assert cuda.calls[2:] == ["synchronize", "peak", "peak", "held"]
    reading = meter.reading
    assert (reading.peak_allocated, reading.peak_reserved) == (GIB, 3 * GIB)
    assert (reading.context, reading.footprint) == (300, 3 * GIB + 300)
    assert reading.device == "Fake 12GB"
    assert not reading.missing


def test_a_meter_that_has_ended_asks_nothing_more():
    card, cuda = _card()
    with MemoryMeter("cuda", card=card):
        pass
    asked = list(cuda.calls)
    with MemoryMeter("cuda", card=_card()[0]):
        pass
    assert cuda.calls == asked


@pytest.mark.parametrize("card", [None, _card()[0]])
def test_metering_starts_without_the_garbage_of_before(card):
    class Cycle:
        def __init__(self):
            self.itself = self

    gone = weakref.ref(Cycle())
    with MemoryMeter("cpu", card=card):
        assert gone() is None


def test_the_context_is_never_below_zero():
    assert _card(used=2 * GIB - 300)[0].context() == (0, None)
    card = CudaCard(0, cuda=FakeCuda(), nvml=FakeNvml(None))
    card._cuda.reserved = 5 * GIB
    assert card.context()[0] == 0


def test_the_card_is_found_by_its_uuid():
    card, _ = _card()
    card.context()
    assert card._nvml.asked == ["GPU-1234"]


@pytest.mark.parametrize(
    ("nvml", "reason"),
    [
        (FakeNvml(None), "WSL"),  # H25
        (FakeNvml(FakeNvml.NVMLError("Not Supported")), "Not Supported"),  # H23
        (FakeNvml(5, pid=1), "container"),  # H26
        (FakeNvml(4242 * 1024 * GIB), "on a card of"),  # H28
        (FakeNvml(0), "on a card of"),
    ],
)
def test_H23_H25_H26_H28_where_nvml_cannot_tell_the_whole_card_counts_and_it_is_said(nvml, reason):
    card = CudaCard(0, cuda=FakeCuda(), nvml=nvml)
    with MemoryMeter("cuda", card=card) as meter:
        pass
    assert meter.reading.context == TOTAL - FREE - 2 * GIB
    assert reason in meter.reading.remark


def test_an_inner_meter_leaves_the_outer_one_its_peak():
    card, cuda = _card()
    with MemoryMeter("cuda", card=card) as outer:
        cuda.allocated, cuda.most_reserved = 5 * GIB, 6 * GIB
        with MemoryMeter("cuda", card=card) as inner:
            cuda.allocated, cuda.most_reserved = 1 * GIB, 2 * GIB  # what the reset leaves
            with MemoryMeter("cuda", card=card):
                pass
        cuda.allocated = 2 * GIB
    assert (inner.reading.peak_allocated, inner.reading.peak_reserved) == (1 * GIB, 2 * GIB)
    assert (outer.reading.peak_allocated, outer.reading.peak_reserved) == (5 * GIB, 6 * GIB)


def test_every_running_meter_keeps_its_peak_when_another_begins():
    card, cuda = _card()
    with MemoryMeter("cuda", card=card) as outer, MemoryMeter("cuda", card=card) as middle:
        cuda.allocated = 5 * GIB
        with MemoryMeter("cuda", card=card) as inner:
            cuda.allocated = 1 * GIB
    readings = [meter.reading.peak_allocated for meter in (outer, middle, inner)]
    assert readings == [5 * GIB, 5 * GIB, 1 * GIB]


def test_a_cap_within_a_cap_only_tightens_and_gives_the_outer_one_back():
    card, cuda = _card(used=2 * GIB + GIB)
    with card.capped(4 * GIB):
        with card.capped(9 * GIB):
            assert cuda.fraction == pytest.approx(3 / 12)
        with card.capped(3 * GIB):
            assert cuda.fraction == pytest.approx(2 / 12)
        assert cuda.fraction == pytest.approx(3 / 12)
    assert cuda.fraction == 1.0


def test_a_cap_on_one_card_is_none_on_another():
    (card, cuda), (other, other_cuda) = _card(used=3 * GIB), _card(used=3 * GIB, index=1)
    with card.capped(4 * GIB), other.capped(9 * GIB):
        assert cuda.fraction == pytest.approx(3 / 12)
        assert other_cuda.fraction == pytest.approx(8 / 12)
    assert (cuda.fraction, other_cuda.fraction) == (1.0, 1.0)


def _raised(error, cause=None):
    try:
        raise error from cause
    except type(error) as raised:
        return raised


def _raised_while_handling(error, other):
    try:
        try:
            raise other
        except type(other):
            raise error  # noqa: B904
    except type(error) as raised:
        return raised


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        MemoryError(),
        _raised_while_handling(KeyError("a name"), RuntimeError("CUDA error: out of memory")),
        _raised(ValueError("a wrapper"), cause=torch.OutOfMemoryError("CUDA out of memory")),
    ],
)
def test_H21_out_of_memory_is_recognised_by_type_and_text_through_causes(error):
    assert is_out_of_memory(error)


@pytest.mark.parametrize("error", [None, ValueError("out of memory"), RuntimeError("shape '[2]'")])
def test_other_errors_are_not_out_of_memory(error):
    assert not is_out_of_memory(error)


def test_what_was_raised_from_none_stands_alone():
    def handle():
        try:
            raise torch.OutOfMemoryError("CUDA out of memory")
        except torch.OutOfMemoryError:
            raise ValueError("handled") from None

    with pytest.raises(ValueError, match="handled") as caught:
        handle()
    assert not is_out_of_memory(caught.value)


def test_causes_in_a_circle_end():
    error, other = ValueError("mine"), ValueError("other")
    error.__cause__, other.__cause__ = other, error
    assert not is_out_of_memory(error)


def test_H33_the_cap_leaves_the_context_out_and_is_taken_back():
    card, cuda = _card(used=2 * GIB + GIB)  # a context of 1 GiB
    with card.capped(4 * GIB):
        assert cuda.calls == ["synchronize", "held"]
        assert cuda.fraction == pytest.approx(3 / 12)
    assert cuda.fraction == 1.0
    with pytest.raises(ValueError, match="mine"), card.capped(4 * GIB):
        raise ValueError("mine")
    assert cuda.fraction == 1.0
    with card.capped(100 * GIB):
        assert cuda.fraction == 1.0


def test_a_budget_below_the_context_is_refused():
    card, cuda = _card(used=2 * GIB + GIB)
    with pytest.raises(MeasurementError, match=r"context takes 1\.00 GiB"), card.capped(GIB):
        pass
    assert cuda.fraction == 1.0


def test_H32_without_a_card_the_footprint_is_none_with_the_reason():
    with MemoryMeter("cpu") as meter:
        torch.zeros(10)
    assert meter.reading.footprint is None
    assert set(meter.reading.missing) == {"peak_reserved", "context", "footprint"}
    assert all("no CUDA device" in reason for reason in meter.reading.missing.values())


def test_a_reading_on_the_cpu_tells_the_peak_exactly_rounded_and_where():
    with MemoryMeter("cpu") as meter:
        torch.zeros(10)
    reading = meter.reading
    assert (reading.device, reading.peak_allocated, reading.rounded_allocated) == ("cpu", 40, 512)
    assert (reading.phase, reading.operation) == ("forward", "aten.zeros")
    assert reading.categories == {"activations": 512}


def test_a_reading_before_the_end_is_an_error():
    with MemoryMeter("cpu") as meter, pytest.raises(MeasurementError, match="before"):
        _ = meter.reading


@pytest.mark.parametrize("device", ["tpu", "cuda:99", "mps"])
def test_a_device_that_is_not_there_is_named(device):
    with pytest.raises(MeasurementError, match=device):
        card_of(device)


def test_a_card_is_found_by_its_index(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("kronos.measure.cuda.CudaCard", lambda index: index)
    assert [card_of(name) for name in ("cuda", "cuda:0", "cuda:1")] == [0, 0, 1]
    with pytest.raises(MeasurementError, match="no cuda:2: PyTorch sees 2"):
        card_of("cuda:2")


def test_the_profile_names_the_kind_and_the_model(monkeypatch):
    assert device_profile("cpu") == f"cpu-{torch.backends.cpu.get_cpu_capability().lower()}"
    card = SimpleNamespace(name="NVIDIA L4")
    monkeypatch.setattr("kronos.measure.cuda.card_of", {"cuda": card, "cpu": None}.get)
    assert device_profile("cuda") == "cuda-nvidia-l4"
    assert device_profile("cpu").startswith("cpu-")
    monkeypatch.setattr("kronos.measure.cuda.default_device", lambda: "cuda")
    assert device_profile() == "cuda-nvidia-l4"


@pytest.mark.gpu
def test_a_real_card_is_metered_and_capped():
    card = card_of("cuda")
    with MemoryMeter("cuda") as meter:
        block = torch.zeros(64 * 1024**2, dtype=torch.uint8, device="cuda")
        del block
    assert meter.reading.peak_allocated == 64 * 1024**2
    assert meter.reading.peak_reserved >= 64 * 1024**2
    context = meter.reading.context
    assert 50 * 1024**2 < context < 4 * GIB
    with card.capped(context + GIB), pytest.raises(torch.OutOfMemoryError):
        torch.zeros(2 * GIB, dtype=torch.uint8, device="cuda")

"""Results remembered by their shapes are those that fake mode would give."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kronos.capacity import trace_step
from kronos.capacity.shape_memory import ShapeMemory


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(
    "sizes", [{"depth": 2}, {"precision": "bf16", "checkpointing": "block", "accumulation": 2}]
)
def test_a_trace_is_the_same_without_the_memory(monkeypatch, kronos_build, device, sizes):
    build = kronos_build(**sizes)
    remembering = trace_step(build, device=device).events
    recalled = []
    monkeypatch.setattr(ShapeMemory, "key", lambda *_: recalled.append(1))
    assert trace_step(build, device=device).events == remembering
    assert recalled


def described(x):
    return tuple(x.shape), x.stride(), x.dtype, str(x.device), x.storage_offset()


OPERATIONS = {
    "add": lambda x: x + 1,
    "add a float": lambda x: x + 1.5,
    "compare": lambda x: x > 1,
    "product": lambda x: x @ x.t(),
    "transposed": lambda x: x.t(),
    "row": lambda x: x[1],
    "rows": lambda x: x[1:],
    "flat": lambda x: x.reshape(-1),
    "detached": lambda x: x.detach(),
    "wider": lambda x: x.to(torch.float64),
    "split": lambda x: x.split(2)[1],
    "strided": lambda x: x.as_strided((2,), (1,), x.storage_offset()),
    "dropped": lambda x: torch.nn.functional.dropout(x, 0.5),
}


@settings(max_examples=20)
@given(
    rows=st.integers(2, 5),
    columns=st.integers(2, 5),
    names=st.lists(st.sampled_from(sorted(OPERATIONS)), min_size=1, max_size=3),
)
def test_the_second_result_is_like_the_first_and_shares_memory_like_it(rows, columns, names):
    def build(device):
        for name in names:
            whole = torch.zeros(rows + 2, columns, device=device)
            for begin in (0, 2):  # the same shapes elsewhere in the storage
                x = whole[begin : begin + rows]
                first, second = (OPERATIONS[name](x) for _ in range(2))
                assert described(first) == described(second)
                places = [one.untyped_storage()._cdata for one in (x, first, second)]
                assert (places[0] == places[1]) == (places[0] == places[2])
                real = OPERATIONS[name](torch.zeros(rows + 2, columns)[begin : begin + rows])
                assert tuple(real.shape) == tuple(first.shape)
                assert (real.stride(), real.storage_offset()) == (
                    first.stride(),
                    first.storage_offset(),
                )
        return lambda: None

    trace_step(build)


def test_numbers_that_are_equal_are_told_apart():
    def build(device):
        x = torch.zeros(3, dtype=torch.int64, device=device)
        assert [(x + one).dtype for one in (1, 1.0, True)] == [
            torch.int64,
            torch.float32,
            torch.int64,
        ]
        return lambda: None

    trace_step(build)

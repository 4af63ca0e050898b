"""The card that is not there: what Python is told, what counts, and that nothing of it stays."""

import copy
import gc
import importlib
import random
import warnings

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from kronos.capacity import trace_step
from kronos.checkpoint import build_models
from kronos.recipes import model_shape

CARD, HOST = "cuda:0", "cpu"
REAL = torch.arange(6.0)


def under(device, make):
    """What `make()` gives while `device` is the default."""
    with torch.device(device):
        return make()


@pytest.mark.parametrize(
    ("make", "device", "dtype"),
    [
        (lambda card: torch.zeros(3, device=card), CARD, "float32"),
        (lambda card: torch.ones(3, device=torch.device(card, 0)), CARD, "float32"),
        (lambda card: torch.arange(3, device=card), CARD, "int64"),
        (lambda card: torch.randn(3, device=card), CARD, "float32"),
        (lambda card: torch.randint(3, (3,), device=card), CARD, "int64"),
        (lambda card: torch.randperm(3, device=card), CARD, "int64"),
        (lambda card: torch.zeros(3), HOST, "float32"),
        (lambda card: torch.tensor([1.0, 2.0]), HOST, "float32"),
        (lambda card: torch.as_tensor([1.0]), HOST, "float32"),
        (lambda card: torch.from_numpy(np.ones(3)), HOST, "float64"),
        (lambda card: torch.zeros(3).to(card), CARD, "float32"),
        (lambda card: torch.zeros(3).to("cuda:0"), CARD, "float32"),
        (lambda card: torch.zeros(3).to(0), CARD, "float32"),
        (lambda card: torch.zeros(3).to(torch.device(card)), CARD, "float32"),
        (lambda card: torch.zeros(3).to(card, torch.float16), CARD, "float16"),
        (lambda card: torch.zeros(3).to(card, non_blocking=True), CARD, "float32"),
        (lambda card: torch.zeros(3).to(device=card, dtype=torch.bfloat16), CARD, "bfloat16"),
        (lambda card: torch.zeros(3).to(torch.float16), HOST, "float16"),
        (lambda card: torch.zeros(3, device=card).to(torch.float16), CARD, "float16"),
        (lambda card: torch.zeros(3, device=card).half(), CARD, "float16"),
        (lambda card: torch.zeros(3).to(torch.zeros(1, device=card).half()), CARD, "float16"),
        (lambda card: torch.zeros(3, device=card).to(torch.zeros(1)), HOST, "float32"),
        (lambda card: torch.zeros(3).cuda(), CARD, "float32"),
        (lambda card: torch.zeros(3).cuda(0, non_blocking=True), CARD, "float32"),
        (lambda card: torch.zeros(3, device=card).cpu(), HOST, "float32"),
        (lambda card: torch.zeros(3, device=card).to("cpu"), HOST, "float32"),
        (lambda card: torch.zeros(3, device=card).to("cpu", torch.float64), HOST, "float64"),
        (lambda card: torch.zeros(3).pin_memory(), HOST, "float32"),
        (lambda card: torch.zeros(3).pin_memory().to(card, non_blocking=True), CARD, "float32"),
        (lambda card: torch.from_numpy(np.ones(3)).to(card), CARD, "float64"),
        (lambda card: under(card, lambda: torch.zeros(3)), CARD, "float32"),
        (lambda card: under(card, lambda: nn.Linear(2, 2).weight), CARD, "float32"),
        (lambda card: torch.zeros_like(torch.zeros(3, device=card)), CARD, "float32"),
        (lambda card: torch.zeros_like(torch.zeros(3, device=card), device="cpu"), HOST, "float32"),
        (lambda card: torch.empty_like(torch.zeros(3), device=card), CARD, "float32"),
        (lambda card: torch.zeros(3, device=card).new_zeros(2), CARD, "float32"),
        (lambda card: torch.zeros(3).new_zeros(2), HOST, "float32"),
        (lambda card: torch.zeros(3).new_full((2,), 1.0, device=card), CARD, "float32"),
        (lambda card: torch.empty(3, device=card).copy_(torch.zeros(3)), CARD, "float32"),
        (lambda card: torch.zeros(3).copy_(torch.zeros(3, device=card)), HOST, "float32"),
        (lambda card: torch.zeros(3, device=torch.zeros(1, device=card).device), CARD, "float32"),
        (lambda card: copy.deepcopy(torch.zeros(3, device=card)), CARD, "float32"),
        (lambda card: torch.tensor(2.0) * torch.zeros(3, device=card), CARD, "float32"),
        (lambda card: torch.zeros(3, device=card) / torch.tensor(2.0), CARD, "float32"),
        (lambda card: torch.zeros(3, device=card)[torch.zeros(2).long()], CARD, "float32"),
        (lambda card: REAL + 1, HOST, "float32"),
        (lambda card: torch.empty(6, device=card).copy_(REAL), CARD, "float32"),
        *(
            (make, CARD, dtype)
            for make, dtype in (
                (lambda card: torch.tensor([1, 2], device=card), "int64"),
                (lambda card: torch.tensor(1.0, device=card), "float32"),
                (lambda card: torch.as_tensor([1.0], device=card), "float32"),
                (lambda card: under(card, lambda: torch.tensor([1.0])), "float32"),
                (lambda card: nn.BatchNorm1d(3, device=card).num_batches_tracked, "int64"),
                (lambda card: REAL.to(card), "float32"),
                (lambda card: REAL.cuda(), "float32"),
                (lambda card: REAL.to(card, torch.float16), "float16"),
            )
        ),
        *(
            (make, CARD, dtype)
            for make, dtype in (
                (lambda card: torch.as_tensor(REAL, device=card), "float32"),
                (lambda card: torch.as_tensor(np.ones(3), device=card), "float64"),
                (lambda card: torch.zeros(3, device=card).new_tensor([1.0]), "float32"),
            )
        ),
    ],
)
def test_a_tensor_says_where_it_is(result_of, make, device, dtype):
    tensor = result_of(make)
    assert str(tensor.device) == device
    assert tensor.is_cuda is (device == CARD)
    assert tensor.is_cpu is (device == HOST)
    assert tensor.dtype is getattr(torch, dtype)
    assert tensor.get_device() == (0 if device == CARD else -1)


@pytest.mark.parametrize(
    "move",
    [
        lambda model: model.to("cuda"),
        lambda model: model.cuda(),
        lambda model: model.to(torch.device("cuda", 0)),
        lambda model: model.to_empty(device="cuda"),
        lambda model: model.to("cuda").cpu().to("cuda"),
    ],
)
def test_a_moved_module_keeps_its_parameters_and_their_ties(result_of, move):
    def step(_):
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
        model[2].weight = model[0].weight
        optimizer = torch.optim.SGD(model.parameters())
        move(model)
        held = {id(weight) for weight in optimizer.param_groups[0]["params"]}
        return model, held

    model, held = result_of(step)
    tensors = [*model.parameters(), *model.buffers()]
    assert {str(tensor.device) for tensor in tensors} == {CARD}
    assert all(isinstance(weight, nn.Parameter) for weight in model.parameters())
    assert all(weight.is_leaf and weight.requires_grad for weight in model.parameters())
    assert model[2].weight is model[0].weight
    assert held == {id(weight) for weight in model.parameters()}


@pytest.mark.parametrize(
    ("cast", "dtype"),
    [
        (lambda model: model.half(), torch.float16),
        (lambda model: model.to(torch.bfloat16), torch.bfloat16),
        (lambda model: model.to("cuda", torch.float64), torch.float64),
    ],
)
def test_a_module_is_cast_where_it_lies(result_of, cast, dtype):
    model = result_of(lambda device: cast(nn.BatchNorm1d(3).to(device)))
    assert {(str(x.device), x.dtype) for x in model.parameters()} == {(CARD, dtype)}
    assert model.running_mean.dtype is dtype
    assert model.num_batches_tracked.dtype is torch.int64


def test_module_and_gradients_move_together(result_of):
    def step(device):
        model = nn.Linear(3, 3)
        model(torch.zeros(1, 3)).sum().backward()
        return model.to(device)

    assert str(result_of(step).weight.grad.device) == CARD


def test_a_module_built_on_meta_is_given_memory_of_the_card(traced):
    def step(device):
        model = under("meta", lambda: nn.Linear(30, 10, bias=False))
        model.to_empty(device=device)
        assert str(model.weight.device) == CARD

    assert traced(step).events.peak().bytes == 1200


@pytest.mark.parametrize(
    "mix",
    [
        lambda card: torch.zeros(3) + torch.zeros(3, device=card),
        lambda card: torch.zeros(3, 3) @ torch.zeros(3, 3, device=card),
        lambda card: torch.cat([torch.zeros(3), torch.zeros(3, device=card)]),
        lambda card: nn.Linear(3, 3)(torch.zeros(1, 3, device=card)),
        lambda card: REAL + torch.zeros(6, device=card),
    ],
)
def test_host_and_card_do_not_mix(traced, mix):
    with pytest.raises(RuntimeError, match="same device"):
        traced(mix)


def test_only_the_card_s_memory_counts(traced, changes):
    def step(device):
        host = torch.zeros(1000)
        there = host.to(device)
        back = there.cpu()
        del there
        return back.to(device)

    assert changes(traced(step)) == [4000, -4000, 4000, -4000]
    with_host = traced(lambda device: torch.zeros(1000).to(device), device="cpu")
    assert with_host.events.peak().bytes == 4000


def test_backward_crosses_between_host_and_card(result_of):
    def step(device):
        host = torch.zeros(3, requires_grad=True)
        card = torch.zeros(3, device=device, requires_grad=True)
        (host.to(device) * card).sum().backward()
        card.cpu().sum().backward()
        return host.grad, card.grad

    host, card = result_of(step)
    assert (str(host.device), str(card.device)) == (HOST, CARD)


def test_cuda_answers_while_a_step_is_traced(result_of):
    def ask(_):
        torch.cuda.reset_peak_memory_stats()
        return (
            torch.cuda.is_available(),
            torch.cuda.device_count(),
            torch.cuda.current_device(),
            torch.cuda.synchronize(),
            torch.cuda.is_bf16_supported(),
            torch.cuda.empty_cache(),
        )

    assert result_of(ask) == (True, 1, 0, None, True, None)


class Planned(Exception):
    """Raised by a build or a step."""


def failing_build(device):
    nn.Linear(3, 3).to(device)
    raise Planned


def failing_step(device):
    model = nn.Linear(3, 3).to(device)

    def step():
        with torch.autocast(device, torch.bfloat16):
            model(torch.zeros(1, 3, device=device))
            raise Planned

    return step


def failing_backward(device):
    def fail(_):
        raise Planned

    def step():
        x = torch.zeros(3, device=device, requires_grad=True)
        y = nn.Dropout(0.5)(x * 2)
        y.register_hook(fail)
        y.sum().backward()

    return step


def whole_step(device):
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        with torch.autocast(device, torch.bfloat16):
            loss = model(torch.randn(2, 8).to(device)).exp().sum()
        loss.backward()
        optimizer.step()

    return step


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("build", [whole_step, failing_build, failing_step, failing_backward])
def test_nothing_stays_of_a_trace(build, device):
    before = _state()
    try:
        trace_step(build, device=device)
    except Planned:
        assert build is not whole_step
    else:
        assert build is whole_step
    after = _state()
    assert {name for name in before | after if before.get(name) != after.get(name)} == set()
    x = torch.ones(3, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


PATCHED = (
    *(torch, torch.Tensor, FakeTensor, torch.autocast, torch.nn.init, torch.nn.Module),
    *(torch.cuda, torch.utils, torch.amp, torch.amp.autocast_mode, safetensors.torch),
)
OPTIMIZERS = importlib.import_module("torch.optim.optimizer")
FOREACH = importlib.import_module("torch.utils._foreach_utils")
HOOKS = importlib.import_module("torch.nn.modules.module")
REPLACED = ("dropout", "scaled_dot_product_attention", "exp", "softmax.int", "einsum", "cat")


def _state():
    """Everything that a trace touches, by name."""
    state = {
        (owner.__name__, name): id(value)
        for owner in PATCHED
        for name, value in vars(owner).items()
    }
    for owner in (HOOKS, OPTIMIZERS):
        for name, value in vars(owner).items():
            if name.startswith("_global") and hasattr(value, "keys"):
                state[owner.__name__, name] = list(value)
    for owner in (FOREACH, OPTIMIZERS):
        state[owner.__name__, "foreach"] = list(owner._foreach_supported_types)
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    for key in ("AutocastCPU", "AutogradCPU"):
        state[key] = [name for name in torch._C._dispatch_get_all_op_names() if has(name, key)]
    for name in REPLACED:
        state[name] = torch._C._dispatch_dump_table(f"aten::{name}")
    state["modes"] = list(_get_current_dispatch_mode_stack())
    state["lifting"] = torch._C._only_lift_cpu_tensors()
    state["autocast"] = (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"))
    state["warnings"] = list(warnings.filters)
    state["garbage"] = gc.isenabled()
    state["random"] = (torch.get_rng_state().tolist(), random.getstate())
    state["numpy"] = str(np.random.get_state())
    return state


KINDS = (
    *(torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.bool),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
)
WEIGHTS = {str(kind): torch.arange(6).reshape(2, 3).to(kind) for kind in KINDS}
WEIGHTS |= {"scalar": torch.tensor(3.0), "empty": torch.zeros(0, 4)}


@pytest.fixture
def weights_file(tmp_path):
    path = tmp_path / "weights.safetensors"
    safetensors.torch.save_file(WEIGHTS, path, metadata={"of": "a test"})
    return path


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_weights_are_read_as_shapes_alone(result_of, weights_file, device):
    load = safetensors.torch.load_file
    on_host, on_device = result_of(
        lambda device: (load(weights_file), load(str(weights_file), device=device)), device=device
    )
    place = {"cuda": CARD, "cpu": HOST}[device]
    for weights, where in ((on_host, HOST), (on_device, place)):
        assert weights.keys() == WEIGHTS.keys()
        for name, weight in weights.items():
            assert isinstance(weight, FakeTensor)
            assert (weight.shape, weight.dtype) == (WEIGHTS[name].shape, WEIGHTS[name].dtype)
            assert str(weight.device) == where
    real = load(weights_file)
    assert all(torch.equal(real[name], weight) for name, weight in WEIGHTS.items())


def test_weights_count_where_they_are_read_to(traced, weights_file):
    def step(device, target):
        return safetensors.torch.load_file(weights_file, device=target)

    size = sum(weight.nbytes for weight in WEIGHTS.values())
    assert traced(lambda device: step(device, device)).events.peak().bytes == size
    assert traced(lambda device: step(device, "cpu")).events.peak().bytes == 0


def test_missing_weights_are_missing(traced, weights_file):
    absent = weights_file.with_name("absent.safetensors")
    with pytest.raises(FileNotFoundError, match=absent.name):
        traced(lambda _: safetensors.torch.load_file(absent))


def test_weights_of_eight_bits_are_read_too(result_of, tmp_path):
    path = tmp_path / "eight.safetensors"
    safetensors.torch.save_file({"weight": torch.zeros(3).to(torch.float8_e4m3fn)}, path)
    loaded = result_of(lambda _: safetensors.torch.load_file(path))
    assert loaded["weight"].dtype is torch.float8_e4m3fn


def test_what_torch_loads_is_fake_too(result_of, tmp_path):
    path = tmp_path / "weights.pt"
    torch.save(WEIGHTS, path)
    on_host, on_card = result_of(lambda card: (torch.load(path), torch.load(path, card)))
    for weights, where in ((on_host, HOST), (on_card, CARD)):
        assert {str(weight.device) for weight in weights.values()} == {where}
        assert all(isinstance(weight, FakeTensor) for weight in weights.values())
        assert weights["torch.int16"].shape == (2, 3)
    assert torch.equal(torch.load(path)["torch.int16"], WEIGHTS["torch.int16"])


def test_a_pretrained_model_is_traced_like_one_made_anew(traced, changes):
    def build(device, pretrained):
        shape = model_shape("tiny").model_copy(update={"pretrained": pretrained})
        return build_models(shape, device=device, seed=0)

    shipped, new = (
        traced(lambda device, name=name: build(device, name)) for name in ("tiny", None)
    )
    assert changes(shipped) == changes(new)
    assert sum(size for size in changes(shipped) if size > 0) > 1000

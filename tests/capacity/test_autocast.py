"""CUDA's autocast on a traced card: which precision, how many casts, and until when."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from kronos.capacity import trace_step
from kronos.capacity.autocast import autocast_kernels

BF16 = torch.bfloat16
HALVES = [torch.bfloat16, torch.float16]


def autocast(dtype=BF16, **options):
    return torch.autocast("cuda", dtype, **options)


def wide(device, *shape):
    """float32, as weights are."""
    return torch.zeros(*shape, device=device)


def narrow(device, *shape, dtype=BF16):
    """As activations are under autocast."""
    return torch.zeros(*shape, device=device, dtype=dtype)


def product(device):
    return (wide(device, 4, 4) @ wide(device, 4, 4)).dtype


def test_the_precision_is_the_context_s(result_of):
    def step(device):
        inside = [product(device)]
        with torch.autocast("cuda"):
            inside.append(product(device))
        with autocast(BF16):
            inside.append(product(device))
            with autocast(torch.float16):
                inside.append(product(device))
            with torch.autocast("cuda", enabled=False):
                inside.append(product(device))
                assert not torch.is_autocast_enabled("cuda")
            inside.append(product(device))
            assert torch.is_autocast_enabled("cuda")
            assert torch.get_autocast_dtype("cuda") is BF16
        with torch.autocast(device_type="cuda", dtype=BF16, enabled=False):
            inside.append(product(device))
        assert torch.amp.is_autocast_available("cuda")
        return inside

    full, half = torch.float32, torch.float16
    assert result_of(step) == [full, half, BF16, half, full, BF16, full]


def test_a_function_may_be_decorated(result_of):
    def step(device):
        return torch.autocast("cuda", BF16)(product)(device)

    assert result_of(step) is BF16


def test_without_a_dtype_the_outer_one_goes_on(result_of):
    def step(device):
        with autocast(BF16), torch.autocast("cuda"):
            return product(device)

    assert result_of(step) is BF16


def test_outside_the_dtype_is_cuda_s(result_of):
    assert result_of(lambda _: torch.get_autocast_dtype("cuda")) is torch.float16


@pytest.mark.parametrize(
    "run",
    [
        lambda device: F.linear(wide(device, 2, 4), wide(device, 4, 4), wide(device, 4)),
        lambda device: torch.bmm(wide(device, 1, 4, 4), wide(device, 1, 4, 4)),
        lambda device: torch.baddbmm(*(wide(device, 1, 4, 4) for _ in range(3))),
        lambda device: torch.einsum("ij,jk->ik", wide(device, 4, 4), wide(device, 4, 4)),
        lambda device: torch.mv(wide(device, 4, 4), wide(device, 4)),
        lambda device: torch.addr(wide(device, 4, 4), wide(device, 4), wide(device, 4)),
        lambda device: torch.addmv(wide(device, 4), wide(device, 4, 4), wide(device, 4)),
        lambda device: torch.linalg.multi_dot([wide(device, 4, 4) for _ in range(3)]),
        lambda device: F.conv1d(wide(device, 1, 4, 4), wide(device, 4, 4, 1)),
        lambda device: F.conv2d(wide(device, 1, 4, 4, 4), wide(device, 4, 4, 1, 1)),
        lambda device: F.prelu(wide(device, 4, 4), wide(device, 1)),
        lambda device: F.scaled_dot_product_attention(*(wide(device, 1, 1, 4, 8),) * 3),
        lambda device: nn.GRUCell(4, 4, device=device)(wide(device, 2, 4)),
    ],
)
def test_products_run_in_half(result_of, run):
    def step(device, dtype):
        with autocast(dtype):
            return run(device).dtype

    assert result_of(lambda device: [step(device, dtype) for dtype in HALVES]) == HALVES


def targets(device):
    return torch.zeros(4, dtype=torch.int64, device=device)


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x.softmax(-1),
        lambda x: x.log_softmax(-1),
        lambda x: x.sum(),
        lambda x: x.sum(0),
        lambda x: x.cumsum(0),
        lambda x: torch.linalg.vector_norm(x),
        lambda x: torch.linalg.matrix_norm(x),
        lambda x: F.layer_norm(x, (4,)),
        lambda x: F.group_norm(x, 2),
        lambda x: F.normalize(x),
        lambda x: x.exp(),
        lambda x: x**2,
        lambda x: 2**x,
        lambda x: x**x,
        lambda x: x.log(),
        lambda x: x.rsqrt(),
        lambda x: x.reciprocal(),
        lambda x: x.logsumexp(0),
        lambda x: F.softplus(x),
        lambda x: F.cosine_similarity(x, x),
        lambda x: F.interpolate(x[None], scale_factor=2),
        lambda x: F.mse_loss(x, x),
        lambda x: F.l1_loss(x, x),
        lambda x: F.smooth_l1_loss(x, x),
        lambda x: F.kl_div(x, x),
        lambda x: F.binary_cross_entropy_with_logits(x, x),
        lambda x: F.cross_entropy(x, targets(x.device)),
        lambda x: F.nll_loss(x, targets(x.device)),
    ],
)
def test_sums_norms_and_losses_run_in_float32(result_of, run):
    def step(device, dtype):
        x = narrow(device, 4, 4, dtype=dtype)
        assert run(x).dtype is dtype
        with autocast(dtype):
            return run(x).dtype

    kinds = result_of(lambda device: [step(device, dtype) for dtype in HALVES])
    assert kinds == [torch.float32] * 2


@pytest.mark.parametrize(
    ("run", "as_it_is"),
    [
        (lambda x: x.mean(), True),
        (lambda x: x.sqrt(), True),
        (lambda x: F.gelu(x), True),
        (lambda x: x.sum(0, dtype=x.dtype), True),
        (lambda x: x.softmax(-1, dtype=x.dtype), True),
        (lambda x: F.avg_pool3d(x.view(1, 1, 4, 2, 2), 1), True),  # only the CPU's list has it
        (lambda x: x.trace(), True),
        (lambda x: torch.addcmul(x, x, x), True),
        (lambda x: x + wide(x.device, 4, 4), False),
        (lambda x: torch.cat([x, wide(x.device, 4, 4)]), False),
        (lambda x: torch.addcmul(x, x, wide(x.device, 4, 4)), False),
        (lambda x: torch.dot(x[0], wide(x.device, 4)), False),
        (lambda x: torch.tensordot(x, wide(x.device, 4, 4), 1), False),
        (lambda x: x.scatter_add(0, targets(x.device)[None], wide(x.device, 4, 4)), False),
        (lambda x: x.index_put((targets(x.device),), wide(x.device, 4, 4)), False),
    ],
)
def test_others_run_as_they_are_or_in_the_widest(result_of, run, as_it_is):
    def step(device, dtype):
        with autocast(dtype):
            return run(narrow(device, 4, 4, dtype=dtype)).dtype

    kinds = result_of(lambda device: [step(device, dtype) for dtype in HALVES])
    assert kinds == (HALVES if as_it_is else [torch.float32] * 2)


def test_numbers_that_autocast_does_not_touch(result_of):
    def step(device):
        with autocast():
            doubles = wide(device, 4, 4).double()
            results = [doubles @ doubles, torch.einsum("ij,jk->ik", doubles, doubles)]
            results += [doubles.exp(), doubles.softmax(0), torch.dot(doubles[0], doubles[0])]
            return {x.dtype for x in results}, targets(device).sum().dtype

    assert result_of(step) == ({torch.float64}, torch.int64)


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x.exp(),
        lambda x: x.softmax(0),
        lambda x: torch.einsum("i,i->i", x, x),
        pytest.param(
            lambda x: torch.outer(x, x) @ torch.outer(x, x),
            marks=pytest.mark.xfail(reason="the CPU's own rules go by C++'s device", strict=True),
        ),
    ],
)
def test_the_host_s_tensors_are_not_touched(result_of, run):
    def step(device):
        kinds = []
        for dtype in (torch.float32, BF16):
            with autocast(BF16 if dtype is torch.float32 else torch.float16):
                kinds.append(run(torch.zeros(4, dtype=dtype)).dtype is dtype)
        return kinds

    assert result_of(step) == [True, True]


def once_by_mm(x, weight):
    return x @ weight


def once_by_einsum(x, weight):
    return torch.einsum("ij,jk->ik", x, weight)


@pytest.mark.parametrize("multiply", [once_by_mm, once_by_einsum])
def test_a_weight_is_cast_once_and_kept_until_the_end(traced, changes, taken, multiply):
    def step(device):
        weight = nn.Parameter(wide(device, 4, 8))
        x = wide(device, 2, 4)
        with autocast():
            one, other = multiply(x, weight), multiply(x, weight)
        wide(device, 100)  # what stands in front of it was given back with the context
        with autocast():
            multiply(x, weight)
        return one, other

    trace = traced(step)
    weight, x = 4 * 8 * 2, 2 * 4 * 2
    assert sorted(taken(trace, "_to_copy")) == sorted([weight, x, x, weight, x])
    sizes = changes(trace)
    end, spike = sizes.index(-weight), sizes.index(400)
    assert sizes[:spike].count(weight) == 1
    assert end < spike
    assert sizes[: end + 1].count(x) == 2  # both inputs were cast before it went


@pytest.mark.parametrize(
    ("make", "casts"),
    [
        (lambda device: nn.Parameter(wide(device, 4, 8)), 1),
        (lambda device: wide(device, 4, 8), 2),  # no leaf that wants a gradient: not kept
        (lambda device: wide(device, 4, 8).requires_grad_() * 1, 2),
        (lambda device: nn.Parameter(narrow(device, 4, 8)), 0),
    ],
)
@pytest.mark.parametrize("multiply", [once_by_mm, once_by_einsum])
def test_only_the_casts_of_leaves_are_kept(traced, taken, make, casts, multiply):
    def step(device):
        weight, x = make(device), narrow(device, 2, 4)
        with autocast():
            return [multiply(x, weight) for _ in range(2)]

    assert taken(traced(step), "_to_copy") == [4 * 8 * 2] * casts


@pytest.mark.parametrize(
    "multiply",
    [
        once_by_mm,
        pytest.param(
            once_by_einsum,
        ),
    ],
)
def test_casts_need_not_be_kept(traced, taken, multiply):
    def step(device):
        weight, x = nn.Parameter(wide(device, 4, 8)), narrow(device, 2, 4)
        with autocast(cache_enabled=False):
            return [multiply(x, weight) for _ in range(2)]

    assert taken(traced(step), "_to_copy") == [4 * 8 * 2] * 2


def test_softmax_casts_unless_its_kernel_reads_half(traced, taken):
    def step(device, dtype):
        with autocast(dtype):
            return narrow(device, 8, 8, dtype=dtype).softmax(-1)

    halves, floats = 8 * 8 * 2, 8 * 8 * 4
    in_half = traced(lambda device: step(device, torch.float16))
    assert taken(in_half) == [halves, floats]
    in_bfloat = traced(lambda device: step(device, BF16))
    assert taken(in_bfloat) == [halves, floats, floats]  # first a float32 copy


def test_a_sum_makes_no_copy(traced, taken):
    def step(device):
        with autocast():
            return narrow(device, 8, 8).sum(0)

    assert taken(traced(step)) == [8 * 8 * 2, 8 * 4]


def test_a_weight_s_gradient_is_float32(result_of):
    def step(device):
        layer = nn.Linear(4, 4).to(device)
        with autocast():
            loss = layer(wide(device, 2, 4)).sum()
        loss.backward()
        return layer.weight.grad.dtype, layer.bias.grad.dtype

    assert result_of(step) == (torch.float32, torch.float32)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_is_recomputed_under_autocast(traced, taken, reentrant):
    seen = []

    def step(device):
        weight = nn.Parameter(wide(device, 4, 4))

        def part(x):
            y = torch.einsum("ij,jk->ik", x, weight)
            seen.append(y.dtype)
            return y.exp() * 2

        x = wide(device, 3, 4).requires_grad_()
        with autocast():
            y = checkpoint(part, x, use_reentrant=reentrant)
        y.sum().backward()

    trace = traced(step)
    assert seen == [BF16, BF16]
    assert taken(trace, "_to_copy").count(4 * 4 * 2) == 2  # the weight, cast anew
    assert torch.get_autocast_dtype("cpu") is BF16


def test_the_rules_are_for_what_cuda_has_rules_for():
    has, names = torch._C._dispatch_has_kernel_for_dispatch_key, set()
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::"):
            names.add(name)
    cuda = {name[6:] for name in names if has(name, "AutocastCUDA")}
    cpu = {name[6:] for name in names if has(name, "AutocastCPU")}
    with autocast_kernels() as kernels:
        dropped = {
            name for name, rule in kernels.items() if rule is torch.library.fallthrough_kernel
        }
        ruled = kernels.keys() - dropped
    assert ruled <= cuda - cpu
    assert dropped == cpu - cuda
    # Nothing but these reaches the dispatcher under another name.
    indirect = {"norm.Scalar", "norm.ScalarOpt_dim", "_scaled_dot_product_flash_attention"}
    assert {name for name in cuda - cpu - ruled if not name.startswith("cudnn")} <= indirect


def test_the_cpu_s_own_autocast_comes_back():
    def look():
        torch.manual_seed(0)
        x, weight = torch.rand(4, 4), torch.rand(4, 4)
        with torch.autocast("cpu", BF16):
            results = [x @ weight, (x @ weight).exp(), torch.einsum("ij,jk", x, weight)]
            results += [torch.cat([x @ weight, x]), (x @ weight).softmax(-1), F.linear(x, weight)]
        return results

    before = look()

    def build(device):
        layer = nn.Linear(4, 4).to(device)

        def step():
            with autocast():
                layer(wide(device, 2, 4)).exp().sum().backward()

        return step

    trace_step(build)
    for one, other in zip(before, look(), strict=True):
        assert one.dtype is other.dtype
        assert torch.equal(one, other)

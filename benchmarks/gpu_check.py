"""The estimates of training's memory against a real card: 24 configurations of Kronos's step.

    python benchmarks/gpu_check.py --out gpu_check.csv       # on a machine with a card
    python benchmarks/gpu_check.py --dry-run --gpu h100      # the estimates alone, without one
    python benchmarks/gpu_check.py --measured gpu_check.csv --out again.csv

Each case is traced, then built and run on the card by the same `build(device)`: one step to warm
up and two more. Below a case that is off by more than 1 % stand the operators that asked for
other memory than the trace says. The third command judges new estimates by an earlier run's card.
Needs PyTorch, NumPy and pandas, and no installation: it finds the project beside itself.
"""

import argparse
import csv
import gc
import gzip
import inspect
import pickle
import re
import statistics
import sys
import time
from collections import Counter
from contextlib import contextmanager
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from unittest import mock

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode


class StandIn:
    """Any class or decorator of a package that is absent: settings by name, not checked."""

    yaml_implicit_resolvers = MappingProxyType({})
    add_implicit_resolver = staticmethod(lambda *_: None)

    def __init__(self, *_, **settings):
        vars(self).update(settings)

    def __call__(self, method):
        return method

    def model_dump(self):
        names = [name for kind in type(self).__mro__ for name in inspect.get_annotations(kind)]
        return {name: getattr(self, name) for name in names}


class StandIns(MetaPathFinder, Loader):
    """Imports packages that are absent. A lent machine may have PyTorch and little else."""

    packages = ("huggingface_hub", "pydantic", "rich", "safetensors", "yaml")

    def find_spec(self, name, path=None, target=None):
        known = name.partition(".")[0] in self.packages
        return ModuleSpec(name, self, is_package=True) if known else None

    def exec_module(self, module):
        module.__getattr__ = self.named

    def named(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn


@contextmanager
def stand_ins():
    """Behind all other ways to import, so that a package that is there is the real one."""
    finder = StandIns()
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


with stand_ins():
    from kronos.capacity import estimate_memory
    from kronos.files import atomic_path
    from kronos.hardware import CATALOGUE, DEFAULT_CONTEXT, MIB, Card, find_card, live_gpus
    from kronos.measure import CudaCard, MemoryMeter
    from kronos.model import Kronos, KronosTokenizer
    from kronos.recipes import model_shape
    from kronos.train import step as train

# Every two levels of two factors occur together, but for flash attention, which has no float32.
# At head widths that are no multiple of 8 (base has 52) half precision cannot be "efficient".
TABLE = """
    shape  batch  window  precision  checkpointing  optimizer  attention
    tiny       3     120  float32    off            foreach    default
    tiny       3     333  bf16       off            fused      flash
    tiny      16      64  float32    off            fused      math
    tiny      48     120  float32    block          fused      padded
    tiny      48     333  bf16       off            fused      default
    tiny      48     512  float32    off            foreach    efficient
    mini       3     120  bf16       off            foreach    math
    mini       3     333  float32    block          fused      default
    mini      16      64  bf16       block          foreach    flash
    mini      16     120  float32    off            fused      efficient
    mini      48      64  float32    block          foreach    padded
    mini      16     512  bf16       off            foreach    default
    small      3     120  float32    off            foreach    default
    small     16      64  bf16       off            fused      efficient
    small      3     512  bf16       off            foreach    padded
    small     16     512  bf16       block          fused      default
    small     48     333  float32    block          foreach    math
    small     48     512  bf16       block          fused      flash
    base       3      64  bf16       block          fused      default
    base       3     333  float32    block          foreach    efficient
    base      48      64  float32    off            foreach    default
    base      16     333  float32    off            foreach    padded
    base      48     120  bf16       block          fused      flash
    base      16     512  bf16       block          fused      math
"""
FLASH, EFFICIENT = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION
ALL = [SDPBackend.CUDNN_ATTENTION, FLASH, EFFICIENT, SDPBackend.MATH]  # PyTorch chooses
KERNELS = {
    "default": ALL,
    "padded": ALL,  # with a mask
    "flash": [FLASH, EFFICIENT, SDPBackend.MATH],
    "efficient": [EFFICIENT, SDPBackend.MATH],
    "math": [SDPBackend.MATH],
}
ATTENTION = re.compile(r"aten\._scaled_dot_product_(?:fused_)?(\w+?)_attention")
COLUMNS = """
    case shape batch_size window precision checkpointing optimizer attention card torch
    estimated_allocated_bytes allocated_bytes allocated_error
    estimated_reserved_bytes reserved_bytes reserved_error
    estimated_footprint_bytes footprint_bytes context_bytes seconds
    footprint_source estimated_kernels kernels error
""".split()
MEASURED = ("allocated", "reserved", "footprint")
CARDS = {card.name: card for card in CATALOGUE.values()}
GENERATIONS = {75: "turing", 80: "ampere", 86: "ampere", 89: "ada", 90: "hopper"}
DEVICE = "cuda"
WARMUP, STEPS = 1, 2
FAR = 0.01


class Case(NamedTuple):
    """One row of the table."""

    shape: str
    batch_size: int
    window: int
    precision: str
    checkpointing: str
    optimizer: str
    attention: str

    @property
    def name(self):
        return f"{self.shape}-{self.batch_size}x{self.window}"


def cases():
    """The table's rows."""
    for line in TABLE.strip().splitlines()[1:]:
        shape, batch_size, window, *rest = line.split()
        yield Case(shape, int(batch_size), int(window), *rest)


def build_of(case):
    """The forecaster's training as the trainer makes it, on bars that are random."""

    def build(device):
        torch.manual_seed(0)
        shape = model_shape(case.shape)
        tokenizer = KronosTokenizer(**shape.tokenizer.model_dump()).to(device)
        tokenizer.eval().requires_grad_(False)
        model = Kronos(**shape.forecaster.model_dump()).to(device).train()
        weights, fused = list(model.parameters()), case.optimizer == "fused"
        optimizer = train.make_optimizer(weights, learning_rate=1e-5, weight_decay=0.1, fused=fused)
        options = train.StepOptions(precision=case.precision, checkpointing=case.checkpointing)
        samples, bars = case.batch_size, case.window + 1
        host = torch.randn(samples, bars, 6), torch.zeros(samples, bars, 5, dtype=torch.int64)
        padding = torch.arange(case.window).expand(samples, -1) < case.window // 4

        def loss_of(batch):
            with sdpa_kernel(ALL):  # the tokenizer is not what is tried
                tokens = train.tokenize(tokenizer, *batch)
            padded = case.attention == "padded"
            masked = partial(model, padding_mask=padding.to(device) if padded else None)
            masked.head = model.head
            return train.forecaster_loss(masked, tokens, options)

        def step():
            batch = tuple(tensor.to(device) for tensor in host)
            with sdpa_kernel(KERNELS[case.attention]):  # blocks are computed again in here too
                return train.training_step(loss_of, [(batch, samples)], optimizer, options)

        return step

    return build


def nvml():
    """NVML's functions; where nvidia-ml-py is absent, what says so to who begins."""
    try:
        import pynvml
    except ImportError as error:
        fails = {"nvmlInit.side_effect": RuntimeError(str(error))}
        return mock.Mock(NVMLError=RuntimeError, **fails)
    return pynvml


def live_card():
    """The first card. NVML is asked before PyTorch, which would begin to use it."""
    found, _ = live_gpus(nvml())
    name = found[0].name if found else torch.cuda.get_device_name(0)
    if name in CARDS:
        return CARDS[name]
    card = torch.cuda.get_device_properties(0)
    generation = GENERATIONS.get(10 * card.major + card.minor, "unknown")
    made = {"memory": card.total_memory, "architecture": generation}
    return Card(slug="", name=name, context=DEFAULT_CONTEXT, **made)


class Row:
    """What is known of a case: columns to write, remarks, and what its operators asked for."""

    def __init__(self, case, card, earlier):
        self.case = case
        where = {"card": card.name if card else "", "torch": torch.__version__}
        self.columns = {"case": case.name, **case._asdict(), **where, "seconds": 0.0, **earlier}
        before = earlier.get("error", "").split("; ")
        self.remarks = [remark for remark in before if not remark.startswith("estimate")]
        self.asked, self.off = {}, {}

    def fill(self, kind, call):
        """Take the columns of a call; a failure becomes a remark, and holds on to no tensors."""
        began = time.monotonic()
        try:
            columns, self.asked[kind] = call()
        except Exception as error:
            self.remark(f"{kind} failed", error)
        else:
            self.columns |= columns
        self.columns["seconds"] = round(self.columns["seconds"] + time.monotonic() - began, 2)
        self.columns["error"] = "; ".join(filter(None, self.remarks))
        for name in MEASURED:
            guess, real = self.sizes(name)
            if guess and real:
                self.off[name] = self.columns[f"{name}_error"] = round(guess / real - 1, 6)

    def remark(self, what, error):
        lines = f"{what}: {type(error).__name__}: {error}".strip().splitlines()
        self.remarks.append(lines[0])

    def sizes(self, name):
        """Estimated and real bytes, None where they are not known."""
        known = (self.columns.get(f"{kind}{name}_bytes") for kind in ("estimated_", ""))
        return tuple(int(size) if size else None for size in known)

    def differing(self, most=5):
        """Where it is far off: operators, bytes estimated and asked for, the farthest first."""
        guess, real = (self.asked.get(kind) for kind in ("estimate", "run"))
        far = any(abs(self.off.get(name, 0)) > FAR for name in ("allocated", "reserved"))
        if not (far and guess and real):
            return []
        both = [(name, guess[name], real[name]) for name in guess | real]
        return sorted(both, key=lambda one: -abs(one[1] - one[2]))[:most]

    def lines(self):
        """What is printed of it."""
        columns = self.columns
        parts = [f"{columns['case']:<13}"]
        for name in MEASURED:
            sizes = [f"{size / MIB:9.1f}" if size else f"{'-':>9}" for size in self.sizes(name)]
            off = f"{self.off[name]:+8.2%}" if name in self.off else f"{'-':>8}"
            parts.append(" ".join([*sizes, off]))
        kernels = columns.get("estimated_kernels", ""), columns.get("kernels", "")
        if all(kernels) and kernels[0] != kernels[1]:
            parts.append(f"attends by {kernels[1]}, not {kernels[0]}")
        yield "  ".join([*parts, columns["error"]]).rstrip()
        for name, guess, real in self.differing():
            yield f"    {name:<60} {guess / MIB:10.2f} {real / MIB:10.2f} MiB in a step"


def estimated(case, card):
    """What the estimate says, and the bytes that each operator of the last step asks for."""
    estimate = estimate_memory(build_of(case), gpu=card, warmup=WARMUP, steps=STEPS)
    events, asked = estimate.trace.events, Counter()
    for event in range(estimate.trace.starts[-1], len(events)):
        if events.delta[event] > 0:
            asked[events.where(event)[1]] += events.delta[event]
    return {
        "estimated_allocated_bytes": estimate.peak_allocated,
        "estimated_reserved_bytes": estimate.peak_reserved,
        "estimated_footprint_bytes": estimate.footprint,
        "estimated_kernels": attention_in(asked),
    }, asked


def measured(case, card, remark, snapshot):
    """What the card says, and the bytes that each operator of one more step asks for."""
    if left := start_afresh():
        remark("in use before it began", RuntimeError(f"{left} B"))
    history = torch.cuda.memory._record_memory_history
    if snapshot:
        history(stacks="python")
    try:
        with MemoryMeter(DEVICE, card=card) as meter:
            step = build_of(case)(DEVICE)
            for _ in range(WARMUP + STEPS):
                step()
                gc.collect()  # as the trace does
        if snapshot:
            save(torch.cuda.memory._snapshot(), snapshot)
    finally:
        if snapshot:
            history(enabled=None)
    asked = Asked()
    try:
        with asked:
            step()
    except Exception as error:
        remark("the step that was looked at failed", error)
    reading = meter.reading
    return {
        "allocated_bytes": reading.peak_allocated,
        "reserved_bytes": reading.peak_reserved,
        "footprint_bytes": reading.footprint,
        "context_bytes": reading.context,
        "footprint_source": reading.remark or "NVML, this process",
        "kernels": attention_in(asked.by_operator),
    }, asked.by_operator


class Asked(TorchDispatchMode):
    """Bytes that each operator asks the card's allocator for."""

    def __init__(self):
        super().__init__()
        self.by_operator = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        before = requested()
        result = func(*args, **(kwargs or {}))
        self.by_operator[str(func.overloadpacket)] += requested() - before
        return result


def requested():
    """Bytes that the card's allocator was ever asked for."""
    stats = torch.cuda.memory.memory_stats_as_nested_dict(0)
    return stats["requested_bytes"]["all"]["allocated"]


def attention_in(operators):
    """The kernels that attended; the tokenizer's is among them. "math" has no operator."""
    found = [ATTENTION.match(name) for name in operators]
    return "+".join(sorted({match[1] for match in found if match}))


def start_afresh():
    """Free what is not in use, cuBLAS's workspaces too; the bytes that are in use all the same."""
    gc.collect()
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear is not None:
        clear()
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated(0)


def save(snapshot, path):
    """As `torch.cuda.memory._dump_snapshot`, packed."""
    with atomic_path(path) as temporary, gzip.open(temporary, "wb", 3) as file:
        pickle.dump(snapshot, file)


def write(path, rows):
    with atomic_path(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(row.columns for row in rows)


def earlier_rows(path):
    """The real columns of an earlier run, by case."""
    kept = "card torch allocated_bytes reserved_bytes footprint_bytes context_bytes"
    kept = [*kept.split(), "footprint_source", "kernels", "error"]
    with path.open(newline="") as file:
        return {row["case"]: {name: row[name] for name in kept} for row in csv.DictReader(file)}


def summary(rows):
    """Median and largest errors, and which cases are off by more than 1 %."""
    for name in MEASURED:
        off = {row.case.name: row.off[name] for row in rows if name in row.off}
        if not off:
            continue
        worst = max(off, key=lambda case: abs(off[case]))
        far = [case for case in off if abs(off[case]) > FAR]
        yield (
            f"{name}: median error {statistics.median(map(abs, off.values())):.3%}, "
            f"largest {off[worst]:+.3%} ({worst}); off by more than {FAR:.0%}: "
            f"{len(far)} of {len(off)}{': ' * bool(far)}{', '.join(far)}"
        )
    failed = [row.case.name for row in rows if row.columns["error"]]
    yield f"with an error or a remark: {', '.join(failed) or 'none'}"


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("gpu_check.csv"), help="the table, CSV")
    parser.add_argument("--only", nargs="+", metavar="CASE", help="such as tiny-3x120")
    parser.add_argument("--dry-run", action="store_true", help="estimates alone, without a card")
    parser.add_argument("--gpu", help="the card to estimate for, see `kronos gpus`")
    parser.add_argument("--measured", type=Path, help="an earlier table instead of a card")
    parser.add_argument("--snapshots", type=Path, help="a folder for the allocator's histories")
    parser.add_argument("--seconds", type=float, default=220, help="begin no case after so many")
    options = parser.parse_args(arguments)
    names = [case.name for case in cases()]
    if unknown := set(options.only or ()) - set(names):
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    options.dry_run |= options.measured is not None
    return options


def card_for(options, earlier):
    """The card to estimate for; None where there is none to name."""
    if options.gpu:
        return find_card(options.gpu)
    if earlier:
        return CARDS.get(next(iter(earlier.values()))["card"])
    return live_card() if torch.cuda.is_available() else None


def estimate_all(options, card, earlier, until):
    """All rows with their estimates, before PyTorch begins to use the card."""
    rows = []
    for case in cases():
        if options.only and case.name not in options.only:
            continue
        if time.monotonic() > until:
            print(f"stopped before {case.name}: it took more than {options.seconds:g} s")
            break
        rows.append(row := Row(case, card, earlier.get(case.name, {})))
        row.fill("estimate", partial(estimated, case, card))
        write(options.out, rows)
        if options.dry_run:
            print(*row.lines(), sep="\n", flush=True)
    return rows


def run_all(options, rows, until):
    """Run the rows' cases on the card."""
    card = CudaCard(0, nvml=nvml())
    for row in rows:
        if time.monotonic() > until:
            print(f"stopped before {row.case.name}: it took more than {options.seconds:g} s")
            break
        snapshot = options.snapshots and options.snapshots / f"{row.case.name}.pickle.gz"
        row.fill("run", partial(measured, row.case, card, row.remark, snapshot))
        write(options.out, rows)
        print(*row.lines(), sep="\n", flush=True)


def trace_again(rows, card):
    """Whether a trace is the same now that PyTorch uses the card; checkpoints ask for its state."""
    row = next((row for row in rows if row.case.checkpointing == "block"), rows[0])
    again = Row(row.case, card, {})
    again.fill("estimate", partial(estimated, row.case, card))
    same = again.sizes("allocated")[0] == row.sizes("allocated")[0]
    told = again.columns["error"] or ("the same" if same else "another")
    return f"{row.case.name} traced while PyTorch uses the card: {told}"


def main(arguments=None):
    began = time.monotonic()
    options = options_of(arguments)
    if not (options.dry_run or torch.cuda.is_available()):
        print("no CUDA card that PyTorch could use; --dry-run only estimates", file=sys.stderr)
        return 1
    earlier = earlier_rows(options.measured) if options.measured else {}
    card = card_for(options, earlier)
    print(f"PyTorch {torch.__version__}, {card.name if card else 'no card'}; in MiB allocated")
    print("(estimated, real, error), reserved, footprint", flush=True)
    rows = estimate_all(options, card, earlier, until=began + options.seconds)
    if rows and not options.dry_run:
        begun = "has" if torch.cuda.is_initialized() else "has not"
        took = time.monotonic() - began
        print(f"traced {len(rows)} in {took:.0f} s; PyTorch {begun} begun to use the card")
        run_all(options, rows, until=began + options.seconds)
        print(trace_again(rows, card))
    print(*summary(rows), sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

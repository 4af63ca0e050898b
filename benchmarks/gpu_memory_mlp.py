"""The estimate against 1,500 real training runs of small MLPs, whose memory nvidia-smi showed.

    python benchmarks/gpu_memory_mlp.py gpu_memory_mlp.csv [--rows 100] [--out errors.csv]

Every run is traced as it was made (see `build_run`) and replayed. One constant is added for the
CUDA context, the same for all rows. Beside the estimate stand the peak of plain fake tensors and
four times the parameters, each with the constant that gives it the smallest median error.
"""

import argparse
import multiprocessing
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import torch
from tabulate import tabulate
from torch import nn

from kronos.capacity import estimate_from_trace, trace_step
from kronos.hardware import DEFAULT_CONTEXT, MIB

SAMPLES = 4096  # of each run's data set: an epoch ends with a short batch

ACTIVATIONS = {
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "identity": nn.Identity,
    "leaky_relu": nn.LeakyReLU,
    "mish": nn.Mish,
    "prelu": nn.PReLU,
    "relu": nn.ReLU,
    "selu": nn.SELU,
    "softplus": nn.Softplus,
    "swish": nn.SiLU,
    "tanh": nn.Tanh,
}


def layer_widths(row):
    """Widths of the input and of each hidden layer."""
    inputs, outputs, hidden = row.input_size, row.output_size, row.hidden_layers
    narrower = {
        "uniform": lambda width: width,
        "pyramid": lambda width: max(width // 2, outputs),
        "bottleneck": lambda width: max(width // 2, outputs),
        "gradual": lambda width: max(width - (inputs - outputs) // hidden, outputs),
    }[row.architecture]
    widths = [inputs]
    for _ in range(hidden + (row.architecture == "bottleneck")):
        widths.append(narrower(widths[-1]))
    return widths


def make_model(row):
    widths = layer_widths(row)
    layers = []
    for before, after in pairwise(widths):
        layers.append(nn.Linear(before, after))
        if row.use_batch_norm:
            layers.append(nn.BatchNorm1d(after))
        layers.append(ACTIVATIONS[row.activation]())
        if row.use_dropout:
            layers.append(nn.Dropout(row.dropout))
    layers.append(nn.Linear(widths[-1], row.output_size))
    layers.append(nn.Sigmoid() if row.output_size == 1 else nn.Softmax(dim=1))
    return nn.Sequential(*layers)


def build_run(row):
    """One look at two samples, then epochs of Adam; the last step's outputs stay alive."""

    def build(device):
        model = make_model(row).to(device)
        binary = row.output_size == 1
        loss_of = nn.BCEWithLogitsLoss() if binary else nn.CrossEntropyLoss()
        model(torch.randn(2, row.input_size, device=device))
        kept = {}
        optimizer = torch.optim.Adam(model.parameters())
        full, short = row.batch_size, SAMPLES % row.batch_size
        rest = [short] * (short > 1)  # of one sample batch norm makes nothing; see main()
        sizes = [full, full, *rest, full, full, *rest, full]  # two epochs in short

        def run():
            for size in sizes:
                shape, kind = ((size, 1), torch.float32) if binary else ((size,), torch.int64)
                batch, targets = torch.randn(size, row.input_size), torch.zeros(shape, dtype=kind)
                batch, targets = batch.to(device), targets.to(device)
                optimizer.zero_grad()
                kept["outputs"] = model(batch)
                kept["loss"] = loss_of(kept["outputs"], targets)
                kept["loss"].backward()
                optimizer.step()

        return run

    return build


def error_of(row):
    """MiB by which the estimate and its two rivals lie above what nvidia-smi showed."""
    row = SimpleNamespace(**row)
    traced = trace_step(build_run(row), warmup=0, steps=1, cublaslt_workspace=MIB)
    plain = trace_step(build_run(row), device="cpu", warmup=0, steps=1)
    widths = [*layer_widths(row), row.output_size]
    parameters = sum(before * after + after for before, after in pairwise(widths))
    measured = row.max_gpu_memory_mib
    return {
        "estimate": estimate_from_trace(traced).peak_reserved / MIB - measured,
        "plain fake tensors": plain.events.peak().bytes / MIB - measured,
        "4 x parameters": 4 * 4 * parameters / MIB - measured,
    }


def one_thread():
    torch.set_num_threads(1)


def summary(name, errors):
    """Errors with one constant added to all."""
    constant = DEFAULT_CONTEXT / MIB if name == "estimate" else -np.median(errors)
    off = np.abs(errors + constant)
    marks = (np.percentile(off, share) for share in (50, 75, 90, 95, 99, 100))
    over = int((off > 40).sum())
    return (name, constant, (off < 0.5).mean(), *marks, over)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--rows", type=int, help="a random sample")
    parser.add_argument("--out", type=Path, help="a CSV of every row with its errors")
    options = parser.parse_args()
    runs = pd.read_csv(options.runs)
    if options.rows:
        runs = runs.sample(options.rows, random_state=0)
    began = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(2, one_thread) as pool:
        errors = pd.DataFrame(pool.map(error_of, runs.to_dict("records"), chunksize=8))
    print(f"{len(runs)} runs in {time.monotonic() - began:.0f} s; errors in MiB")
    headers = ("", "constant", "exact", "median", "75 %", "90 %", "95 %", "99 %", "most", "> 40")
    print(tabulate([summary(name, errors[name]) for name in errors], headers, floatfmt=".2f"))
    table = pd.concat([runs.reset_index(drop=True), errors], axis=1)
    table["off"] = table["estimate"] + DEFAULT_CONTEXT / MIB
    worst = table.reindex(table["off"].abs().sort_values(ascending=False).index).head(12)
    print("\nfarthest off (a batch norm and a last batch of one sample ends a run with an error):")
    shown = ["input_size", "hidden_layers", "architecture", "batch_size", "use_dropout"]
    shown += ["use_batch_norm", "max_gpu_memory_mib", "off"]
    worst = worst[shown].assign(last_batch=SAMPLES % worst["batch_size"])
    print(tabulate(worst, "keys", showindex=False, floatfmt=".0f"))
    print("\nexact, by kind of run:")
    kinds = table.assign(exact=table["off"].abs() < 0.5).groupby(["use_dropout", "use_batch_norm"])
    print(tabulate(kinds["exact"].mean().reset_index(), "keys", showindex=False, floatfmt=".2f"))
    if options.out:
        table.to_csv(options.out, index=False)


if __name__ == "__main__":
    main()

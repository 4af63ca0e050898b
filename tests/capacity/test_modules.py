"""The names of modules: in forward passes, in their recomputation, and where one fails."""

from collections import Counter

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from kronos.capacity import trace_step
from kronos.measure.events import ACTIVATIONS, INPUTS, TEMPORARIES


class Model(nn.Module):
    """A layer, an activation and a head; `recompute` checkpoints the first two."""

    def __init__(self, recompute=False):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.Tanh())
        self.head = nn.Linear(16, 4)
        self.recompute = recompute

    def forward(self, x):
        made = torch.ones(3, device=x.device)
        if self.recompute:
            x = checkpoint(self.body, x, use_reentrant=False)
        else:
            x = self.body(x)
        return self.head(x) * made.sum()


def model_build(device, recompute=False):
    model = Model(recompute).to(device)
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        model(torch.ones(2, 8, device=device)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def sizes_of(trace, **wanted):
    """Bytes taken by module, of storages with that category or born in that phase."""
    events, sizes = trace.events, Counter()
    for number, (storage, delta) in enumerate(zip(events.storage, events.delta, strict=True)):
        known = {"category": events.categories[storage], "phase": events.where(number)[0]}
        if delta > 0 and wanted.items() <= known.items():
            sizes[events.modules[storage]] += delta
    return sizes


def test_each_module_has_the_activations_that_it_made():
    trace = trace_step(model_build, warmup=0, steps=1)
    made = sizes_of(trace, category=ACTIVATIONS)
    assert made["Model.body.0"] == 2 * 16 * 4
    assert made["Model.body.1"] == 2 * 16 * 4
    assert made["Model.head"] == 2 * 4 * 4
    assert made["Model"] == 3 * 4 + 4 + 2 * 4 * 4  # ones, their sum and the product
    assert "Model.body" not in made


def test_each_module_owns_its_parameters_gradients_and_states():
    trace = trace_step(model_build, warmup=0, steps=1)
    weights = {"Model.body.0": 4 * (8 * 16 + 16), "Model.head": 4 * (16 * 4 + 4)}
    assert sizes_of(trace, category="parameters") == weights
    assert sizes_of(trace, category="gradients") == weights
    doubled = {name: 2 * size for name, size in weights.items()}
    assert sizes_of(trace, category="optimizer states") == doubled
    assert set(sizes_of(trace, category="workspaces")) == {""}


def test_a_recomputed_module_is_named_in_the_backward_pass_too():
    trace = trace_step(lambda device: model_build(device, recompute=True), warmup=0, steps=1)
    again = sizes_of(trace, category=TEMPORARIES, phase="backward")
    assert again["Model.body.0"] == 2 * 16 * 4
    assert again["Model.body.1"] == 2 * 16 * 4
    assert "Model.head" not in again
    plain = sizes_of(trace_step(model_build, warmup=0, steps=1), category=TEMPORARIES)
    assert set(plain) == {""}  # formulas of the backward pass are of no module


class Refuses(nn.Module):
    def forward(self, x):
        raise ValueError(x.shape)


class Recovers(nn.Module):
    """Catches the error of one of its parts."""

    def __init__(self):
        super().__init__()
        self.risky = nn.Sequential(nn.Identity(), Refuses())

    def forward(self, x):
        try:
            return self.risky(x)
        except ValueError:
            return x + 1


def test_a_failed_module_runs_no_longer(traced):
    def step(device):
        model = Recovers()
        model(torch.ones(10, device=device))
        torch.ones(30, device=device)

    trace = traced(step)
    assert sizes_of(trace) == {"": 40 + 120, "Recovers": 40}
    assert sizes_of(trace, category=ACTIVATIONS) == {"Recovers": 40}


def test_outside_of_modules_inputs_come_of_inputs(traced):
    def step(device):
        bars = torch.ones(10, 8, device=device)
        scaled = (bars - bars.mean()) / 2
        return nn.Linear(8, 8, bias=False).to(device)(scaled).exp() + scaled.sum()

    trace = traced(step)
    inputs, activations = (sizes_of(trace, category=name) for name in (INPUTS, ACTIVATIONS))
    assert inputs == {"": 320 + 4 + 320 + 320 + 4}  # ones, mean, difference, quotient, sum
    assert activations == {"Linear": 320, "": 320 + 320}


def test_models_of_one_class_share_their_names_and_others_do_not(traced):
    def step(device):
        x = torch.ones(2, 8, device=device)
        Model().to(device)(x)
        nn.Sequential(nn.Identity(), nn.Linear(8, 8)).to(device)(x)
        nn.Linear(8, 8).to(device)(x)

    names = set(sizes_of(traced(step), category=ACTIVATIONS))
    assert names == {
        *("Model", "Model.body.0", "Model.body.1", "Model.head"),
        *("Sequential.1", "Linear"),
    }


def test_a_module_has_no_name_of_one_that_is_gone(traced):
    def step(device):
        x = torch.ones(2, 8, device=device)
        for _ in range(20):
            nn.Tanh()(x)
            nn.Sigmoid()(x)

    assert sizes_of(traced(step), category=ACTIVATIONS) == {"Tanh": 20 * 64, "Sigmoid": 20 * 64}


def test_a_shared_module_keeps_the_name_of_the_first_model(traced):
    class Other(Model):
        pass

    def step(device):
        first, second = Model().to(device), Other().to(device)
        second.head = first.head
        for model in (first, second, first):
            model(torch.ones(2, 8, device=device))

    assert sizes_of(traced(step), category=ACTIVATIONS)["Model.head"] == 3 * 2 * 4 * 4

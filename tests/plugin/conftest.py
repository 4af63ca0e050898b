"""Loads, once, what the inner sessions of pytester use.

pytester forgets the modules that an inner session has imported; PyTorch cannot be imported
twice in one process, and importing the rest again would only take time.
"""

import torch

import pytest_kronos.regression
import pytest_kronos.session  # noqa: F401


def _one_step():
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.AdamW([weight])
    weight.sum().backward()
    optimizer.step()  # loads the parts of PyTorch that load themselves when first used


_one_step()

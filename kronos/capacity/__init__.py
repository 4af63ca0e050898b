"""Predicting what any PyTorch training step takes of a card. Knows no Kronos."""

from kronos.capacity.estimate import (
    Build,
    MemoryEstimate,
    Step,
    as_build,
    estimate_from_cpu,
    estimate_memory,
)

__all__ = ["Build", "MemoryEstimate", "Step", "as_build", "estimate_from_cpu", "estimate_memory"]

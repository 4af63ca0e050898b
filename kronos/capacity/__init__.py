"""Predicting what any PyTorch training step takes of a card. Knows no Kronos."""

from kronos.capacity.allocator import AllocatorSettings, CachingAllocator
from kronos.capacity.build import Build, Step, as_build, is_build
from kronos.capacity.estimate import (
    Fit,
    MemoryEstimate,
    Outcome,
    estimate_from_cpu,
    estimate_from_trace,
    estimate_memory,
)
from kronos.capacity.trace import StepTrace, trace_step
from kronos.capacity.traces import load_trace, replay_trace

__all__ = [
    "AllocatorSettings",
    "Build",
    "CachingAllocator",
    "Fit",
    "MemoryEstimate",
    "Outcome",
    "Step",
    "StepTrace",
    "as_build",
    "estimate_from_cpu",
    "estimate_from_trace",
    "estimate_memory",
    "is_build",
    "load_trace",
    "replay_trace",
    "trace_step",
]

"""Training: the step, its feed, the two phases and the loop."""

from kronos.train.loop import PhaseResult, Progress, TrainingStopped, train
from kronos.train.step import StepOptions, StepResult, training_step

__all__ = [
    "PhaseResult",
    "Progress",
    "StepOptions",
    "StepResult",
    "TrainingStopped",
    "train",
    "training_step",
]

"""What a training step costs, alone and under the memory meter, in one run.

Run with `tox -e bench`. Compare the figures of one run only: machines are noisy.
"""

import pytest

from kronos.experiments import Experiment
from kronos.measure import MemoryMeter, ReferenceWorkload
from kronos.recipes import baseline

ROUNDS = 8


@pytest.fixture(scope="module")
def experiment():
    step = Experiment(baseline(), "cpu")
    step()
    return step


def test_reference_workload(benchmark):
    benchmark.pedantic(ReferenceWorkload("cpu"), rounds=ROUNDS, warmup_rounds=2)


def test_step(benchmark, experiment):
    benchmark.pedantic(experiment, rounds=ROUNDS)


def test_step_under_the_meter(benchmark, experiment):
    def metered():
        with MemoryMeter("cpu"):
            experiment()

    benchmark.pedantic(metered, rounds=ROUNDS)


def test_score(benchmark, experiment):
    benchmark.pedantic(experiment.score, rounds=1)

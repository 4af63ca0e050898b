"""Each planted fault turns the gate red, alone, and is named in the failure.

The case is a small copy of the project's own: the tiny model, the shipped bars. Its goldens
are written first, unspoiled; then one fault is planted and nothing else changes.
"""

import pytest

CASE = """
    import time

    import torch

    from kronos.recipes import baseline
    from pytest_kronos.regression import kronos_case

    CONFIG = baseline().with_overrides(
        ["training.steps=6", "training.batch_size=16", "scoring.windows=24"]
    )
    CASE = kronos_case(CONFIG)
"""

SOUND = """
    def test_case(regression):
        regression.check(CASE)
"""

NOISED = """
    from dataclasses import replace

    def spoiled(experiment, share, seed=0):
        generator = torch.Generator().manual_seed(seed)
        weights = experiment.models.forecaster.state_dict()
        sound = {name: value.clone() for name, value in weights.items()}
        for name, value in weights.items():
            if value.dim() > 1:
                noise = torch.randn(value.shape, generator=generator)
                value += share * value.std() * noise
        metrics, forecast = experiment.score()
        experiment.models.forecaster.load_state_dict(sound)
        return metrics, forecast

    def evaluate(experiment):
        sound = experiment.score()[0]["mae"]
        for share in [0.01 * step for step in range(1, 60)]:
            metrics, forecast = spoiled(experiment, share)
            if 0.06 <= metrics["mae"] / sound - 1 <= 0.10:
                return metrics, forecast
        raise AssertionError("no noise makes the error 6 to 10 % worse")

    def test_case(regression):
        regression.check(replace(CASE, evaluate=evaluate))
"""

SLOW = """
    from dataclasses import replace

    class Slow:
        def __init__(self, step):
            self.step = step

        def __call__(self):
            start = time.perf_counter()
            self.step()
            time.sleep(1.5 * (time.perf_counter() - start))

    def test_case(regression):
        regression.check(
            replace(
                CASE,
                build=lambda device: Slow(CASE.build(device)),
                evaluate=lambda slow: CASE.evaluate(slow.step),
            )
        )
"""

KEPT = """
    from dataclasses import replace

    class Keeping:
        def __init__(self, step):
            self.step = step
            self.kept = []
            step.models.forecaster.transformer[0].register_forward_hook(
                lambda module, inputs, output: self.kept.append(output)
            )

        def __call__(self):
            self.step()

    def test_case(regression):
        regression.check(
            replace(
                CASE,
                build=lambda device: Keeping(CASE.build(device)),
                evaluate=lambda keeping: CASE.evaluate(keeping.step),
            )
        )
"""


@pytest.fixture(scope="module")
def golden_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("golden")


@pytest.fixture
def run(pytester, golden_dir):
    def run_case(source, *options):
        pytester.makepyfile(test_planted=CASE + source)
        return pytester.runpytest(f"--golden-dir={golden_dir}", "--gpu-budget=12GB", *options)

    if not list(golden_dir.iterdir()):
        assert run_case(SOUND, "--golden-update").ret == 0
    return run_case


def _failures(result):
    """The figures that the failure names, from its lines "case: figure: verdict: text"."""
    lines = [line.removeprefix("E").strip() for line in result.stdout.lines]
    named = [line.split(": ")[1:3] for line in lines if line.startswith("baseline: ")]
    return {
        figure
        for figure, verdict in (one for one in named if len(one) == 2)
        if verdict == "regression"
    }


def test_the_sound_case_passes(run):
    result = run(SOUND)
    assert result.ret == 0
    assert _failures(result) == set()


def test_noised_weights_are_named_as_accuracy(run):
    result = run(NOISED)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*accuracy: regression: mae*worse; the limit is 0.05*"])
    assert _failures(result) == {"accuracy"}


def test_a_step_2_5_times_slower_is_named_as_steps_per_hour(run):
    result = run(SLOW)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*steps per hour: regression: 2.* x the golden's*limit is 2 x*"])
    assert _failures(result) == {"steps per hour"}


def test_activations_kept_across_steps_are_named_as_memory(run):
    result = run(KEPT)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["*memory: regression: allocated peak*the limit is +2%*at the peak*activations*"]
    )
    assert _failures(result) == {"memory"}


def test_a_budget_below_the_footprint_names_limit_footprint_excess_and_what_fills_it(run):
    result = run(SOUND, "--gpu-budget=100MB")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["*memory: regression: limit 100.00 MiB, footprint*GiB (*, excess*at the peak*"]
    )
    assert _failures(result) == {"memory"}

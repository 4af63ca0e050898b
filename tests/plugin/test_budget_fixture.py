"""The fixture and the marker gpu_budget, on plain PyTorch models that are not Kronos."""

import json

import pytest

MODEL = """
    import torch

    def build(device):
        model = torch.nn.Linear(512, 512).to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        batch = torch.randn(64, 512, device=device)

        def step():
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step
"""


def test_check_measures_and_passes(pytester):
    pytester.makepyfile(
        MODEL
        + """
    def test_fits(gpu_budget):
        gpu_budget.check(build)
    """
    )
    result = pytester.runpytest("--gpu-budget=12GB", "--capacity-report=out.json")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*footprint*budget*", "*test_fits*pass*12.00 GiB*"])
    (case,) = json.loads((pytester.path / "out.json").read_text())["cases"]
    assert case["budget"] == 12 * 1024**3
    assert case["memory source"] in ("estimated", "measured")
    assert sum(case["breakdown"].values()) + 1429 * 1024**2 == case["footprint"]
    weights = 4 * (512 * 512 + 512)
    assert case["breakdown"]["parameters"] == weights
    assert case["breakdown"]["optimizer states"] == 2 * weights  # its step counts are the host's


def test_check_over_the_budget_fails_with_the_reason(pytester):
    pytester.makepyfile(
        MODEL
        + """
    def test_fits(gpu_budget):
        gpu_budget.check(build)
    """
    )
    result = pytester.runpytest("--gpu-budget=100MB")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*limit 100.00 MiB, footprint*excess*at the peak*CUDA context*"])


def test_check_takes_a_step_already_built(pytester):
    pytester.makepyfile(
        MODEL
        + """
    def test_fits(gpu_budget):
        gpu_budget.check(build(gpu_budget_device()))

    def gpu_budget_device():
        from kronos.measure import default_device
        return default_device()
    """
    )
    assert pytester.runpytest("--gpu-budget=12GB").ret == 0


def test_measure_as_a_context_manager(pytester):
    pytester.makepyfile(
        MODEL
        + """
    def test_parts(gpu_budget):
        with gpu_budget.measure("training"):
            step = build("cpu")
            step()
            step()
    """
    )
    result = pytester.runpytest("--gpu-budget=12GB")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["training*pass*"])
    assert pytester.runpytest("--gpu-budget=1GB").ret == 1


def test_an_error_inside_measure_stays_the_error(pytester):
    pytester.makepyfile(
        """
    def test_breaks(gpu_budget):
        with gpu_budget.measure():
            raise ValueError("mine")
    """
    )
    result = pytester.runpytest("--gpu-budget=12GB")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ValueError: mine*"])


def test_estimate_judges_nothing(pytester):
    pytester.makepyfile(
        MODEL
        + """
    def test_estimate(gpu_budget):
        estimate = gpu_budget.estimate(build)
        assert estimate.footprint == estimate.context + estimate.peak_reserved
        assert sum(estimate.breakdown.values()) == estimate.peak_reserved
    """
    )
    assert pytester.runpytest("--gpu-budget=1MB", "--allow-unmeasured").ret == 0


MARKED = """
    import pytest
    import torch

    @pytest.fixture
    def big():
        return torch.zeros(64, 1024, 1024)  # 256 MiB

    @pytest.mark.gpu_budget("{limit}")
    def test_mine(big):
        assert (big + 1).sum() > 0  # another 256 MiB
"""


@pytest.mark.parametrize(("limit", "passed"), [("1GB", 0), ("1900MB", 0), ("2000MB", 1)])
def test_H14_the_marker_counts_the_fixtures_too(pytester, limit, passed):
    pytester.makepyfile(MARKED.format(limit=limit))
    result = pytester.runpytest()
    result.assert_outcomes(passed=passed, failed=1 - passed)
    assert result.ret == 1 - passed
    if not passed:
        result.stdout.fnmatch_lines(["*test_mine: memory: regression: limit*excess*"])


@pytest.mark.parametrize(("marker", "option"), [("12GB", "1000MB"), ("1000MB", "12GB")])
def test_of_marker_and_option_the_tighter_applies(pytester, marker, option):
    pytester.makepyfile(MARKED.format(limit=marker))
    result = pytester.runpytest(f"--gpu-budget={option}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_mine: memory: regression: limit 1,000.00 MiB*"])


def test_a_marked_test_that_fails_stops_metering(pytester):
    pytester.makepyfile(
        """
    import pytest
    import torch
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    @pytest.mark.gpu_budget("4GB")
    def test_breaks():
        raise ValueError("mine")

    def test_after():
        assert _get_current_dispatch_mode() is None
    """
    )
    result = pytester.runpytest()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*ValueError: mine*"])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def build(): return lambda: torch.zeros(3)", "*let it take the device*"),
        ("def build(device): return None", "*must return a step*"),
    ],
)
def test_what_is_neither_step_nor_build_is_refused(pytester, source, message):
    pytester.makepyfile(
        f"""
    import torch

    {source}

    def test_fits(gpu_budget):
        gpu_budget.check(build)
    """
    )
    result = pytester.runpytest("--gpu-budget=12GB")
    assert result.ret == 1
    result.stdout.fnmatch_lines([message])


def test_a_marked_test_whose_setup_fails_stops_metering_too(pytester):
    pytester.makepyfile(
        """
    import pytest
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    @pytest.fixture
    def broken():
        raise ValueError("mine")

    @pytest.mark.gpu_budget("4GB")
    def test_breaks(broken): pass

    def test_after():
        assert _get_current_dispatch_mode() is None
    """
    )
    pytester.runpytest().assert_outcomes(passed=1, errors=1)


def test_the_card_that_is_planned_for_is_the_option_s(pytester):
    pytester.makepyfile(
        MODEL
        + """
    import pytest

    def test_fixture(gpu_budget):
        gpu_budget.check(build)

    @pytest.mark.gpu_budget("12GB")
    def test_marker():
        build("cpu")()
    """
    )
    result = pytester.runpytest("--gpu=h100", "--capacity-report=out.json")
    assert result.ret == 0
    cases = json.loads((pytester.path / "out.json").read_text())["cases"]
    assert [case["card"] for case in cases] == ["NVIDIA H100 80GB HBM3"] * 2
    assert [case["breakdown"]["workspaces"] for case in cases] == [2 * 33_554_432] * 2


def test_each_check_has_a_row_of_its_own(pytester):
    pytester.makepyfile(
        MODEL
        + """
    import pytest
    from pytest_kronos import GateFailure

    def test_several(gpu_budget):
        gpu_budget.check(build, label="one")
        with gpu_budget.measure("other"):
            kept = torch.zeros(16 * 1024**2)
        gpu_budget.limit = 10
        with pytest.raises(GateFailure, match="third"):
            gpu_budget.check(build, label="third")
        gpu_budget.limit = 10**12
        gpu_budget.check(build, label="fourth")
    """
    )
    result = pytester.runpytest("--gpu-budget=12GB")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["third*regression*", "one*pass*", "other*pass*", "fourth*pass*"])


def test_out_of_memory_is_a_failure_with_the_limit_not_a_traceback(pytester):
    pytester.makepyfile(
        """
    import pytest
    import torch

    def overrun():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    def test_fixture(gpu_budget):
        gpu_budget.check(overrun)

    @pytest.mark.gpu_budget("8GB")
    def test_marker():
        overrun()
    """
    )
    result = pytester.runpytest("--gpu-budget=12GB")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "*test_fixture*memory: regression: limit 12.00 GiB, out of memory*2.00 GiB*",
            "*test_marker*memory: regression: limit 8.00 GiB, out of memory*2.00 GiB*",
        ]
    )


def test_what_a_fixture_measures_in_its_teardown_is_in_the_table(pytester):
    pytester.makepyfile(
        MODEL
        + """
    import pytest

    @pytest.fixture
    def late(gpu_budget):
        yield
        gpu_budget.check(build, label="late")

    def test_mine(late): pass
    """
    )
    result = pytester.runpytest("--gpu-budget=12GB")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["late*pass*"])


def test_an_unmeasured_test_shows_no_figures(pytester):
    pytester.makepyfile(
        """
    import pytest

    @pytest.mark.gpu_budget("8GB")
    def test_mine(): pass
    """
    )
    result = pytester.runpytest("--capacity-report=out.json")
    assert result.ret == 1
    (case,) = json.loads((pytester.path / "out.json").read_text())["cases"]
    assert (case["verdict"], case["footprint"]) == ("not-measured", None)
    assert "of the budget left" not in result.stdout.str()


def test_strict_forbids_what_only_fits_by_flushing(pytester):
    pytester.makepyfile(
        """
    import torch

    def build(device):
        def step():
            for size in (30, 34):
                torch.zeros(size * 2**20, dtype=torch.uint8, device=device)

        return step

    def test_tight(gpu_budget):
        gpu_budget.check(build)
    """
    )
    budget = f"--gpu-budget={1429 + 40}MB"
    loose = pytester.runpytest(budget)
    assert loose.ret == 0
    loose.stdout.fnmatch_lines(["*test_tight: memory: pass: *only by flushing the cache*"])
    strict = pytester.runpytest(budget, "--gpu-budget-strict")
    assert strict.ret == 1
    strict.stdout.fnmatch_lines(["*memory: regression*--gpu-budget-strict forbids it*"])

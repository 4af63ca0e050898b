"""What pytest says to good and bad options, ini values and markers."""

import pytest

from kronos.errors import ConfigError
from pytest_kronos.settings import Settings, parse_share

BAD_SIZES = ["12", "12 potatoes", "-1GB", "12Gb", "0GB", "", "GB", "nanGB", "9" * 400 + "GB"]


@pytest.fixture
def one_test(pytester):
    pytester.makepyfile("def test_nothing(): pass")
    return pytester


def _last_line(result):
    return [line for line in result.stderr.lines if line.strip()][-1]


@pytest.mark.parametrize("text", BAD_SIZES)
def test_H13_a_bad_budget_is_a_usage_error_in_one_line(one_test, text):
    result = one_test.runpytest(f"--gpu-budget={text}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    errors = [line for line in result.stderr.lines if "ERROR" in line]
    assert len(errors) == 1
    assert "--gpu-budget" in errors[0]
    assert repr(text)[:20] in errors[0]


@pytest.mark.parametrize("text", ["12GB", "12GiB", "1 MiB", " 12gb ", "rtx-3080-12gb"])
def test_H13_a_good_budget_is_taken(one_test, text):
    assert one_test.runpytest(f"--gpu-budget={text}", "--allow-unmeasured").ret == 0


@pytest.mark.parametrize("text", BAD_SIZES)
def test_H13_a_bad_marker_is_a_usage_error_that_names_the_test(pytester, text):
    pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.gpu_budget({text!r})
        def test_mine(): pass
        """
    )
    result = pytester.runpytest()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    errors = "\n".join(result.stderr.lines + result.stdout.lines)
    assert "test_mine" in errors
    assert repr(text)[:20] in errors
    assert "INTERNALERROR" not in errors


@pytest.mark.parametrize(
    "arguments", ["", "12", "'1GB', '2GB'", "size='1GB'", "'1GB', strict=True"]
)
def test_a_marker_with_other_arguments_is_refused(pytester, arguments):
    pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.gpu_budget({arguments})
        def test_mine(): pass
        """
    )
    result = pytester.runpytest()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "test_mine" in "\n".join(result.stderr.lines + result.stdout.lines)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--max-accuracy-drop", "5"),
        ("--max-accuracy-drop", "-5%"),
        ("--max-accuracy-drop", "nan"),
        ("--max-slowdown", "1"),
        ("--max-slowdown", "inf"),
        ("--max-slowdown", "twice"),
        ("--gpu", "rtx-3080"),
        ("--capacity-report", "report.pdf"),
    ],
)
def test_other_bad_options_are_usage_errors(one_test, option, text):
    result = one_test.runpytest(f"{option}={text}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    errors = [line for line in result.stderr.lines if "ERROR" in line]
    assert len(errors) == 1
    assert option in errors[0]
    assert text in errors[0]


def test_what_a_session_does_without_options(pytester):
    settings = Settings.from_pytest(pytester.parseconfig())
    assert settings == Settings(
        budget=None,
        card=None,
        strict=False,
        golden_dir=pytester.path / "golden",
        golden_update=False,
        max_accuracy_drop=0.05,
        max_slowdown=2.0,
        reports=(),
        allow_unmeasured=False,
        budget_asked_for=False,
        gate_asked_for=False,
    )


def test_options_beat_ini_values_and_an_error_names_where_it_stands(pytester):
    pytester.makeini("[pytest]\nmax_slowdown = 3\nmax_accuracy_drop = 10%\ngpu = t4")
    settings = Settings.from_pytest(pytester.parseconfig("--max-slowdown=4"))
    assert (settings.max_slowdown, settings.max_accuracy_drop) == (4.0, 0.1)
    assert settings.card.slug == "t4"
    pytester.makeini("[pytest]\nmax_slowdown = 0")
    with pytest.raises(ConfigError, match=r"^ini max_slowdown: a slowdown is"):
        Settings.from_pytest(pytester.parseconfig())


def test_a_budget_names_a_card_and_the_option_gpu_another(pytester):
    named = Settings.from_pytest(pytester.parseconfig("--gpu-budget=t4"))
    assert (named.card.slug, named.budget) == ("t4", named.card.memory)
    other = Settings.from_pytest(pytester.parseconfig("--gpu-budget=t4", "--gpu=h100"))
    assert (other.card.slug, other.budget) == ("h100", named.budget)


@pytest.mark.parametrize(
    ("option", "budget"),
    [("--gpu-budget=1GB", True), ("--capacity-report=a.md", False), ("--golden-update", False)],
)
def test_what_makes_a_session_a_gate(pytester, option, budget):
    settings = Settings.from_pytest(pytester.parseconfig(option))
    assert (settings.gate_asked_for, settings.budget_asked_for) == (True, budget)


def test_where_goldens_are(pytester, monkeypatch):
    pytester.makeini("[pytest]\ngolden_dir = of/ini")
    inner = pytester.mkdir("inner")
    monkeypatch.chdir(inner)
    assert Settings.from_pytest(pytester.parseconfig()).golden_dir == pytester.path / "of/ini"
    typed = Settings.from_pytest(pytester.parseconfig("--golden-dir=typed"))
    assert typed.golden_dir == inner / "typed"  # from where it was typed


@pytest.mark.parametrize(
    ("text", "share"), [("5%", 0.05), (" 0.05 ", 0.05), ("100%", 1.0), ("1", 1.0)]
)
def test_shares(text, share):
    assert parse_share(text) == share


def test_an_unknown_card_names_the_nearest(one_test):
    result = one_test.runpytest("--gpu-budget=rtx-3080")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "did you mean rtx-3080-12gb?" in "\n".join(result.stderr.lines)


LIMIT_TEST = """
    import pytest

    {marker}
    def test_limit(gpu_budget):
        assert gpu_budget.limit == {expected}
"""


@pytest.mark.parametrize(
    ("ini", "option", "marker", "expected"),
    [
        (None, None, None, None),
        ("8GB", None, None, 8 * 1024**3),
        ("8GB", "12GB", None, 12 * 1024**3),
        ("8GB", "12GB", "10GB", 10 * 1024**3),
        (None, "12GB", "16GB", 12 * 1024**3),
        (None, "t4", None, 15360 * 1024**2),
    ],
)
def test_option_beats_ini_and_the_tighter_of_option_and_marker_applies(
    pytester, ini, option, marker, expected
):
    if ini:
        pytester.makeini(f"[pytest]\ngpu_budget = {ini}")
    decorator = f"@pytest.mark.gpu_budget('{marker}')" if marker else ""
    pytester.makepyfile(LIMIT_TEST.format(marker=decorator, expected=expected))
    options = ["--allow-unmeasured"] + ([f"--gpu-budget={option}"] if option else [])
    result = pytester.runpytest(*options)
    result.assert_outcomes(passed=0 if marker else 1, failed=1 if marker else 0)
    if marker:  # the limit was right; what fails is that the marked test used no tensor
        result.stdout.fnmatch_lines(["*not-measured*"])


def test_an_ini_budget_alone_does_not_make_every_session_a_gate(one_test):
    one_test.makeini("[pytest]\ngpu_budget = 8GB")
    assert one_test.runpytest().ret == 0


def test_the_gpu_marker_skips_with_the_reason(pytester):
    pytest.importorskip("torch")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.gpu
        def test_card():
            import torch
            assert torch.cuda.is_available()
        """
    )
    result = pytester.runpytest("-rs")
    outcomes = result.parseoutcomes()
    assert outcomes.get("passed", 0) + outcomes.get("skipped", 0) == 1
    if "skipped" in outcomes:
        result.stdout.fnmatch_lines(["*needs a CUDA card*"])

"""What the README tells a reader to type works as it stands."""

import re
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from kronos.cli import app
from kronos.config import RunConfig

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_example_of_a_gate_runs(pytester):
    (example,) = [block for block in _blocks("python") if "gpu_budget" in block]
    pytester.makepyfile(test_mine=example)
    written = pytester.runpytest("--golden-update")
    written.assert_outcomes(passed=3)
    result = pytester.runpytest("--gpu-budget=12GB")
    result.assert_outcomes(passed=3)


def test_every_option_and_fixture_it_names_exists(pytester):
    named = set(re.findall(r"`(--[a-z-]+)", README)) - {"--set"}
    text = pytester.runpytest("--help").stdout.str()
    reading = get_command(app).commands["data"].commands["check"].params
    known = {option for parameter in reading for option in parameter.opts}
    assert not [option for option in named - known if option not in text]
    fixtures = pytester.runpytest("--fixtures").stdout.str()
    assert all(f"\n{name} -- " in fixtures for name in re.findall(r"fixture `(\w+)`", README))


def test_every_command_it_names_exists():
    commands = set(re.findall(r"kronos (train|predict|gpus|[a-z]+) ", "\n".join(_blocks(""))))
    for command in commands:
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0, command


@pytest.mark.parametrize("path", re.findall(r"\]\(([^)#]+)\)", README))
def test_every_link_within_the_project_leads_somewhere(path):
    assert path.startswith("https://") or (ROOT / path).exists()


def test_its_recipes_are_the_project_s():
    from kronos.recipes import recipe

    rows = re.findall(r"^\| `([a-z-]+)` \| (\d+) \| (\d+) \| (\d+) \|", README, flags=re.MULTILINE)
    assert len(rows) == 3
    for name, *numbers in rows:
        config: RunConfig = recipe(name)
        training = config.training
        assert [training.window, training.horizon, training.batch_size] == [*map(int, numbers)]

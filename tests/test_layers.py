"""Who may import whom, and that nothing heavy is loaded before it is needed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# From the ground up: each package or module, and what of this project it may import.
MAY_IMPORT = {
    "kronos.errors": set(),
    "kronos.files": set(),
    "kronos.config": {"errors", "recipes"},  # recipes: only inside load_config
    "kronos.recipes": {"errors", "config"},
    "kronos.hardware": {"errors"},
    "kronos.samples": {"errors"},
    "kronos.measure": {"errors", "hardware", "measure"},
    "kronos.capacity": {"errors", "hardware", "measure", "capacity"},
    "kronos.report": {"errors", "files", "hardware", "report"},
    "kronos.data": {"errors", "files", "samples", "data"},
    "kronos.model": {"errors", "files", "model"},
    "kronos.evaluate": {"errors", "evaluate"},
    "kronos.predict": {"errors", "model", "data", "predict"},
    "kronos.checkpoint": {"errors", "config", "measure", "model", "predict", "samples"},
    "kronos.train": {
        *("errors", "config", "samples", "measure", "capacity", "data", "model", "checkpoint"),
        "train",
    },
    "kronos.plan": {"config", "hardware", "capacity", "checkpoint", "data", "train"},
    "kronos.remedies": {"config", "hardware", "capacity", "plan"},
    "kronos.experiments": {"config", "checkpoint", "data", "evaluate", "predict", "train"},
}
LAZY_AT_THE_TOP = {"kronos", "kronos.cli"}  # may name anything, inside functions


def _modules():
    for package in ("kronos", "pytest_kronos"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield name.removesuffix(".__init__"), path


def _imports(path):
    """Names of the modules that a file imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module
            if node.module == "kronos":
                yield from (f"kronos.{alias.name}" for alias in node.names)


def _rule_of(module):
    parts = module.split(".")
    return ".".join(parts[:2])


@pytest.mark.parametrize(("module", "path"), list(_modules()))
def test_imports_go_downwards(module, path):
    names = {name for name in _imports(path) if name.split(".")[0] in ("kronos", "pytest_kronos")}
    if module.startswith("pytest_kronos"):
        return
    assert not [name for name in names if name.startswith("pytest_kronos")]
    if _rule_of(module) in LAZY_AT_THE_TOP:
        return
    allowed = MAY_IMPORT[_rule_of(module)]
    used = {name.split(".")[1] for name in names if name.count(".") >= 1} - {"__version__"}
    assert used <= allowed, f"{module} imports {sorted(used - allowed)}"


def test_every_module_has_a_rule():
    ours = {_rule_of(module) for module, _ in _modules() if module.startswith("kronos.")}
    assert ours - LAZY_AT_THE_TOP == set(MAY_IMPORT)


@pytest.mark.parametrize(
    ("word", "allowed"),
    [
        ("torch.cuda", {"kronos.measure.cuda", "kronos.capacity.fake_card"}),  # the latter fakes it
        ("pynvml", {"kronos.hardware"}),
    ],
)
def test_the_card_is_asked_in_one_place(word, allowed):
    users = {module for module, path in _modules() if word in _code_without_strings(path)}
    assert users <= allowed


def _code_without_strings(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.unparse(tree)


@pytest.mark.parametrize(
    "command",
    [
        "import kronos",
        "import kronos.config, kronos.recipes, kronos.hardware, kronos.report",
        "import pytest_kronos.plugin, pytest_kronos.session, pytest_kronos.golden",
        "import sys; sys.argv = ['kronos', '--help']; from kronos.cli import app; "
        "app(standalone_mode=False)",
        "import sys; sys.argv = ['kronos', 'gpus']; from kronos.cli import app; "
        "app(standalone_mode=False)",
        "import pytest; pytest.main(['--help'])",
    ],
)
def test_starts_without_torch(command):
    code = f"{command}\nimport sys\nassert 'torch' not in sys.modules, 'torch was imported'"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr

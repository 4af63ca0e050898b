"""The plugin's hooks. They translate: between pytest and the modules beside this one.

Start-up is free of torch; what needs it is imported when a test first asks.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from kronos.errors import KronosError
from pytest_kronos.settings import Settings
from pytest_kronos.verdicts import Record

if TYPE_CHECKING:
    from pytest_kronos.budget import GpuBudget, MemoryWatch
    from pytest_kronos.regression import Golden, Regression
    from pytest_kronos.throughput import StepsPerHour

_MARKERS = (
    'gpu_budget(size): the whole test, fixtures included, may take no more of a card ("12GB")',
    "gpu: needs a real card; skipped with the reason elsewhere",
)
_SETTINGS = pytest.StashKey[Settings]()
_RECORD = pytest.StashKey[Record]()
_WATCH: "pytest.StashKey[MemoryWatch]" = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kronos", "peak GPU memory, steps per hour and accuracy")
    group.addoption(
        "--gpu-budget",
        metavar="SIZE|CARD",
        help='largest footprint a test may have: "12GB" (= 12GiB), or a card of `kronos gpus`',
    )
    group.addoption("--gpu", metavar="CARD", help="the card to plan for where none is present")
    group.addoption("--golden-dir", metavar="DIR", help="golden files (default: golden)")
    group.addoption(
        "--golden-update", action="store_true", help="write the goldens and report what moved"
    )
    group.addoption(
        "--max-accuracy-drop", metavar="SHARE", help="fail above this drop (default: 5%%)"
    )
    group.addoption(
        "--max-slowdown", metavar="FACTOR", help="fail above this step time (default: 2.0)"
    )
    group.addoption(
        "--capacity-report",
        metavar="PATH",
        action="append",
        help="write the table to a .md, .csv, .json or .html; may be given several times",
    )
    group.addoption(
        "--allow-unmeasured",
        action="store_true",
        help="do not fail a session in which nothing was measured",
    )
    for name, text in (
        ("gpu_budget", "see --gpu-budget"),
        ("gpu", "see --gpu"),
        ("golden_dir", "see --golden-dir"),
        ("max_accuracy_drop", "see --max-accuracy-drop"),
        ("max_slowdown", "see --max-slowdown"),
    ):
        parser.addini(name, text, default=None)


def pytest_configure(config: pytest.Config) -> None:
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    try:
        config.stash[_SETTINGS] = Settings.from_pytest(config)
    except KronosError as error:
        raise pytest.UsageError(str(error)) from error
    if not hasattr(config, "workerinput"):  # under xdist the controller alone decides
        from pytest_kronos.session import Session

        config.pluginmanager.register(Session(config.stash[_SETTINGS]), "kronos-session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        _marker_limit(item)  # a marker that cannot be read stops the session before any test


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    if item.get_closest_marker("gpu"):
        _skip_without_card()
    if item.get_closest_marker("gpu_budget"):
        from pytest_kronos.budget import MemoryWatch

        settings = item.config.stash[_SETTINGS]
        item.stash[_WATCH] = MemoryWatch(_limit_of(item), settings.card)
        item.stash[_WATCH].start()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    result = yield
    watch = item.stash.get(_WATCH, None)
    if watch is not None:
        from pytest_kronos.budget import note_usage
        from pytest_kronos.verdicts import raise_failures

        note_usage(_record_of(item), watch.stop(), _limit_of(item))
        raise_failures(_record_of(item))
    return result


def pytest_runtest_teardown(item: pytest.Item) -> None:
    watch = item.stash.get(_WATCH, None)
    if watch is not None:
        watch.abandon()  # where the test failed before it could be judged
        del item.stash[_WATCH]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    record = item.stash.get(_RECORD, None)
    if call.when == "call" and record is not None and record.findings:
        item.user_properties.append(("kronos", record.as_dict()))
    return (yield)


def _record_of(item: pytest.Item) -> Record:
    return item.stash.setdefault(_RECORD, Record(case=item.name))


def _marker_limit(item: pytest.Item) -> int | None:
    marker = item.get_closest_marker("gpu_budget")
    if marker is None:
        return None
    if len(marker.args) != 1 or marker.kwargs or not isinstance(marker.args[0], str):
        raise pytest.UsageError(
            f'{item.nodeid}: the marker is gpu_budget("12GB"), one text; '
            f"got {marker.args or marker.kwargs!r}"
        )
    from kronos.hardware import parse_budget

    try:
        return parse_budget(marker.args[0])[0]
    except KronosError as error:
        raise pytest.UsageError(f"{item.nodeid}: gpu_budget: {error}") from error


def _limit_of(item: pytest.Item) -> int | None:
    from pytest_kronos.budget import tighter

    return tighter(item.config.stash[_SETTINGS].budget, _marker_limit(item))


def _skip_without_card() -> None:
    from kronos.measure import default_device

    if default_device() != "cuda":
        pytest.skip("needs a CUDA card, and PyTorch sees none here")


@pytest.fixture
def gpu_budget(request: pytest.FixtureRequest) -> "GpuBudget":
    """Promises about the memory of a card: `.limit`, `.measure()`, `.check()`, `.estimate()`."""
    from pytest_kronos.budget import GpuBudget

    settings = request.config.stash[_SETTINGS]
    return GpuBudget(_limit_of(request.node), settings.card, _record_of(request.node))


@pytest.fixture
def steps_per_hour(request: pytest.FixtureRequest) -> "StepsPerHour":
    """Times a step in turn with a reference workload, on pytest-benchmark's `benchmark`."""
    from pytest_kronos.throughput import StepsPerHour

    def benchmark() -> object:
        with_plugin = request.config.pluginmanager.hasplugin("benchmark")
        return request.getfixturevalue("benchmark") if with_plugin else None

    return StepsPerHour(benchmark, record=_record_of(request.node))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> "Golden":
    """Compares metrics and forecasts with the golden files."""
    from pytest_kronos.regression import Golden

    return Golden(request.config.stash[_SETTINGS], _record_of(request.node))


@pytest.fixture
def regression(request: pytest.FixtureRequest, steps_per_hour: "StepsPerHour") -> "Regression":
    """Holds one configuration to all three promises."""
    from pytest_kronos.regression import Regression

    return Regression(
        request.config.stash[_SETTINGS],
        _limit_of(request.node),
        steps_per_hour,
        _record_of(request.node),
    )

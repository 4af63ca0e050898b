"""The plugin's hooks. They translate: between pytest and the modules beside this one.

Start-up is free of torch; what needs it is imported when a test first asks.
"""

from collections.abc import Generator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from kronos.errors import KronosError
from pytest_kronos.settings import Settings
from pytest_kronos.verdicts import GateFailure, Ledger

if TYPE_CHECKING:
    from pytest_kronos.budget import GpuBudget, MemoryWatch, Promise
    from pytest_kronos.comparison import Golden
    from pytest_kronos.regression import Regression
    from pytest_kronos.throughput import StepsPerHour

_MARKERS = (
    'gpu_budget(size): the whole test, fixtures included, may take no more of a card ("12GB")',
    "gpu: needs a real card; skipped with the reason elsewhere",
)
_SETTINGS = pytest.StashKey[Settings]()
_LEDGER = pytest.StashKey[Ledger]()
_BAD_MARKER = pytest.StashKey[str]()
_WATCH: "pytest.StashKey[MemoryWatch]" = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kronos", "peak GPU memory, steps per hour and accuracy")
    group.addoption(
        "--gpu-budget",
        metavar="SIZE|CARD",
        help='largest footprint a test may have: "12GB" (= 12GiB), or a card of `kronos gpus`',
    )
    group.addoption("--gpu", metavar="CARD", help="the card to plan for where none is present")
    group.addoption(
        "--gpu-budget-strict",
        action="store_true",
        help="fail a run that only fits by flushing the allocator's cache, which is slow",
    )
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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    try:
        for item in items:
            _marker_limit(item)  # a marker that cannot be read stops the session before any test
    except pytest.UsageError as error:
        if not hasattr(config, "workerinput"):
            raise
        config.stash[_BAD_MARKER] = str(error)  # told by the controller, see session.py
        items.clear()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _BAD_MARKER in session.config.stash:
        session.config.workeroutput["kronos_bad_marker"] = session.config.stash[_BAD_MARKER]  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    if item.get_closest_marker("gpu"):
        _skip_without_card()
    if item.get_closest_marker("gpu_budget"):
        from pytest_kronos.budget import MemoryWatch

        item.stash[_WATCH] = MemoryWatch(_promise_of(item))
        item.stash[_WATCH].__enter__()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    watch = item.stash.get(_WATCH, None)
    if watch is None:
        return (yield)
    del item.stash[_WATCH]
    result = None
    with ExitStack() as entered_in_setup:
        entered_in_setup.push(watch)
        result = yield
    _judge_marked(item, watch)
    return result


def _judge_marked(item: pytest.Item, watch: "MemoryWatch") -> None:
    from pytest_kronos.verdicts import raise_failures

    record = _ledger_of(item).open()
    watch.note(record)
    try:
        raise_failures(record)
    except GateFailure as failure:
        pytest.fail(str(failure), pytrace=False)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    if _WATCH in item.stash:  # the test's setup failed
        watch = item.stash[_WATCH]
        del item.stash[_WATCH]
        watch.__exit__(None, None, None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    for record in item.stash[_LEDGER].unreported() if _LEDGER in item.stash else ():
        item.user_properties.append(("kronos", record))
    return (yield)


def _ledger_of(item: pytest.Item) -> Ledger:
    return item.stash.setdefault(_LEDGER, Ledger(item.nodeid))


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


def _promise_of(item: pytest.Item) -> "Promise":
    from pytest_kronos.budget import Promise, tighter

    settings = item.config.stash[_SETTINGS]
    limit = tighter(settings.budget, _marker_limit(item))
    return Promise(limit=limit, card=settings.card, strict=settings.strict)


def _skip_without_card() -> None:
    from kronos.measure import default_device

    if default_device() != "cuda":
        pytest.skip("needs a CUDA card, and PyTorch sees none here")


@pytest.fixture
def gpu_budget(request: pytest.FixtureRequest) -> "GpuBudget":
    """Promises about the memory of a card: `.limit`, `.measure()`, `.check()`, `.estimate()`."""
    from pytest_kronos.budget import GpuBudget

    return GpuBudget(_promise_of(request.node), _ledger_of(request.node))


@pytest.fixture
def steps_per_hour(request: pytest.FixtureRequest) -> "StepsPerHour":
    """Times a step in turn with a reference workload, on pytest-benchmark's `benchmark`."""
    from pytest_kronos.throughput import StepsPerHour

    def benchmark() -> object:
        with_plugin = request.config.pluginmanager.hasplugin("benchmark")
        return request.getfixturevalue("benchmark") if with_plugin else None

    return StepsPerHour(benchmark, _ledger_of(request.node))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> "Golden":
    """Compares metrics and forecasts with the golden files."""
    from pytest_kronos.comparison import Golden

    return Golden(request.config.stash[_SETTINGS], _ledger_of(request.node))


@pytest.fixture
def regression(request: pytest.FixtureRequest, steps_per_hour: "StepsPerHour") -> "Regression":
    """Holds one configuration to all three promises."""
    from pytest_kronos.regression import Regression

    return Regression(
        request.config.stash[_SETTINGS],
        _promise_of(request.node),
        steps_per_hour,
        _ledger_of(request.node),
    )

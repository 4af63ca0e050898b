"""What counts as a step and what as a build of one."""

import pytest

from kronos.capacity import as_build, is_build
from kronos.errors import ConfigError


def test_a_step_already_built_counts_as_a_build():
    calls = []
    step = as_build(lambda: calls.append(1))("cpu")
    step()
    assert calls == [1]
    optional = as_build(lambda times=2: calls.append(times))("cpu")
    optional()
    assert calls == [1, 2]
    assert as_build(lambda: int)("cpu")() is int  # a class is a result like others


def test_a_build_may_take_its_device_by_position_only():
    def build(device, /):
        return lambda: device

    assert as_build(build)("cpu")() == "cpu"


def test_what_is_neither_step_nor_build_is_refused():
    with pytest.raises(ConfigError, match="let it take the device"):
        as_build(lambda: lambda: None)("cpu")()
    with pytest.raises(ConfigError, match="must return a step"):
        as_build(lambda device: None)("cpu")


def test_what_needs_an_argument_is_a_build():
    assert is_build(lambda device: None)
    assert not is_build(lambda: None)
    assert not is_build(lambda times=2: None)

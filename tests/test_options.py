# SPDX-License-Identifier: Apache-2.0
"""Options: a wrong value is refused where it is set, and changes nothing."""

import pytest

from tilus.errors import ArgumentError
from tilus.options import Option


@pytest.fixture
def option(monkeypatch):
    for name in ("TILUS_DEVICE", "TILUS_WORKERS"):
        monkeypatch.delenv(name, raising=False)
    return Option()


def test_a_wrong_device_changes_nothing(option):
    option.device("sim")
    with pytest.raises(ArgumentError, match="one of auto, cuda, sim, got 'gpu'"):
        option.device("gpu")
    assert option.current_device == "sim"


@pytest.mark.parametrize("count", [0, -1, 2.5, "²", "many"])
def test_a_wrong_number_of_workers_changes_nothing(option, count):
    option.parallel_workers(3)
    with pytest.raises(ArgumentError, match="an integer of at least 1"):
        option.parallel_workers(count)
    assert option.current_workers == 3


@pytest.mark.parametrize("name, text", [("DEVICE", "gpu"), ("WORKERS", "0")])
def test_a_wrong_environment_is_refused_when_it_is_read(monkeypatch, name, text):
    monkeypatch.setenv(f"TILUS_{name}", text)
    with pytest.raises(ArgumentError, match=f"TILUS_{name}"):
        getattr(Option(), f"current_{name.lower()}")

# SPDX-License-Identifier: Apache-2.0
"""What every test of tuning begins with: no cache, the simulator, and two arrays."""

import pytest
from tests.autotune.rig import made_arrays, set_options


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    return set_options(monkeypatch, tmp_path / "cache")


@pytest.fixture
def arrays():
    return made_arrays()

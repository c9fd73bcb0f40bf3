# SPDX-License-Identifier: Apache-2.0
"""Tests here need a Hopper GPU; without one they are skipped, for no other reason."""

import pytest
from tests.kernels import load_v3

from tilus import runtime


@pytest.fixture(scope="session")
def gpu():
    """The GPU that tests run on."""
    if runtime.find_gpu() is None:
        pytest.skip("no Hopper GPU")
    return runtime.require_gpu()


@pytest.fixture
def torch(gpu):
    """PyTorch, where there is one."""
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def v3(gpu):
    """V3 with a ring of four stages: K of 64 is shorter than the ring."""
    return load_v3()(4, 128, 128, 64)

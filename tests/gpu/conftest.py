# SPDX-License-Identifier: Apache-2.0
"""Tests here need a Hopper GPU; without one they are skipped, for no other reason."""

import pytest

from tilus import runtime


@pytest.fixture(scope="session")
def gpu():
    """The GPU that tests run on."""
    if runtime.find_gpu() is None:
        pytest.skip("no Hopper GPU")
    return runtime.require_gpu()

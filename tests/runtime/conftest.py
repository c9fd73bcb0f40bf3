# SPDX-License-Identifier: Apache-2.0
"""The fake driver, in place of the real one wherever the runtime looks for it."""

import pytest
from tests.runtime.fake_driver import H200, FakeDriver

from tilus.runtime import arrays, driver, launch, mapped, stream, tensor_map


@pytest.fixture
def fake(monkeypatch):
    """A fake driver with one fake H200."""
    made = FakeDriver()
    for module in (arrays, driver, launch, mapped, stream, tensor_map):
        monkeypatch.setattr(module, "binding", lambda: made)
    monkeypatch.setattr(launch, "gpus", lambda: (H200,))
    driver.primary_context.cache_clear()
    yield made
    driver.primary_context.cache_clear()

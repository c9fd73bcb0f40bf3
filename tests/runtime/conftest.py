# SPDX-License-Identifier: Apache-2.0
"""The fake driver, in place of the real one wherever the runtime looks for it."""

from types import SimpleNamespace

import pytest
from tests.runtime.fake_driver import H200, FakeDriver

import tilus
from tilus import runtime
from tilus.runtime import arrays, driver, graph, launch, mapped, stream, tensor_map


@pytest.fixture
def fake(monkeypatch):
    """A fake driver with one fake H200."""
    made = FakeDriver()
    for module in (arrays, driver, graph, launch, mapped, stream, tensor_map):
        monkeypatch.setattr(module, "binding", lambda: made)
    monkeypatch.setattr(launch, "gpus", lambda: (H200,))
    driver.primary_context.cache_clear()
    yield made
    driver.primary_context.cache_clear()


@pytest.fixture
def gpu(fake, monkeypatch, device):
    """A fake GPU that loads every kernel; ``fake.read`` stands for what a kernel does."""
    monkeypatch.setattr(runtime, "gpus", lambda: (H200,))
    monkeypatch.setattr(runtime, "require_gpu", lambda: H200)
    handle = SimpleNamespace(handle=0x3000)
    monkeypatch.setattr(
        runtime, "load", lambda code, name, n, index: runtime.Function(name, n, H200, handle)
    )
    device("cuda")
    yield fake
    tilus.option.debug.watchdog(None)
    tilus.option.debug.trace(None)

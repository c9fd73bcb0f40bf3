# SPDX-License-Identifier: Apache-2.0
"""The fake driver, in place of the real one wherever the runtime looks for it; a fake PyTorch."""

import ctypes
import sys
from types import ModuleType, SimpleNamespace

import pytest
from tests.runtime.fake_driver import H200, FakeDriver
from tests.runtime.tensors import seen

import tilus
from tilus import runtime
from tilus.launch import launcher
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


@pytest.fixture
def torch(gpu, monkeypatch):
    """A fake GPU, and a PyTorch with a current stream; a tensor map holds what it was made of."""

    def encode(place, kind, rank, address, shape, *rest):
        words = (ctypes.c_uint64 * 4).from_address(place)
        words[:] = [address, *shape, 7]
        return 0

    made = ModuleType("torch")
    made.stream = 0x50
    made._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda index: made.stream + index)
    monkeypatch.setitem(sys.modules, "torch", made)
    monkeypatch.setattr(tensor_map, "_encoder", lambda: encode)
    tensor_map.encode_tensor_map.cache_clear()
    gpu.read = seen
    yield made
    tensor_map.encode_tensor_map.cache_clear()


@pytest.fixture
def bound(monkeypatch):
    """The calls that were bound, rather than found."""
    log = []
    bind = launcher.bind
    monkeypatch.setattr(launcher, "bind", lambda *words: log.append(words) or bind(*words))
    return log

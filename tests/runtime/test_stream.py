# SPDX-License-Identifier: Apache-2.0
"""Which stream a launch goes to, and events."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from tilus.errors import ArgumentError, DeviceError
from tilus.runtime import (
    Event,
    current_stream,
    library_stream,
    profiled,
    stream_handle,
    synchronize,
)

PLAIN = np.zeros(1)


def of(library):
    """Return an array that claims to come from ``library``."""
    return type("Array", (), {"__module__": library})()


@pytest.fixture
def libraries(monkeypatch):
    """PyTorch with current stream 100 + device, and CuPy with current stream 7."""
    torch, cupy = ModuleType("torch"), ModuleType("cupy")
    torch._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 100 + device)
    torch.cuda = SimpleNamespace(
        current_stream=lambda device: SimpleNamespace(cuda_stream=200 + device),
        is_initialized=lambda: True,
    )
    cupy.cuda = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=7))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "cupy", cupy)


def test_the_argument_comes_first(libraries):
    arrays = [of("torch")]
    assert stream_handle(5, arrays, 0) == 5
    assert stream_handle(SimpleNamespace(__cuda_stream__=lambda: (0, 6)), arrays, 0) == 6
    assert stream_handle(SimpleNamespace(cuda_stream=8), arrays, 0) == 8
    assert stream_handle(0, arrays, 0) == 0


def test_then_the_current_stream_of_the_arrays_library(libraries):
    assert stream_handle(None, [PLAIN, of("torch.nn.parameter")], 1) == 101
    assert stream_handle(None, [of("cupy"), of("torch")], 1) == 7
    own = type("Own", (type(of("torch")),), {"__module__": "elsewhere"})
    assert stream_handle(None, [own()], 1) == 101


def test_a_pytorch_without_the_short_way_is_asked_the_long_one(libraries, monkeypatch):
    monkeypatch.setattr(sys.modules["torch"], "_C", SimpleNamespace())
    assert stream_handle(None, [of("torch")], 1) == 201


def test_the_stream_is_asked_for_anew_each_time(libraries, monkeypatch):
    ask = current_stream([PLAIN, of("cupy")], 0)
    assert ask() == 7
    monkeypatch.setattr(
        sys.modules["cupy"].cuda, "get_current_stream", lambda: SimpleNamespace(ptr=8)
    )
    assert ask() == 8


def test_else_the_default_stream(libraries):
    assert stream_handle(None, [PLAIN, of("torchvision"), of("builtins")], 0) == 0


def test_the_current_stream_of_a_program_is_that_of_the_library_it_uses(libraries, monkeypatch):
    assert library_stream(1) == 101
    monkeypatch.setattr(sys.modules["torch"].cuda, "is_initialized", lambda: False)
    assert library_stream(1) == 7
    monkeypatch.delitem(sys.modules, "cupy")
    assert library_stream(1) == 0


@pytest.mark.parametrize("thing", ["0", 1.5, True, object()])
def test_what_is_no_stream_is_refused(thing):
    with pytest.raises(ArgumentError, match=f"stream must be .*got a {type(thing).__name__}"):
        stream_handle(thing, [], 0)


def test_an_error_of_a_kernel_comes_out_while_waiting(fake):
    fake.failing["cuCtxSynchronize"] = fake.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DeviceError, match="waiting for the GPU: CUDA_ERROR_ILLEGAL_ADDRESS"):
        synchronize()
    assert fake.current == [0]


def test_events_that_cannot_be_made_leave_nothing_behind(fake, monkeypatch):
    monkeypatch.setattr(type(fake), "_cuEventCreate", lambda self, flags: (), raising=False)
    fake.failing["cuEventCreate"] = fake.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(DeviceError, match="creating an event"):
        Event()
    assert fake.current == [0]


def test_a_profiler_sees_what_is_queued_inside_and_nothing_from_before(fake):
    with profiled():
        assert fake.calls[-1] == "cuProfilerStart"
        before = len(fake.calls)
    waits = [name for name in fake.calls if name in ("cuCtxSynchronize", "cuProfilerStart")]
    assert waits[:2] == ["cuCtxSynchronize", "cuProfilerStart"]
    assert [n for n in fake.calls[before:] if "Ctx" not in n or "Sync" in n] == [
        "cuCtxSynchronize", "cuProfilerStop"
    ]  # fmt: skip

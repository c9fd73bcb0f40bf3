# SPDX-License-Identifier: Apache-2.0
"""Streams of whatever library they come from, events with times, and waiting."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tilus.errors import ArgumentError
from tilus.runtime.arrays import library_of
from tilus.runtime.driver import binding, check, on

NEVER_CAPTURED = (0, 1)
"""Handles of the default stream in its old form, which the driver never captures."""
PER_THREAD = 2
"""Handle of the default stream in its new form: of another stream in each thread."""


class _Own(threading.local):
    """What a thread has for itself; no two threads' are ever equal, as their numbers may be."""

    def __init__(self) -> None:
        self.token = object()


_own = _Own()


def queue_of(handle: int) -> Hashable:
    """Return what tells one stream from another, those that threads know by the same handle too."""
    return _own.token if handle == PER_THREAD else handle


def stream_handle(stream: object, arrays: Iterable[object], device: int) -> int:
    """Return the handle of the stream to launch on.

    That is ``stream`` where given (an object with ``__cuda_stream__``, or a handle); else the
    current stream of the library that the first PyTorch or CuPy array among ``arrays`` belongs to;
    else 0, the default stream.
    """
    if stream is None:
        return current_stream(arrays, device)()
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    if hasattr(stream, "cuda_stream"):  # PyTorch before it knew the protocol
        return int(stream.cuda_stream)
    rule = "a stream with __cuda_stream__ or the handle of one (an int)"
    remedy = "Pass a stream of PyTorch, CuPy or cuda.core, or None."
    raise ArgumentError("stream", rule, f"a {type(stream).__name__}", remedy)


def current_stream(arrays: Iterable[object], device: int) -> Callable[[], int]:
    """Return what tells the handle of the stream to launch on where none is given, now or later:
    the current one of the library of the first PyTorch or CuPy array, else the default one."""
    # Who made an array has imported its library: looking it up costs no import.
    library = next(filter(None, map(library_of, arrays)), None)
    return _asking(library, device) if library else lambda: 0


def library_stream(device: int) -> int:
    """Return the handle of the current stream of PyTorch or CuPy, where the program uses one on
    GPUs; else 0, the default stream."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return _asking("torch", device)()
    return _asking("cupy", device)() if "cupy" in sys.modules else 0


def _asking(library: str, device: int) -> Callable[[], int]:
    """Return what asks a library for the handle of its current stream."""
    package: Any = sys.modules[library]
    if library == "cupy":
        return lambda: int(package.cuda.get_current_stream().ptr)
    # What current_stream() asks itself, before it makes an object of the answer: a tenth the time.
    ask = getattr(package._C, "_cuda_getCurrentRawStream", None)
    if ask is not None:
        return partial(ask, device)
    return lambda: int(package.cuda.current_stream(device).cuda_stream)


def captured(handle: int) -> bool:
    """Return whether launches on a stream become parts of a CUDA graph, and run later."""
    if handle in NEVER_CAPTURED:
        return False
    driver = binding()
    result = driver.cuStreamIsCapturing(driver.CUstream(handle))
    return bool(check("asking whether a stream is captured", result))


def stream_context(handle: int) -> int:
    """Return the context in which kernels that come to a stream run: the current one for default
    streams, that of a part of the GPU where the stream was made for a green context."""
    driver = binding()
    result = driver.cuStreamGetCtx(driver.CUstream(handle))
    return int(check("asking which context a stream belongs to", result))


class Event:
    """A moment in a stream's work, with a time stamp."""

    def __init__(self, device: int = 0) -> None:
        # cuda.core records events on its own streams only; ours come as handles from anywhere.
        self._device = device
        with on(device):
            self._event = check("creating an event", binding().cuEventCreate(0))

    def __del__(self) -> None:
        if hasattr(self, "_event"):
            binding().cuEventDestroy(self._event)

    def record(self, stream: int = 0) -> None:
        """Take the time when all that ``stream`` was asked to do so far is done."""
        driver = binding()
        with on(self._device):
            check("recording an event", driver.cuEventRecord(self._event, driver.CUstream(stream)))

    def synchronize(self) -> None:
        """Wait for the moment to come; raise DeviceError if a kernel failed before."""
        check("waiting for an event", binding().cuEventSynchronize(self._event))

    def since(self, start: Event) -> float:
        """Return the milliseconds from ``start`` to this event; both must have come."""
        result = binding().cuEventElapsedTime(start._event, self._event)
        return float(check("reading an event's time", result))


def synchronize(device: int = 0) -> None:
    """Wait for all work of a GPU; raise DeviceError if a kernel failed."""
    with on(device):
        check("waiting for the GPU", binding().cuCtxSynchronize())


@contextmanager
def profiled(device: int = 0) -> Iterator[None]:
    """Let a profiler see the launches inside the block: one that was told to wait for this."""
    synchronize(device)
    with on(device):
        check("starting the profiler", binding().cuProfilerStart())
        yield
        synchronize(device)
        check("stopping the profiler", binding().cuProfilerStop())

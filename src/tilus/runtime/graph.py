# SPDX-License-Identifier: Apache-2.0
"""A launch that the driver has prepared: a CUDA graph with one kernel in it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

from tilus.errors import DeviceError
from tilus.runtime.driver import binding, captures_allowed, check, on


class Graph:
    """One launch, instantiated for one stream; freed when nobody holds it and it has ended.

    The driver queues it in half the time that it takes for a kernel, whose grid, attributes and
    arguments it must look through at every launch. CUDA driver API, "Graph Management": two
    threads must not queue it at the same time, hence ``lock``, and launches of it follow one
    another.

    Each takes some 100 KiB of the GPU's memory, so there are ``MOST`` of them at any time.
    """

    MOST = 256
    alive: ClassVar[weakref.WeakSet[Graph]] = weakref.WeakSet()

    def __init__(self, enqueue: Callable[[int], None], stream: int, device: int) -> None:
        """Prepare what ``enqueue(handle)`` puts into a stream, for the stream with the handle
        ``stream``."""
        driver, doing = binding(), "making a CUDA graph of a launch"
        with on(device), captures_allowed():
            apart = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
            own = check(doing, driver.cuStreamCreate(apart))
            try:
                mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
                check(doing, driver.cuStreamBeginCapture(own, mode))
                enqueue(int(own))
                graph = check(doing, driver.cuStreamEndCapture(own))
                try:
                    self.executable = check(doing, driver.cuGraphInstantiate(graph, 0))
                finally:
                    driver.cuGraphDestroy(graph)
            finally:
                driver.cuStreamDestroy(own)
        weakref.finalize(self, _free, self.executable, device).atexit = False
        self.stream = driver.CUstream(stream)
        self.lock = threading.RLock()  # one that a handler of signals, which may launch, can pass
        self.alive.add(self)

    @classmethod
    def room(cls) -> bool:
        """Return whether there may be one more."""
        return len(cls.alive) < cls.MOST


def _free(executable: Any, device: int) -> None:
    # Nobody chooses when: it may be while the program captures a stream, or in a forked process.
    with suppress(DeviceError), on(device), captures_allowed():
        binding().cuGraphExecDestroy(executable)

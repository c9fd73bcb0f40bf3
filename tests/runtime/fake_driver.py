# SPDX-License-Identifier: Apache-2.0
"""A driver without a GPU: device memory is host memory, launches are written down.

It stands in for ``cuda.bindings.driver`` at the one place where the runtime asks for it. Types and
enumerations are the real ones, which need no driver.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import cuda.bindings.driver as real

from tilus.runtime import Gpu

SUCCESS = real.CUresult.CUDA_SUCCESS
CONTEXT = 0x1000
H200 = Gpu(0, "Fake H200", (9, 0), 132, 232448, 60 << 20, 141 << 30, (13, 0), "580.159.04")


class FakeDriver:
    """``failing`` maps the names of functions to the status they shall return."""

    def __init__(self) -> None:
        self.failing: dict[str, real.CUresult] = {}
        self.current = [0]
        self.memory: dict[int, object] = {}
        self.launches: list[SimpleNamespace] = []
        self.calls: list[str] = []
        self.mode = real.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        # When memory was allocated, and a graph captured, made and destroyed:
        self.modes: list[real.CUstreamCaptureMode] = []
        self.active_clusters = 66
        self.captured: set[int] = set()  # streams
        self.graphs: dict[int, list[SimpleNamespace]] = {}  # by the stream they are captured from
        self.executables = 0  # how many there are
        self.freed_in: int | None = None  # the context that was current
        self.contexts: dict[int, int] = {}  # of streams that are not of the usual one

    def __getattr__(self, name):
        if name.startswith("cu") and hasattr(type(self), f"_{name}"):
            return lambda *arguments: self._call(name, *arguments)
        return getattr(real, name)

    def _call(self, name, *arguments):
        self.calls.append(name)
        status = self.failing.get(name, SUCCESS)
        if status != SUCCESS:
            return (status, None)
        values = getattr(self, f"_{name}")(*arguments)
        return (SUCCESS, *values) if isinstance(values, tuple) else (SUCCESS, values)

    def _cuOccupancyMaxActiveClusters(self, function, config):
        return self.active_clusters

    def _cuInit(self, flags):
        return ()

    def _cuGetErrorString(self, status):
        return b"as the test wants it"

    def _cuDevicePrimaryCtxRetain(self, device):
        return real.CUcontext(CONTEXT)

    def _cuCtxGetCurrent(self):
        return real.CUcontext(self.current[-1])

    def _cuCtxSetCurrent(self, context):
        self.current[-1] = int(context)
        return ()

    def _cuCtxPushCurrent(self, context):
        self.current.append(int(context))
        return ()

    def _cuCtxPopCurrent(self):
        return real.CUcontext(self.current.pop())

    def _cuCtxSynchronize(self):
        return ()

    def _cuThreadExchangeStreamCaptureMode(self, mode):
        before, self.mode = self.mode, mode
        return before

    def _cuMemAlloc(self, nbytes):
        self.modes.append(self.mode)
        memory = ctypes.create_string_buffer(b"\xab" * nbytes, nbytes)
        address = ctypes.addressof(memory)
        self.memory[address] = memory
        return real.CUdeviceptr(address)

    def _cuMemFree(self, address):
        self.memory.pop(address, None)  # memory of an earlier fake may be freed late
        return ()

    def _cuMemHostAlloc(self, nbytes, flags):
        self.host_flags = flags
        return int(self._cuMemAlloc(nbytes))

    def _cuMemHostGetDevicePointer(self, pointer, flags):
        return real.CUdeviceptr(pointer)

    _cuMemFreeHost = _cuMemFree

    def _cuMemcpyHtoD(self, to, source, nbytes):
        ctypes.memmove(to, source, nbytes)
        return ()

    _cuMemcpyDtoH = _cuMemcpyHtoD

    def _cuMemsetD8(self, address, value, nbytes):
        ctypes.memset(address, value, nbytes)
        return ()

    def _cuKernelSetAttribute(self, attribute, value, kernel, device):
        self.shared_bytes = value
        return ()

    def _cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function, threads, shared_bytes):
        return 1

    def _cuPointerGetAttribute(self, attribute, address):
        return 0

    def _cuProfilerStart(self):
        return ()

    _cuProfilerStop = _cuProfilerStart

    def _cuLaunchKernelEx(self, config, function, pointers, extra):
        attributes = [a.value.clusterDim for a in config.attrs] if config.numAttrs else []
        launch = SimpleNamespace(
            grid=(config.gridDimX, config.gridDimY, config.gridDimZ),
            block=(config.blockDimX, config.blockDimY, config.blockDimZ),
            shared_bytes=config.sharedMemBytes,
            stream=int(config.hStream),
            clusters=[(c.x, c.y, c.z) for c in attributes],
            function=int(function),
            pointers=pointers,
            context=self.current[-1],
            graph=False,
        )
        self._run(launch, self.graphs.get(launch.stream, self.launches))
        return ()

    def _run(self, launch, place):
        launch.arguments = self.read(launch) if self.read else None
        place.append(launch)

    def _cuStreamCreate(self, flags):
        return real.CUstream(0x9000 + len(self.calls))

    def _cuStreamDestroy(self, stream):
        self.graphs.pop(int(stream), None)
        return ()

    def _cuStreamGetCtx(self, stream):
        return real.CUcontext(self.contexts.get(int(stream), CONTEXT))

    def _cuStreamIsCapturing(self, stream):
        return real.CUstreamCaptureStatus(int(stream) in self.captured)

    def _cuStreamBeginCapture(self, stream, mode):
        self.modes.append(mode)
        self.graphs[int(stream)] = []
        return ()

    def _cuStreamEndCapture(self, stream):
        return self.graphs.pop(int(stream))

    def _cuGraphInstantiate(self, graph, flags):
        self.modes.append(self.mode)
        self.executables += 1
        return tuple(graph)  # as many values as kernels: one

    def _cuGraphDestroy(self, graph):
        return ()

    def _cuGraphExecDestroy(self, executable):
        self.modes.append(self.mode)
        self.freed_in = self.current[-1]
        self.executables -= 1
        return ()

    def _cuGraphLaunch(self, launch, stream):
        """Run what was captured in the place and the context where it is launched."""
        here = {"stream": int(stream), "context": self.current[-1], "graph": True}
        self._run(SimpleNamespace(**(vars(launch) | here)), self.launches)
        return ()

    #: Reads a launch's arguments while they are there, as a kernel would; set by the test.
    read = None


def argument(launch, index, kind):
    """Return argument ``index`` of a launch as a value of the ctypes type ``kind``."""
    address = ctypes.cast(launch.pointers, ctypes.POINTER(ctypes.c_void_p))[index]
    return kind.from_address(address).value

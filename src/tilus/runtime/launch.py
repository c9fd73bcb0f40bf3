# SPDX-License-Identifier: Apache-2.0
"""Load a cubin, and launch its kernel again and again at a low price a call."""

from __future__ import annotations

import ctypes
import functools
import struct
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilus.dtypes import DType
from tilus.errors import ArgumentError, DeviceError
from tilus.ir import check_clusters
from tilus.runtime.device import Gpu, gpus
from tilus.runtime.driver import binding, check, core, device_errors, on, primary_context
from tilus.runtime.graph import Graph
from tilus.runtime.stream import (
    NEVER_CAPTURED,
    PER_THREAD,
    captured,
    stream_context,
    stream_handle,
)
from tilus.runtime.tensor_map import TensorMap

#: Largest grid, in blocks along x, y and z.
GRID_LIMIT = (2**31 - 1, 65535, 65535)

_FORMATS = {"b": "?", "i": "bhiq", "u": "BHIQ", "f": "?efd"}


@dataclass(frozen=True, eq=False)
class Function:
    """A kernel loaded onto a GPU, allowed to use ``shared_bytes`` of dynamic shared memory."""

    name: str
    shared_bytes: int
    gpu: Gpu
    kernel: Any

    @property
    def registers(self) -> int:
        """Registers a thread at entry, as the driver sees them."""
        return int(self.kernel.attributes[self.gpu.index].num_regs)

    def blocks_per_sm(self, threads: int) -> int:
        """Return how many blocks of ``threads`` threads an SM holds at once."""
        driver = binding()
        handle = driver.CUfunction(int(self.kernel.handle))
        with on(self.gpu.index):
            ask = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
            result = ask(handle, threads, self.shared_bytes)
        return int(check(f"asking how many blocks of {self.name} an SM holds", result))


def load(code: bytes, name: str, shared_bytes: int, device: int = 0) -> Function:
    """Load the kernel ``name`` of a cubin onto a GPU; raise DeviceError if the driver fails."""
    gpu = gpus()[device]  # first of all: without a driver, get_kernel() hangs
    if shared_bytes > gpu.shared_bytes:
        rule = f"at most {gpu.shared_bytes} bytes, what {gpu.name} gives a block"
        remedy = "Take fewer stages or smaller tiles."
        raise ArgumentError(f"shared memory of {name}", rule, f"{shared_bytes} bytes", remedy)
    with on(device), device_errors(f"loading {name}"):
        kernel = core().ObjectCode.from_cubin(code, name=name).get_kernel(name)
        driver = binding()
        limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        handle = driver.CUkernel(int(kernel.handle))
        set_to = driver.cuKernelSetAttribute(limit, shared_bytes, handle, driver.CUdevice(device))
        check(f"giving {name} {shared_bytes} bytes of shared memory", set_to)
    return Function(name, shared_bytes, gpu, kernel)


CAPTURED: set[Function] = set()
"""Kernels that stay loaded for good: a program's CUDA graph has them in it. ``cuda.core`` knows
nothing of such a graph, and unloads a kernel that no Python object holds."""


class Launch:
    """Launches one kernel. What stays the same from call to call is prepared here, once.

    The kernel's parameters are ``maps`` tensor maps by value, then scalars of ``types`` (an array
    is its address, uint64). ``threads`` a block; ``cluster`` in blocks along x, y, z.
    """

    def __init__(
        self,
        function: Function,
        maps: int,
        types: Sequence[DType],
        *,
        threads: int,
        cluster: tuple[int, int, int] = (1, 1, 1),
    ) -> None:
        self.function, self._maps, self._types = function, maps, tuple(types)
        self._threads, self._cluster = threads, cluster
        self._resident = 0  # clusters, once the driver has been asked
        self.handle = binding().CUfunction(int(function.kernel.handle))
        self.context = primary_context(function.gpu.index)

    def __call__(
        self,
        grid: tuple[int, int, int],
        maps: Sequence[TensorMap],
        values: Sequence[int | float],
        stream: int = 0,
    ) -> None:
        """Queue one launch on ``stream`` (a handle) and return; errors of the kernel come later."""
        self.ready(grid, maps, values)(stream)

    def ready(
        self,
        grid: tuple[int, int, int],
        maps: Sequence[TensorMap],
        values: Sequence[int | float],
        current: Callable[[], int] = lambda: 0,
        result: Any = None,
    ) -> Ready:
        """Return a launch with all its arguments, for one that happens again and again.

        ``current`` tells the stream where none is given; ``result`` is what each launch returns.
        """
        _check_grid(self.function.name, grid, self._cluster)
        self._check_resident(grid)
        assert len(maps) == self._maps
        return Ready(self, grid, Arguments(self._types, maps, values), current, result)

    def active_clusters(self, grid: tuple[int, int, int]) -> int:
        """Return how many clusters the driver can keep on the GPU at the same time.

        CUDA driver API, cuOccupancyMaxActiveClusters. A persistent grid of more than that runs its
        last clusters when others have ended.
        """
        what = f"asking how many clusters of {self.function.name} are active at once"
        with on(self.function.gpu.index):
            driver, config = binding(), self.config(grid, 0)
            return int(check(what, driver.cuOccupancyMaxActiveClusters(self.handle, config)))

    def _check_resident(self, grid: tuple[int, int, int]) -> None:
        """Refuse clusters of which not even one finds room: the driver's own error is no help."""
        if self._cluster == (1, 1, 1) or self._resident:
            return
        self._resident = self.active_clusters(grid)
        if self._resident == 0:
            need = f"{self._threads} threads and {self.function.shared_bytes} bytes a block"
            rule = f"of clusters that the GPU can keep resident, each block with {need}"
            remedy = "Take smaller clusters, fewer stages or smaller tiles."
            raise ArgumentError(f"grid of {self.function.name}", rule, self._cluster, remedy)

    def config(self, grid: tuple[int, int, int], stream: int) -> Any:
        """Return what the driver wants to know besides the kernel and its arguments."""
        config = _config(self._threads, self.function.shared_bytes, self._cluster)
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.hStream = binding().CUstream(stream)
        return config


class Ready:
    """One launch with all its arguments: queued any number of times, on any stream.

    The second time on a stream, a CUDA graph is made of it, which is what the third one queues.
    Threads may share it.
    """

    STREAMS = 64

    def __init__(
        self,
        launch: Launch,
        grid: tuple[int, int, int],
        arguments: Arguments,
        current: Callable[[], int],
        result: Any,
    ) -> None:
        self._launch, self._grid, self._arguments = launch, grid, arguments
        self._stream, self._result = current, result
        self._configs: dict[int, Any] = {}
        self._graphs: dict[int, Graph | None] = {}
        # Looked up once: a call takes a few microseconds in all, and every lookup is a part of it.
        driver = binding()
        self._current, self._enqueue = driver.cuCtxGetCurrent, driver.cuGraphLaunch
        self._capturing = driver.cuStreamIsCapturing  # status and answer, both 0 where it is not
        self._context = int(launch.context)

    def __call__(self, stream: object = None) -> Any:
        """Queue the launch on ``stream`` and return; errors of the kernel come later.

        That is a handle, an object of a library, or None for the current one. Return what was asked
        for.
        """
        handle = self._stream() if stream is None else stream_handle(stream, (), 0)
        graph = self._graphs.get(handle)
        if (
            graph is None
            or int(self._current()[1] or 0) != self._context  # it would run on that one's stream 0
            or (handle not in NEVER_CAPTURED and any(self._capturing(graph.stream)))
        ):
            self._directly(handle)
            return self._result
        with graph.lock:
            result = self._enqueue(graph.executable, graph.stream)
        if result[0]:
            check(f"launching {self._launch.function.name}", result)
        return self._result

    def _directly(self, handle: int) -> None:
        """Queue the kernel, not a graph; make a graph of what comes to a stream again."""
        nobodys = not int(check("asking which context is current", self._current()))
        with on(self._launch.function.gpu.index):
            again = self._configs.get(handle)
            config = again or self._config(handle)
            self._queue(config)
            if captured(handle):
                CAPTURED.add(self._launch.function)
            elif again and handle not in self._graphs and Graph.room():
                self._graphs[handle] = None  # no other thread makes one, too
                self._graphs[handle] = self._graph(handle)
        if nobodys:  # the thread's next launch finds the context ready
            binding().cuCtxSetCurrent(self._launch.context)

    def _config(self, handle: int) -> Any:
        if len(self._configs) >= self.STREAMS:
            self._configs, self._graphs = {}, {}
        made = self._configs[handle] = self._launch.config(self._grid, handle)
        return made

    def _graph(self, handle: int) -> Graph | None:
        """Make a graph for a stream where that does what the kernel does; where the driver cannot,
        for want of memory, say so."""
        if handle == PER_THREAD:  # launches of a graph, and so the threads, would await each other
            return None
        function = self._launch.function
        try:
            # A graph runs in the kernel's context, whatever stream it is queued on.
            if handle not in NEVER_CAPTURED and stream_context(handle) != self._context:
                return None
            return Graph(self._apart, handle, function.gpu.index)
        except DeviceError as error:
            said = f"{error}. Each launch of {function.name} takes some microseconds longer."
            warnings.warn(said, RuntimeWarning, stacklevel=5)
            return None

    def _apart(self, handle: int) -> None:
        """Queue the kernel on a stream that will not be seen again."""
        self._queue(self._launch.config(self._grid, handle))

    def _queue(self, config: Any) -> None:
        words = config, self._launch.handle, self._arguments.address, 0
        check(f"launching {self._launch.function.name}", binding().cuLaunchKernelEx(*words))


class Arguments:
    """A kernel's arguments in memory; ``address`` is that of the pointers to them."""

    def __init__(
        self, types: tuple[DType, ...], maps: Sequence[TensorMap], values: Sequence[int | float]
    ) -> None:
        layout = struct.Struct("@" + "".join(format_of(dtype) for dtype in types))
        try:
            packed = layout.pack(*values)
        except struct.error as error:
            rule = f"{layout.format} (struct's letters)"
            raise ArgumentError("kernel arguments", rule, tuple(values), f"{error}.") from error
        self._maps = tuple(maps)  # the driver reads them where they are
        self._buffer = ctypes.create_string_buffer(packed, max(1, layout.size))
        base = ctypes.addressof(self._buffer)
        places = [made.address for made in maps] + [base + n for n in offsets(types)]
        self._pointers = (ctypes.c_void_p * max(1, len(places)))(*places)
        self.address = ctypes.addressof(self._pointers)


@functools.lru_cache(maxsize=256)
def offsets(types: tuple[DType, ...]) -> tuple[int, ...]:
    """Return where each argument of a row begins: at a multiple of its size, as C has it."""
    letters = "@" + "".join(format_of(dtype) for dtype in types)
    ends = (struct.calcsize(letters[: i + 2]) for i in range(len(types)))
    return tuple(end - dtype.nbytes for end, dtype in zip(ends, types, strict=True))


@functools.cache
def format_of(dtype: DType) -> str:
    """Return :mod:`struct`'s letter for a type."""
    row = _FORMATS[dtype.kind]
    return row[dtype.nbytes.bit_length() - 1] if len(row) > 1 else row


def _config(threads: int, shared_bytes: int, cluster: tuple[int, int, int]) -> Any:
    driver = binding()
    config = driver.CUlaunchConfig()
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.sharedMemBytes = shared_bytes
    if cluster != (1, 1, 1):
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dims = attribute.value.clusterDim
        dims.x, dims.y, dims.z = cluster
        config.attrs, config.numAttrs = [attribute], 1
    return config


def _check_grid(name: str, grid: tuple[int, int, int], cluster: tuple[int, int, int]) -> None:
    if not all(1 <= n <= most for n, most in zip(grid, GRID_LIMIT, strict=True)):
        rule = f"from 1 to {GRID_LIMIT} blocks"
        raise ArgumentError(f"grid of {name}", rule, grid, "Take larger tiles.")
    check_clusters(name, grid, cluster)

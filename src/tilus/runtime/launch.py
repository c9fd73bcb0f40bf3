# SPDX-License-Identifier: Apache-2.0
"""Load a cubin, and launch its kernel again and again at a low price a call."""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilus.dtypes import DType
from tilus.errors import ArgumentError
from tilus.ir import check_clusters
from tilus.runtime.device import Gpu, gpus
from tilus.runtime.driver import binding, check, core, device_errors, on, primary_context
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
        self._function, self._maps, self._cluster = function, maps, cluster
        self._types = tuple(types)
        self._arguments = Arguments(maps, self._types)
        self._config = _config(threads, function.shared_bytes, cluster)
        self._handle = binding().CUfunction(int(function.kernel.handle))
        self._context = int(primary_context(function.gpu.index))
        self._grid: tuple[int, int, int] | None = None
        self._stream: int | None = None
        self._lock = threading.Lock()

    def __call__(
        self,
        grid: tuple[int, int, int],
        maps: Sequence[TensorMap],
        values: Sequence[int | float],
        stream: int = 0,
    ) -> None:
        """Queue one launch on ``stream`` (a handle) and return; errors of the kernel come later."""
        driver = binding()
        with self._lock:  # the driver reads the argument buffer without holding Python's lock
            self._configure(grid, stream)
            pointers = self._arguments.set(maps, values)
            _, current = driver.cuCtxGetCurrent()
            if int(current) == self._context:
                result = driver.cuLaunchKernelEx(self._config, self._handle, pointers, 0)
            else:
                with on(self._function.gpu.index):
                    result = driver.cuLaunchKernelEx(self._config, self._handle, pointers, 0)
                if not int(current):  # nobody's thread so far: the next launch finds it ready
                    driver.cuCtxSetCurrent(primary_context(self._function.gpu.index))
        if result[0]:
            check(f"launching {self._function.name}", result)

    def _configure(self, grid: tuple[int, int, int], stream: int) -> None:
        config = self._config
        if grid != self._grid:
            _check_grid(self._function.name, grid, self._cluster)
            config.gridDimX, config.gridDimY, config.gridDimZ = grid
            self._grid = grid
        if stream != self._stream:
            config.hStream = binding().CUstream(stream)
            self._stream = stream


class Arguments:
    """A kernel's argument buffer: overwritten for each launch, allocated once."""

    def __init__(self, maps: int, types: Sequence[DType]) -> None:
        self._maps = maps
        self._layout = struct.Struct("@" + "".join(format_of(dtype) for dtype in types))
        self._buffer = ctypes.create_string_buffer(max(1, self._layout.size))
        self._pointers = (ctypes.c_void_p * max(1, maps + len(types)))()
        base = ctypes.addressof(self._buffer)
        for i, dtype in enumerate(types):
            before = struct.calcsize("@" + "".join(format_of(t) for t in types[: i + 1]))
            self._pointers[maps + i] = base + before - dtype.nbytes

    def set(self, maps: Sequence[TensorMap], values: Sequence[int | float]) -> int:
        """Write the arguments; return the address of the array of pointers to them."""
        try:
            self._layout.pack_into(self._buffer, 0, *values)
        except struct.error as error:
            rule = f"{self._layout.format} (struct's letters)"
            raise ArgumentError("kernel arguments", rule, tuple(values), f"{error}.") from error
        for i, tensor_map in enumerate(maps):
            self._pointers[i] = tensor_map.address
        return ctypes.addressof(self._pointers)


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

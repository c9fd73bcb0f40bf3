# SPDX-License-Identifier: Apache-2.0
"""The two backends: a Hopper GPU, or the simulator."""

from __future__ import annotations

import ctypes
import functools
import warnings
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from tilus import compiler, ir, runtime, simulator
from tilus.dtypes import uint64
from tilus.errors import ArgumentError
from tilus.instrument import Clock
from tilus.launch import views
from tilus.launch.arguments import Call
from tilus.launch.observed import Observer, inside
from tilus.options import NO_INSTRUMENTS, Instruments, option


@dataclass(frozen=True)
class Run:
    """What a call did. ``device``: ``"sim"`` or ``"cuda:0"``; ``blocks``: the grid, 0: nothing ran.

    ``cycles``: the simulator's estimate, None on a GPU. ``events``: what was recorded of the blocks
    that ``tilus.option.debug.trace`` named, in cycles since each block began; on a GPU ``dropped``
    more did not fit into the buffer, and ``clocks`` says when each block ran.
    """

    device: str
    blocks: tuple[int, int, int]
    cycles: float | None = None
    events: tuple[ir.Event, ...] = ()
    dropped: int = 0
    clocks: tuple[Clock, ...] = ()


class Program(Protocol):
    """A kernel made ready for one backend."""

    kernel: ir.Kernel

    def __call__(self, call: Call, stream: object = None) -> Run:
        """Run the kernel on a call's arguments."""


class Simulator:
    """Runs a kernel on the CPU, on arrays in host memory; records the blocks that are asked for."""

    def __init__(self, kernel: ir.Kernel, instruments: Instruments = NO_INSTRUMENTS) -> None:
        self.kernel, self._recording = kernel, instruments.trace

    def __call__(self, call: Call, stream: object = None) -> Run:
        views.check(self.kernel, call)
        blocks = self.kernel.function.grid(views.values(self.kernel, call))
        if 0 in blocks:
            return Run("sim", blocks)
        recorded = inside(self._recording, blocks)
        arguments: dict[str, Any] = {name: memory(a) for name, a in call.arrays.items()}
        result = simulator.run(
            self.kernel, arguments | dict(call.scalars), trace=self._recording is not None
        )
        events = tuple(e for e in result.events if e.block in recorded)
        return Run("sim", blocks, result.cycles, events)


def memory(array: runtime.Array) -> np.ndarray:
    """Return the host memory from an array's first element to its last as a flat NumPy array."""
    nbytes = runtime.span(array.shape, array.strides, array.dtype.nbytes)
    raw = (ctypes.c_ubyte * nbytes).from_address(array.address)
    return np.ctypeslib.as_array(raw).view(array.dtype.numpy)


class Cuda:
    """Runs a kernel on a GPU, on arrays in its memory."""

    LIMIT = 1024

    def __init__(self, program: compiler.Program, device: int) -> None:
        self.program, self.kernel, self.device = program, program.kernel, device
        function, plan = self.kernel.function, self.kernel.plan
        code = program.cubin.code
        loaded = runtime.load(code, function.name, plan.shared_bytes, device)
        self._observer = Observer(program, device)
        self._instrumented = bool(program.instruments)  # asked at each launch: a comparison less
        types = [uint64 if p.pointer else p.dtype for p in function.params]
        types += [uint64] * self._observer.addresses
        self._launch = runtime.Launch(
            loaded,
            len(plan.tensor_maps),
            types,
            threads=function.threads.count,
            cluster=function.cluster,
        )
        self._prepared: dict[object, _Prepared] = {}

    def __call__(self, call: Call, stream: object = None) -> Run:
        prepared = self._prepared.get(call.key) or self._prepare(call)
        if 0 in prepared.grid:
            return prepared.run
        handle = runtime.stream_handle(stream, call.given, self.device)
        if self._instrumented:
            return self._observed(prepared, handle)
        self._launch(prepared.grid, prepared.maps, prepared.values, handle)
        return prepared.run

    def _observed(self, prepared: _Prepared, handle: int) -> Run:
        """Launch an instrumented build, wait for its end, and read what it has written."""
        with self._observer.launch(prepared.grid) as observation:
            values = [*prepared.values, *observation.addresses]
            self._launch(prepared.grid, prepared.maps, values, handle)
        found = observation.recorded
        if found is None:
            return prepared.run
        return replace(
            prepared.run, events=found.events, dropped=found.dropped, clocks=found.clocks
        )

    def _prepare(self, call: Call) -> _Prepared:
        """Check a call and compute what its launch needs, for later calls like it too."""
        views.check(self.kernel, call)
        function, scalars = self.kernel.function, views.values(self.kernel, call)
        blocks = function.grid(scalars)
        with runtime.on(self.device):  # a tensor map is encoded within a context
            maps = [
                runtime.encode_tensor_map(views.tiling(self.kernel, call, m, scalars))
                for m in self.kernel.plan.tensor_maps
                if 0 not in blocks
            ]
        values = [
            call.arrays[p.name].address if p.pointer else call.scalars[p.name]
            for p in function.params
        ]
        if len(self._prepared) >= self.LIMIT:
            self._prepared.clear()
        made = _Prepared(blocks, maps, values, Run(f"cuda:{self.device}", blocks))
        return self._prepared.setdefault(call.key, made)


@dataclass(frozen=True)
class _Prepared:
    grid: tuple[int, int, int]
    maps: list[runtime.TensorMap]
    values: list[int | float]
    run: Run


def backend(call: Call) -> str:
    """Return where a call runs, ``"sim"`` or ``"cuda:N"``, after seeing that its arrays are there.

    Raises :class:`DeviceError` where ``cuda`` is asked for and there is no GPU that will do.
    """
    simulate = option.current_device == "sim" or (option.current_device == "auto" and no_gpu())
    if not simulate:
        runtime.require_gpu()
    for name, array in call.arrays.items():
        if simulate and array.device != runtime.CPU:
            remedy = "Pass NumPy arrays, or choose tilus.option.device('cuda')."
            raise ArgumentError(
                name, "in host memory for the simulator", f"on {array.device}", remedy
            )
        if not simulate and array.device == runtime.CPU:
            remedy = "Copy it to the GPU, or choose tilus.option.device('sim')."
            raise ArgumentError(
                name, "in GPU memory for the CUDA backend", "in host memory", remedy
            )
    return "sim" if simulate else on_hopper(call)


def on_hopper(call: Call) -> str:
    """Return the GPU that holds a call's arrays; it must be of the Hopper generation."""
    device = call.device if call.arrays else f"cuda:{runtime.require_gpu().index}"
    gpu = runtime.gpus()[int(device.removeprefix("cuda:"))]
    if not gpu.is_hopper:
        rule = "on a GPU of the Hopper generation (compute capability 9.0)"
        found = f"on {device}, {gpu.name} ({'.'.join(map(str, gpu.capability))})"
        raise ArgumentError(next(iter(call.arrays)), rule, found, "Copy it to a Hopper GPU.")
    return device


@functools.cache
def no_gpu() -> bool:
    """Return whether there is no Hopper GPU; say once that the simulator runs instead."""
    if runtime.find_gpu() is not None:
        return False
    warnings.warn(
        "no Hopper GPU found: kernels run on the simulator (TILUS_DEVICE=sim asks for it silently)",
        stacklevel=2,
    )
    return True

# SPDX-License-Identifier: Apache-2.0
"""The two backends: a Hopper GPU, or the simulator."""

from __future__ import annotations

import ctypes
import functools
import warnings
from collections.abc import Callable, Sequence
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


Prepared = Callable[[object], Run]
"""A call that was checked: runs on the stream given, None for the one that its arrays imply."""


class Program(Protocol):
    """A kernel made ready for one backend."""

    kernel: ir.Kernel

    def prepare(self, call: Call) -> Prepared:
        """Check a call, and make ready what is the same each time it runs."""

    def __call__(self, call: Call, stream: object = None) -> Run:
        """Run the kernel on a call's arguments."""


class Simulator:
    """Runs a kernel on the CPU, on arrays in host memory; records the blocks that are asked for."""

    def __init__(self, kernel: ir.Kernel, instruments: Instruments = NO_INSTRUMENTS) -> None:
        self.kernel, self._recording = kernel, instruments.trace

    def prepare(self, call: Call) -> Prepared:
        """Return what runs the call; it is checked anew each time."""
        return functools.partial(self, call)

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

    def __init__(self, program: compiler.Program, device: int) -> None:
        self.program, self.kernel, self.device = program, program.kernel, device
        function, plan = self.kernel.function, self.kernel.plan
        code = program.cubin.code
        loaded = runtime.load(code, function.name, plan.shared_bytes, device)
        self._observer = Observer(program, device)
        types = [uint64 if p.pointer else p.dtype for p in function.params]
        types += [uint64] * self._observer.addresses
        self._launch = runtime.Launch(
            loaded,
            len(plan.tensor_maps),
            types,
            threads=function.threads.count,
            cluster=function.cluster,
        )

    def __call__(self, call: Call, stream: object = None) -> Run:
        return self.prepare(call)(stream)

    def prepare(self, call: Call) -> Prepared:
        """Check a call and compute what its launch needs; it holds addresses, no array."""
        views.check(self.kernel, call)
        scalars = views.values(self.kernel, call)
        run = Run(f"cuda:{self.device}", self.kernel.function.grid(scalars))
        if 0 in run.blocks:
            return lambda stream: run
        maps = [
            runtime.encode_tensor_map(views.tiling(self.kernel, call, m, scalars), self.device)
            for m in self.kernel.plan.tensor_maps
        ]
        values = [
            call.arrays[p.name].address if p.pointer else call.scalars[p.name]
            for p in self.kernel.function.params
        ]
        current = runtime.current_stream(call.given, self.device)
        if self.program.instruments:
            return functools.partial(self._observed, run, maps, values, current)
        return self._launch.ready(run.blocks, maps, values, current, run)

    def _observed(
        self,
        run: Run,
        maps: Sequence[runtime.TensorMap],
        values: Sequence[int | float],
        current: Callable[[], int],
        stream: object = None,
    ) -> Run:
        """Launch an instrumented build, wait for its end, and read what it has written."""
        with self._observer.launch(run.blocks) as observation:
            addressed = [*values, *observation.addresses]
            self._launch.ready(run.blocks, maps, addressed, current, run)(stream)
        found = observation.recorded
        if found is None:
            return run
        return replace(run, events=found.events, dropped=found.dropped, clocks=found.clocks)


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

# SPDX-License-Identifier: Apache-2.0
"""Kernels for tests: those of the examples, as their files are; small ones that report scalars.

The small ones are run by Python and on the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import tilus
from tilus import ir, loader, simulator

V3_FILE = Path(__file__).parents[1] / "examples" / "hopper_matmul" / "matmul_v3.py"


def load_v3(file: Path = V3_FILE) -> type[tilus.Script]:
    """Return V3's class from its file, or from a changed copy of it; the file runs anew."""
    return loader.find(file, tilus.Script)


LOG: list[ir.Scalar] = []


@dataclass(frozen=True, eq=False, kw_only=True)
class _use(ir.Instruction):
    """Report a scalar."""

    x: ir.ExprLike

    def simulate(self, m: ir.Machine) -> None:
        LOG.append(m.value(self.x))


@dataclass(frozen=True, eq=False, kw_only=True)
class _put(ir.Instruction):
    """Store a number as element ``at`` of a view, on either backend."""

    view: ir.GlobalTensor
    at: ir.ExprLike
    x: ir.ExprLike

    def emit(self, e: ir.Emitter) -> None:
        x = ir.cast(self.x, self.view.dtype)
        e.line(f"{e.pointer(self.view)}[{e.expr(self.at)}] = {e.expr(x)};")

    def simulate(self, m: ir.Machine) -> None:
        value = ir.wrap(m.value(ir.cast(self.x, self.view.dtype)), self.view.dtype)
        values = np.array([value], self.view.dtype.numpy)
        m.store_global(self.view, [int(m.value(self.at))], values)


@dataclass(frozen=True, eq=False, kw_only=True)
class _make(ir.Instruction):
    """Yield a tensor in shared memory that bears the name it is assigned to."""

    rows: int = 8
    out: ir.SharedTensor

    @classmethod
    def result(cls, site: ir.Site, /, **arguments: Any) -> ir.SharedTensor:
        shape = (4, arguments.get("rows", 8), 8)
        buffer = ir.SharedBuffer(site.name, tilus.float16, shape, site.location)
        return ir.SharedTensor(buffer, shape, ir.as_expr(0))

    def verify(self) -> None:
        self.require(self.rows % 8 == 0, "rows", "a multiple of 8", self.rows)


class Methods:
    """What kernels of the tests call, on the device and in Python."""

    def clamp(self, x, low, high):
        """Return from one branch after another."""
        if x < low:
            return low
        elif x > high:
            return high
        return x

    def order(self, a, b):
        """Return two numbers from either side, one of them a compile-time value."""
        if a > b:
            if a > 5:
                a -= 5
                return b, a, 1
            c = a * 2
        else:
            c = b
            return c, a, 0
        c += 1
        return c, b, 2

    def report_if_positive(self, x):
        """Return nothing, early."""
        if x <= 0:
            return
        for i in range(x):
            if i == 2:
                break
            self.use(i)

    def sign(self, x):
        """Mix compile-time and run-time conditions."""
        if True:
            if x > 0:
                return 1
        if x == 0:
            return 0
        return -1


class Probe(Methods, tilus.Script):
    """A script with three instructions that exist for tests only."""

    use = _use
    put = _put
    make = _make


def script(function: Callable[..., None]) -> Probe:
    """Return a script whose ``__call__`` is ``function``; its warps and blocks are set for it."""
    return type(function.__name__, (Probe,), {"__call__": function})()


class Python(Methods):
    """Stands for ``self`` where Python itself runs a kernel."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.attrs = SimpleNamespace()
        self.use = self.log.append
        self.single_thread = self.single_warp = self.thread_group = lambda *a, **k: nullcontext()

    @staticmethod
    def range(*bounds: int, unroll: object = None) -> range:
        return range(*bounds)

    @staticmethod
    def register_tensor(dtype: object, shape: Sequence[int], init: int) -> list[int]:
        return [init] * shape[0]


def in_python(function: Callable[..., None], *args: int) -> list[Any]:
    """Return what a kernel reports when Python runs it."""
    stand_in = Python()
    function(stand_in, *args)
    return stand_in.log


def in_simulator(function: Callable[..., None], *args: int) -> list[Any]:
    """Return what a kernel, traced to IR, reports on the simulator."""
    kernel = script(function).lower()
    LOG.clear()
    names = [p.name for p in kernel.function.params]
    simulator.run(kernel, dict(zip(names, args, strict=True)))
    return list(LOG)

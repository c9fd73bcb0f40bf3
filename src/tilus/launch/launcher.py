# SPDX-License-Identifier: Apache-2.0
"""One script's programs: traced and compiled once per compile-time values and device."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any

from tilus import compiler, ir
from tilus.frontend import kernel_function
from tilus.launch.arguments import Call, bind
from tilus.launch.backends import Cuda, Prepared, Program, Run, Simulator, backend
from tilus.launch.known import Known
from tilus.options import NO_INSTRUMENTS, Instruments, option


class Launcher:
    """Runs a script; keeps what it has compiled. ``last_run`` says what the last call did."""

    def __init__(self, function: FunctionType) -> None:
        self.last_run: Run | None = None
        self.known: Known[Prepared] = Known(function)
        self._kernels: dict[tuple[object, ...], ir.Kernel] = {}
        self._programs: dict[tuple[object, ...], Program] = {}

    def first(self, script: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Prepared:
        """Bind, check and compile a call that is not ``known``, and keep what comes of it."""
        place = self.known.kept
        call = bind(kernel_function(script), args, kwargs)
        run = self.prepare(script, call)
        self.known.keep(place, args, kwargs, call, run)
        return run

    def prepare(self, script: object, call: Call) -> Prepared:
        """Check a call, and compile the program for it if need be; return what runs it."""
        return self.program(script, call).prepare(call)

    def program(self, script: object, call: Call) -> Program:
        """Return the program for a call's compile-time values on the call's device, with the
        instruments that are asked for."""
        device, instruments = backend(call), option.debug.instruments
        key = (device, instruments, *constants_key(call.constants))
        if key not in self._programs:
            kernel = self.kernel(script, call.constants)
            self._programs[key] = make(kernel, device, instruments)
        return self._programs[key]

    def kernel(self, script: object, constants: Mapping[str, ir.Scalar]) -> ir.Kernel:
        """Return the planned kernel for compile-time values."""
        key = constants_key(constants)
        if key not in self._kernels:
            self._kernels[key] = compiler.lower(script, constants)
        return self._kernels[key]


def constants_key(constants: Mapping[str, ir.Scalar]) -> tuple[object, ...]:
    """Return a key in which 1, 1.0 and True differ."""
    return tuple((type(v), v) for v in constants.values())


def make(kernel: ir.Kernel, device: str, instruments: Instruments = NO_INSTRUMENTS) -> Program:
    """Make a kernel ready for ``"sim"`` or ``"cuda:N"``."""
    if device == "sim":
        return Simulator(kernel, instruments)
    return Cuda(compiler.build(kernel, instruments), int(device.removeprefix("cuda:")))

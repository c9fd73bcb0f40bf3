# SPDX-License-Identifier: Apache-2.0
"""One script's programs: traced and compiled once per compile-time values and device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilus import compiler, ir
from tilus.frontend import kernel_function
from tilus.launch.arguments import Call, bind
from tilus.launch.backends import Cuda, Program, Run, Simulator, backend
from tilus.options import NO_INSTRUMENTS, Instruments, option


class Launcher:
    """Runs a script; keeps what it has compiled. ``last_run`` says what the last call did."""

    def __init__(self) -> None:
        self.last_run: Run | None = None
        self._kernels: dict[tuple[object, ...], ir.Kernel] = {}
        self._programs: dict[tuple[object, ...], Program] = {}

    def __call__(
        self, script: object, args: tuple[Any, ...], kwargs: Mapping[str, Any], stream: object
    ) -> None:
        """Bind, check, compile if need be, and run."""
        call = bind(kernel_function(script), args, kwargs)
        self.last_run = self.program(script, call)(call, stream)

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

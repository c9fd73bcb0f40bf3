# SPDX-License-Identifier: Apache-2.0
"""The way of a kernel from Python to a cubin, one line a stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilus import frontend, nvrtc, passes
from tilus.emitter import emit
from tilus.instrument import Instrumented, Site
from tilus.ir import Function, Kernel
from tilus.options import NO_INSTRUMENTS, Instruments, option
from tilus.printer import show


@dataclass(frozen=True, eq=False)
class Program:
    """A compiled kernel: its IR and plan, the generated CUDA, and NVRTC's cubin with its resource
    report.

    The cubin's entry point takes the plan's tensor maps (by value), then the function's parameters,
    then what ``instruments`` ask for; ``sites`` are the instructions that those speak of.
    """

    kernel: Kernel
    cuda: str
    cubin: nvrtc.Cubin
    instruments: Instruments = NO_INSTRUMENTS
    sites: tuple[Site, ...] = ()


def lower(script: object, arguments: Mapping[str, object]) -> Kernel:
    """Turn a script's ``__call__`` into a planned kernel; ``arguments`` are its compile-time
    values.

    Needs no GPU and no CUDA library: this is all the simulator asks for.
    """
    function = frontend.trace(script, arguments)  # Python AST -> IR
    dump(function, "1-frontend.txt", lambda: show(function))
    kernel = passes.plan(function)  # layouts, places, checks
    dump(function, "2-planned.txt", lambda: show(kernel.function))
    return kernel


def build(
    kernel: Kernel, instruments: Instruments = NO_INSTRUMENTS, *, strict: bool = True
) -> Program:
    """Turn a planned kernel into a cubin for sm_90a; needs NVRTC, no GPU and no driver.

    Code that is slow or that ptxas has mended is refused, unless ``strict`` is false.
    """
    function = kernel.function
    cuda, sites = write(kernel, instruments)  # IR -> CUDA C++
    dump(function, "3-kernel.cu", lambda: cuda)
    cubin = nvrtc.compile(cuda, name=function.name, strict=strict)  # CUDA C++ -> cubin, cached
    dump(function, "4-ptxas.log", lambda: cubin.log)
    dump(function, "5-kernel.cubin", lambda: cubin.code)
    return Program(kernel, cuda, cubin, instruments, sites)


def write(
    kernel: Kernel, instruments: Instruments = NO_INSTRUMENTS
) -> tuple[str, tuple[Site, ...]]:
    """Return a kernel's CUDA C++, and the instructions that report in it."""
    if not instruments:
        return emit(kernel), ()
    emitter = Instrumented(kernel, instruments)
    return emitter.source(), tuple(emitter.sites)


def dump(function: Function, stage: str, content: Callable[[], str | bytes]) -> None:
    """Write what ``content()`` returns to the dump folder, where one is set."""
    folder = option.debug.dump_dir
    if folder is None:
        return
    path = folder / function.name / stage
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content()
    path.write_bytes(data if isinstance(data, bytes) else data.encode())

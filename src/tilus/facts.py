# SPDX-License-Identifier: Apache-2.0
"""What is known of a schedule's machine code before it runs: for records and for ``--profile``."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from tilus import compiler, ir, nvrtc, runtime
from tilus.options import option

COMPILATIONS = 3
"""How often a kernel is compiled to say how long that takes."""


def facts(kernel: ir.Kernel, gpu: runtime.Gpu) -> dict[str, Any]:
    """Return a kernel's ``facts`` for a record: what a block takes, and how long it compiles."""
    program, threads = compiler.build(kernel), kernel.function.threads.count
    name, shared_bytes = kernel.function.name, kernel.plan.shared_bytes
    loaded = runtime.load(program.cubin.code, name, shared_bytes, gpu.index)
    return {
        "threads": threads,
        "registers": program.cubin.registers,
        "shared_bytes": shared_bytes,
        "blocks_per_sm": loaded.blocks_per_sm(threads),
        "compile_s": compile_seconds(kernel),
    }


def compile_seconds(kernel: ir.Kernel) -> float:
    """Return the seconds from a planned kernel to its cubin on one core, nothing cached."""
    nvrtc.nvrtc_version()  # loads the library, which a process does once
    with one_core():
        return median(_cold(kernel) for _ in range(COMPILATIONS))


def _cold(kernel: ir.Kernel) -> float:
    before = option.current_cache_dir
    with tempfile.TemporaryDirectory(prefix="tilus-") as folder:
        option.cache_dir(folder)
        try:
            begin = time.perf_counter()
            compiler.build(kernel)
            return time.perf_counter() - begin
        finally:
            option.cache_dir(before)


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this thread on one of its cores inside the block."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)

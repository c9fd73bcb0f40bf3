# SPDX-License-Identifier: Apache-2.0
"""``tilus compile``: what becomes of a kernel on its way to the machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from tilus import compiler, disasm
from tilus.cli import kernels
from tilus.compiler import Program
from tilus.options import option
from tilus.printer import show

STAGES: dict[str, Callable[[Program], str]] = {
    "ir": lambda program: show(program.kernel.function),
    "cuda": lambda program: program.cuda,
    "ptx": lambda program: program.cubin.ptx,
    "sass": lambda program: disasm.sass(program.cubin.code),
    "log": lambda program: program.cubin.log,
}


@click.command("compile")
@kernels.KERNEL
@kernels.VALUES
@click.option("--show", "stage", type=click.Choice(list(STAGES)), help="Print one stage.")
@click.option("--out", type=click.Path(path_type=Path), help="Write every stage to this folder.")
def command(kernel: str, values: tuple[str, ...], stage: str | None, out: Path | None) -> None:
    """Compile a kernel for sm_90a; needs no GPU.

    NAME=VALUE gives the schedule (num_stages=4) and the compile-time arguments (n_size=8192). Of a
    tuning space, what is not given is taken from the first schedule that can be compiled.
    """
    script, rest = kernels.make(kernels.find(kernel), kernels.parse(values))
    option.debug.dump_ir(out)
    program = compiler.build(compiler.lower(script, kernels.constants(script, rest)))
    if out is not None:
        write(program, out / program.kernel.function.name)
    if stage is None:
        click.echo(f"{kernels.describe(script)}\n{summary(program)}")
    else:
        click.echo(STAGES[stage](program))


def write(program: Program, folder: Path) -> None:
    """Write the stages that the compiler itself does not dump."""
    (folder / "4-kernel.ptx").write_text(program.cubin.ptx)
    if disasm.find_tool("nvdisasm"):
        (folder / "6-kernel.sass").write_text(disasm.sass(program.cubin.code))


def summary(program: Program) -> str:
    """Return what a block of the kernel takes."""
    function, plan, cubin = program.kernel.function, program.kernel.plan, program.cubin
    return (
        f"{function.threads.count} threads a block, {cubin.registers} registers a thread at entry, "
        f"{plan.shared_bytes} bytes of shared memory, {len(plan.tensor_maps)} tensor maps, "
        f"{len(cubin.code)} bytes of code by NVRTC {cubin.nvrtc}"
    )

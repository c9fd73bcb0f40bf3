# SPDX-License-Identifier: Apache-2.0
"""``tilus simulate``: a kernel on the CPU, with a verdict and a timeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from tilus import ir, simulator, timeline
from tilus.cli import kernels
from tilus.errors import ArgumentError
from tilus.launch import views
from tilus.launch.backends import memory


@click.command("simulate")
@kernels.KERNEL
@kernels.VALUES
@click.option("--schedule", type=click.Choice(list(simulator.SCHEDULES)), default="timed",
              help="When asynchronous effects land.")  # fmt: skip
@click.option("--seed", default=0, help="Chooses the input, and the order of a random schedule.")
@click.option("--timeline", "path", type=click.Path(path_type=Path),
              help="Write a timeline for ui.perfetto.dev here.")  # fmt: skip
def command(
    kernel: str, values: tuple[str, ...], schedule: str, seed: int, path: Path | None
) -> None:
    """Run a kernel on the simulator with entries from {-1, 0, 1}; needs no GPU.

    NAME=VALUE gives the schedule and every number of the call: m_size=256 n_size=256 k_size=256.
    """
    script, rest = kernels.make(kernels.find(kernel), kernels.parse(values))
    planned = script.lower(**kernels.constants(script, rest))
    arrays = make_arrays(planned, rest, np.random.default_rng(seed))
    call = script.bind(**rest, **arrays)
    views.check(planned, call)
    click.echo(kernels.describe(script))
    arguments = dict(call.scalars) | {name: memory(a) for name, a in call.arrays.items()}
    result = simulator.run(planned, arguments, schedule=schedule, seed=seed, trace=path is not None)
    click.echo(verdict(result))
    for name in views.written(planned.function):
        count = np.count_nonzero(~np.isnan(arrays[name]))
        click.echo(f"{name}: {count} of {arrays[name].size} elements written")
    if path is not None:
        timeline.write_chrome(result.events, path)
        click.echo(f"timeline: {path}")


def make_arrays(
    kernel: ir.Kernel, values: kernels.Values, rng: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """Return arrays of the form that the kernel views them in; what it writes is NaN."""
    missing = [p for p in kernel.function.params if not p.pointer and p.name not in values]
    for p in missing:
        rule, remedy = f"given, a number of type {p.dtype}", f"Add {p.name}=256."
        raise ArgumentError(p.name, rule, "nothing", remedy)
    scalars = {p.var: values[p.name] for p in kernel.function.params if not p.pointer}
    arrays: dict[str, NDArray[Any]] = {}
    for view in views.all_views(kernel.function):
        extent = views.extent(view, scalars)  # type: ignore[arg-type]
        entries = rng.integers(0 if view.dtype.kind in "ub" else -1, 2, extent.nbytes)
        flat = entries[: extent.nbytes // view.dtype.nbytes].astype(view.dtype.numpy)
        array = np.lib.stride_tricks.as_strided(flat, extent.shape, extent.strides)
        name = next(p.name for p in kernel.function.params if p.var is view.pointer)
        arrays.setdefault(name, array)
    for name in views.written(kernel.function):
        if np.issubdtype(arrays[name].dtype, np.floating):
            arrays[name][...] = np.nan
    return arrays


def verdict(result: simulator.Result) -> str:
    blocks = f"{len(result.blocks)} blocks, the slowest took {result.cycles:.0f} cycles"
    return f"no deadlock, no broken protocol; {blocks}"

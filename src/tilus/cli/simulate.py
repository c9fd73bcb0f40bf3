# SPDX-License-Identifier: Apache-2.0
"""``tilus simulate``: a kernel on the CPU, with a verdict and what each role did."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tilus import frontend, ir, simulator, timeline
from tilus.cli import kernels
from tilus.errors import ArgumentError, SimulationError
from tilus.launch import views
from tilus.launch.backends import memory
from tilus.script import Script

SIZE = ("m_size", "n_size", "k_size")
"""What the sizes of a matrix product are called."""
DEFAULT = (256, 256, 256)


@click.command("simulate")
@kernels.KERNEL
@kernels.VALUES
@click.option("--size", type=click.IntRange(0), nargs=3, metavar="M N K",
              help="Of a matrix product; 256 256 256 where nothing is said.")  # fmt: skip
@click.option("--schedule", type=click.Choice(list(simulator.SCHEDULES)), default="timed",
              show_default=True, help="When asynchronous effects land.")  # fmt: skip
@click.option("--seed", default=0, show_default=True,
              help="Chooses the input, and the order of a random schedule.")  # fmt: skip
@click.option("--trace", "path", type=click.Path(path_type=Path),
              help="Write what every block did, for ui.perfetto.dev.")  # fmt: skip
def command(
    kernel: str,
    values: tuple[str, ...],
    size: tuple[int, int, int] | None,
    schedule: str,
    seed: int,
    path: Path | None,
) -> None:
    """Run a kernel on the simulator with entries from {-1, 0, 1}; needs no GPU.

    NAME=VALUE gives the schedule (num_stages=4), and the numbers of a call that is no matrix
    product. The exit status is 1 where there is a verdict, or where the result is not what the
    script's ``reference`` says.
    """
    cls = kernels.find(kernel)
    script, rest = kernels.make(cls, sized(cls, kernels.parse(values), size))
    planned = script.lower(**kernels.constants(script, rest))
    arrays = make_arrays(planned, rest, np.random.default_rng(seed))
    call = script.bind(**rest, **arrays)
    views.check(planned, call)
    console = Console(highlight=False)
    console.print(kernels.describe(script))
    wanted = expected(script, rest, arrays, views.written(planned.function))
    arguments = dict(call.scalars) | {name: memory(a) for name, a in call.arrays.items()}
    result = run(console, planned, arguments, schedule, seed)
    good = all([compare(console, name, arrays[name], x) for name, x in wanted.items()])
    show(console, result)
    if path is not None:
        timeline.write_chrome(result.events, path)
        console.print(f"trace of {len(result.blocks)} blocks: {path}", soft_wrap=True)
    sys.exit(not good)


def run(
    console: Console, kernel: ir.Kernel, arguments: dict[str, Any], schedule: str, seed: int
) -> simulator.Result:
    """Run a kernel and say what came of it; exit with 1 on a verdict."""
    try:
        result = simulator.run(kernel, arguments, schedule=schedule, seed=seed, trace=True)
    except SimulationError as error:
        console.print(f"[red]{escape(str(error))}", soft_wrap=True)
        console.print(f"repeat: --schedule {schedule} --seed {seed}")
        sys.exit(1)
    console.print(f"no deadlock, no race, no broken protocol under --schedule {schedule}")
    return result


def sized(
    cls: type[Script], values: kernels.Values, size: tuple[int, int, int] | None
) -> kernels.Values:
    """Return the values with the sizes of a matrix product among them."""
    names = {p.name for p in frontend.parameters(frontend.kernel_function(cls))}
    if not names.issuperset(SIZE):
        if size is not None:
            rule, found = f"for a kernel with {', '.join(SIZE)}", f"one with {', '.join(names)}"
            raise ArgumentError("--size", rule, found, "Give its numbers as NAME=VALUE.")
        return values
    return dict(zip(SIZE, size or DEFAULT, strict=True)) | values


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


def expected(
    script: Any, values: kernels.Values, arrays: dict[str, NDArray[Any]], written: Iterable[str]
) -> dict[str, NDArray[Any] | None]:
    """Return what is to stand in each array that is written; None where no ``reference`` says."""
    if not hasattr(script, "reference"):
        return dict.fromkeys(written)
    copies = {name: x.copy() for name, x in arrays.items()}
    script.reference(**values, **copies)
    return {name: copies[name] for name in written}


def compare(console: Console, name: str, found: NDArray[Any], wanted: NDArray[Any] | None) -> bool:
    """Say how an array compares with what is to stand there, but for rounding; return if well."""
    if wanted is None:
        count = np.count_nonzero(~np.isnan(found.astype(float)))
        console.print(f"{name}: {count} of {found.size} elements written; no reference to compare")
        return True
    a, b = found.astype(float), wanted.astype(float)
    good = np.isclose(a, b, rtol=1e-3, atol=1e-3, equal_nan=True)
    if good.all():
        console.print(f"{name}: {found.size} elements as the reference has them")
        return True
    at = tuple(int(i[0]) for i in np.nonzero(~good))
    differ = f"{np.count_nonzero(~good)} of {good.size} elements differ"
    console.print(escape(f"{name}: {differ}, first at {list(at)}: {found[at]}, not {wanted[at]}"))
    return False


def show(console: Console, result: simulator.Result) -> None:
    """Print what the roles and engines of the slowest block did."""
    if not result.blocks:
        console.print("no blocks: nothing ran")
        return
    block = max(result.blocks, key=lambda b: result.blocks[b])
    title = f"block {block}, the slowest of {len(result.blocks)}: {result.cycles:.0f} cycles"
    table = Table("role or engine", title=f"{title} by the model", title_justify="left")
    for column in ("steps", "waits", "busy cycles", "waiting", "bytes", "FLOP"):
        table.add_column(column, justify="right")
    for lane in timeline.lanes(result.events, block):
        total = timeline.total(lane)
        numbers = (total.steps, total.waits, total.busy, total.waiting, total.nbytes, total.flop)
        table.add_row(lane.name, *(f"{n:.0f}" if n else "" for n in numbers))
    console.print(table)

# SPDX-License-Identifier: Apache-2.0
"""``tilus simulate``: a kernel on the CPU, with a verdict and what each role did."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tilus import frontend, ir, simulator, timeline
from tilus.autotune.expected import in_order, reference_of
from tilus.cli import kernels
from tilus.errors import ArgumentError, SimulationError
from tilus.launch import Call, views
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
@click.option("--schedule", type=click.Choice(list(simulator.SCHEDULES)),
              help="Run under one schedule only, as to show a verdict again.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True,
              help="Chooses the input, and the order of a random schedule.")  # fmt: skip
@click.option("--seeds", type=click.IntRange(0), default=20, show_default=True,
              help="Random schedules to judge by where there is no proof.")  # fmt: skip
@click.option("--cap", type=click.IntRange(1), default=200, show_default=True,
              help="Executions after which a proof is given up.")  # fmt: skip
@click.option("--trace", "path", type=click.Path(path_type=Path),
              help="Write what every block did, for ui.perfetto.dev.")  # fmt: skip
def command(
    kernel: str,
    values: tuple[str, ...],
    size: tuple[int, int, int] | None,
    path: Path | None,
    **options: Any,
) -> None:
    """Judge a kernel on the simulator, with entries from {-1, 0, 1}; needs no GPU.

    NAME=VALUE gives the schedule (num_stages=4), and the numbers of a call that is no matrix
    product. Several schedules are tried, then all orders of moves, to prove that none of them
    matters. What the roles did is told of the timed schedule, by the cost model. The exit status is
    1 where there is a verdict, or where the result is not what the script's ``reference`` says.
    """
    cls, console = kernels.find(kernel), Console(highlight=False)
    script, rest = kernels.make(cls, sized(cls, kernels.parse(values), size))
    planned = script.lower(**kernels.constants(script, rest))
    arrays = make_arrays(planned, rest, np.random.default_rng(options["seed"]))
    call = script.bind(**rest, **arrays)
    views.check(planned, call)
    console.print(kernels.describe(script))
    wanted = expected(script, call, arrays, views.written(planned.function))
    arguments = dict(call.scalars) | {name: memory(a) for name, a in call.arrays.items()}
    result = run(console, planned, arguments, **options)
    good = all([compare(console, name, arrays[name], x) for name, x in wanted.items()])
    show(console, result)
    if path is not None:
        timeline.write_chrome(result.events, path)
        console.print(f"trace of {len(result.blocks)} blocks: {path}", soft_wrap=True)
    sys.exit(not good)


def run(
    console: Console,
    kernel: ir.Kernel,
    arguments: dict[str, Any],
    schedule: str | None,
    seed: int,
    seeds: int,
    cap: int,
) -> simulator.Result:
    """Judge a kernel, say what came of it, and run it once more; exit with 1 on a verdict."""
    if schedule is None:
        found = simulator.judge(kernel, arguments, seeds=seeds, cap=cap)
        if found.error:
            refuse(console, found.error, found.schedule, found.seed)
        console.print(f"no deadlock, no race, no broken protocol; {found.message}")
    name = schedule or "timed"
    try:
        result = simulator.run(kernel, arguments, schedule=name, seed=seed, trace=True)
    except SimulationError as error:
        refuse(console, error, name, seed)
    if schedule:
        told = f"under the schedule {schedule}" + f", seed {seed}" * (schedule == "random")
        console.print(f"no deadlock, no race, no broken protocol {told}; others were not tried")
    return result


def refuse(
    console: Console, error: SimulationError, schedule: str | None, seed: int | None
) -> NoReturn:
    """Print a verdict and how to see it again; exit with 1."""
    console.print(f"[red]{escape(str(error))}", soft_wrap=True)
    again = f"add --schedule {schedule}" + f" --seed {seed}" * (schedule == "random")
    if schedule == "explored":
        again = "the same command, since all orders are gone through in turn"
    console.print(f"repeat: {again}")
    sys.exit(1)


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
    script: Any, call: Call, arrays: dict[str, NDArray[Any]], written: Iterable[str]
) -> dict[str, NDArray[Any] | None]:
    """Return what is to stand in each array that is written; None where no ``reference`` says."""
    if not hasattr(script, "reference"):
        return dict.fromkeys(written)
    copies = {name: x.copy() for name, x in arrays.items()}
    reference_of(script)(*in_order(script, call, copies))
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

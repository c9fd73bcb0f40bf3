# SPDX-License-Identifier: Apache-2.0
"""What every example of the ladder does when it is run: check, tune, measure, tell.

::

    if __name__ == "__main__":
        main(MatmulWGMMAV3, version="v3")

On a Hopper GPU the kernel is tuned, judged by :mod:`tilus.verify` and timed against cuBLAS. Without
one it runs on the simulator, is judged there too, and has no times; what will take long there is
said before. ``--json`` keeps a record. ``carry_out`` does the same for several kernels and sizes in
one process.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from math import prod
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tilus import baseline, bench, records, runtime
from tilus.autotune.progress import Show
from tilus.errors import ArgumentError, TilusError, told
from tilus.frontend import kernel_function
from tilus.options import DEVICES, option
from tilus.product import Operands, Product, Rivals, Row, Version

Size = tuple[int, int, int]
"""M, N, K."""

SIZES: Mapping[str, Size] = {"cuda": (8192, 8192, 8192), "sim": (256, 256, 256)}
LONG = 4 * prod(SIZES["sim"])
"""M·N·K from which the simulator's time is estimated and told: some seconds for each version."""
REGIMES: Mapping[str, bench.Burst | bench.Sustained] = {
    "burst": bench.Burst(),
    "sustained": bench.Sustained(),
}

DEVICE = click.Option(
    ["--device"],
    type=click.Choice(DEVICES),
    default=lambda: option.current_device,
    show_default="auto",
    help="A Hopper GPU, the simulator, or whichever there is.",
)
SIZE = click.Option(
    ["--size"],
    type=click.IntRange(1, 2**31 - 1),
    nargs=3,
    metavar="M N K",
    help="The problem; K a multiple of 8, since TMA steps from row to row by 16 bytes.",
)
REGIME = click.Option(
    ["--regime", "regimes"],
    type=click.Choice(list(REGIMES)),
    multiple=True,
    default=["burst"],
    show_default=True,
    help="How to take times; may be repeated.",
)
JSON = click.Option(
    ["--json", "path"],
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a record of the run.",
)


@dataclass(frozen=True)
class Request:
    """What a command line asks for.

    ``given`` has the schedule of a version, in whole or in part; ``tune_at`` is the size that the
    rest is tuned for (None: each size itself); ``runs`` must leave the same bits; ``rounds`` is the
    number of bursts of each contender.
    """

    device: str = "auto"
    sizes: Sequence[Size] = ()
    regimes: Sequence[str] = ("burst",)
    rounds: int = bench.Burst.rounds
    given: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    finders: Sequence[Rivals] = field(default_factory=lambda: (baseline.contenders,))
    tune_at: Size | None = None
    runs: int = 1
    process: int = 0
    path: Path | None = None

    @property
    def plans(self) -> dict[str, bench.Burst | bench.Sustained]:
        """How times are taken, by the name of the regime."""
        plans = {name: REGIMES[name] for name in dict.fromkeys(self.regimes)}
        if isinstance(burst := plans.get("burst"), bench.Burst):
            plans["burst"] = replace(burst, rounds=self.rounds)
        return plans

    @property
    def of_times(self) -> list[str]:
        """What was asked for that only matters where times are taken, in words."""
        asked = [f"--regime {name}" for name in dict.fromkeys(self.regimes) if name != "burst"]
        return asked + [f"--rounds {self.rounds}"] * (self.rounds != bench.Burst.rounds)


class Simulated(Product):
    """A product on the simulator; one that takes long says so, then tells of each launch."""

    coming: Iterator[str] = iter(())
    """What is said before each launch that is still to come."""

    def run(self, version: Version, operands: Operands) -> None:
        """Launch a version, after saying which launch that is."""
        if line := next(self.coming, ""):
            click.echo(f"{line}: {version.name}", err=True)
        super().run(version, operands)

    def foretell(self, runs: int) -> None:
        """Say how long ``check(runs)`` will take, judged by a small problem's time; from now on
        tell of each launch."""
        each = 2 + runs * (runs > 1)  # on integers, on normal numbers, and again
        launches, begun = each * len(self.versions), perf_counter()
        time = timedelta(seconds=round(each * self._seconds()))
        what = f"{launches} launches of {'x'.join(map(str, self.size))}"
        click.echo(f"{what} take the simulator about {time} (hours:minutes:seconds).", err=True)
        click.echo("--size 256 256 256 takes seconds.", err=True)
        self.coming = (
            f"launch {number} of {launches}, after {timedelta(seconds=int(perf_counter() - begun))}"
            for number in range(1, launches + 1)
        )

    def _seconds(self) -> float:
        """Return what one launch of each version will take: a small problem's time, by the work."""
        small = Product(SIZES["sim"], None, say=lambda _: None)
        small.versions = self.versions
        launches = small.launches().values()
        for launch in launches:
            launch()  # builds the program
        return sum(map(_seconds, launches)) * prod(self.size) / prod(small.size)


def _seconds(launch: bench.Launch) -> float:
    begun = perf_counter()
    launch()
    return perf_counter() - begun


INSTALL_CUBLAS = 'pip install "cupy-cuda13x>=13.6" "nvmath-python[cu13]>=0.6", or PyTorch'
"""The extra ``baseline`` by its packages: this package itself is on no index."""
NO_SPEED = (
    "Cycles are those of the simulator's model, and no speed: at a small size a version that is "
    "faster on a GPU may need more of them."
)


def main(script: Any, version: str) -> None:
    """Run an example from the command line; exit with a status other than 0 if all is not well."""
    start(command(script, version))


def start(program: click.Command) -> None:
    """Run a command; exit with its status where that is other than 0."""
    if code := status(program):
        sys.exit(code)


def status(program: click.Command, words: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: what it returns, if anything.

    Errors of the user, and of what the machine has not got, are told in a few lines. ``words``: of
    the command line; None: this process's own.
    """
    try:
        return int(program.main(words, standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (TilusError, click.Abort) as error:
        click.echo(f"error: {told(error) or 'interrupted'}", err=True)
    except ModuleNotFoundError as error:
        mend = f"mend: {sys.executable} -m pip install {error.name}"
        click.echo(f"error: {error}\n{mend}", err=True)
    except (MemoryError, OSError) as error:  # too large a problem, a file that cannot be written
        click.echo(f"error: {type(error).__name__}: {error}", err=True)
    return 1


def on_record(work: Callable[[str], int], path: Path, text: str | None) -> click.Command:
    """Return the command of a script whose only argument is a record, by default at ``path``.

    ``work`` returns the exit status. ``text`` is the script's docstring; what it indents stays as
    it is.
    """
    record = click.Argument(["path"], type=click.Path(dir_okay=False), default=str(path))
    shown = (text or "").replace("\n\n    ", "\n\n\b\n    ")
    return click.Command(work.__module__, params=[record], callback=work, help=shown)


def command(script: Any, version: str) -> click.Command:
    """Return the command line of the example that holds the kernel ``script``."""

    def run(size: Size | None, **asked: Any) -> None:
        carry_out({version: script}, Request(sizes=[size] if size else [], **asked))

    options: list[click.Parameter] = [DEVICE, SIZE, REGIME, JSON]
    return click.Command(version, params=options, callback=run, help=f"Run {script.__name__}.")


def carry_out(scripts: Mapping[str, Any], request: Request) -> None:
    """Check every version at every size, measure it on a GPU, and tell; keep a record if asked."""
    gpu, parts, rows = choose(request.device), list[records.Record](), list[Row]()
    if gpu is None and (left_out := request.of_times):
        click.echo(f"The simulator takes no times: without effect here: {', '.join(left_out)}")
    for product in products(scripts, request, gpu):
        if isinstance(product, Simulated) and prod(product.size) >= LONG:
            product.foretell(request.runs)
        product.check(request.runs)
        taken = measured(product, request) if gpu else product.simulated()
        rows += taken
        if request.path is not None:
            parts.append(product.record(taken, bench.method(request.plans)))
    Console().print(table(rows))
    if gpu is None:
        click.echo(NO_SPEED)
    if request.path is not None:
        records.write(records.merge(parts), request.path)
        click.echo(f"record written: {request.path}")
    for line in dict.fromkeys(summary(row, gpu) for row in rows if row["version"] in scripts):
        click.echo(line)


def products(
    scripts: Mapping[str, Any], request: Request, gpu: runtime.Gpu | None
) -> Iterator[Product]:
    """Yield the problem of each size with all versions in it, their schedules chosen."""
    sizes = request.sizes or [SIZES["cuda" if gpu else "sim"]]
    tuned = versions(scripts, request, Product(request.tune_at, gpu)) if request.tune_at else {}
    # How long tuning took is said of the size it was done at.
    elsewhere = {name: replace(version, tuning=None) for name, version in tuned.items()}
    for size in sizes:
        product = (Product if gpu else Simulated)(size, gpu, request.process, click.echo)
        known = tuned if size == request.tune_at else elsewhere
        product.versions = known or versions(scripts, request, product)
        yield product


def versions(scripts: Mapping[str, Any], request: Request, product: Product) -> dict[str, Version]:
    """Return every version with a schedule, tuned for a product where none is given.

    Raises :class:`ArgumentError` for a kernel that is no product of two matrices.
    """
    for script in scripts.values():
        demand_product(script)
    return {
        name: Version.choose(name, script, request.given.get(name, {}), product)
        for name, script in scripts.items()
    }


def demand_product(script: Any) -> None:
    """Refuse a kernel that cannot be called with M, N, K, A, B and C."""
    signature = inspect.signature(kernel_function(script))
    try:
        signature.bind(None, *range(6))
    except TypeError:
        form = f"{script.__name__}({', '.join(list(signature.parameters)[1:])})"
        rule = "a matrix product, called with M, N, K, A, B and C"
        remedy = "Run its own file, or tilus simulate; give further parameters defaults."
        raise ArgumentError("KERNEL", rule, form, remedy) from None


def measured(product: Product, request: Request) -> list[Row]:
    """Find the rivals and time everybody; show how far that is."""
    product.find(request.finders)
    if request.finders and "cublas" not in product.rivals:
        click.echo(f"There is no cuBLAS to compare with. mend: {INSTALL_CUBLAS}")
    plans, contenders = request.plans, len(product.launches())
    steps, done = sum(plan.steps(contenders) for plan in plans.values()), count(1)
    with Show("x".join(map(str, product.size))).stage("timing", steps) as advance:
        return product.measure(plans, lambda _: advance(next(done)))


def choose(device: str) -> runtime.Gpu | None:
    """Set the backend; return its GPU, or None for the simulator, after saying so."""
    option.device(device)
    if device == "cuda":
        return runtime.require_gpu()
    gpu = runtime.find_gpu() if device == "auto" else None
    if gpu is None:
        why = "No Hopper GPU here: r" if device == "auto" else "R"
        click.echo(f"{why}unning on the simulator, which is right or wrong but not fast.")
        option.device("sim")
    return gpu


def summary(row: Row, gpu: runtime.Gpu | None) -> str:
    """Return the line that ends a good run of a version."""
    size = " ".join(f"{axis}={row[axis]}" for axis in "mnk")
    error = row["verification"]["rel_err"]
    return f"ok {row['version']} device={'cuda' if gpu else 'sim'} {size} rel_err={error:.3e}"


def table(rows: Sequence[Row]) -> Table:
    """Return the measurements as a table for people."""
    simulated = rows[0]["regime"] == "simulated"
    times = ("simulated cycles a block",) if simulated else ("ms", "TFLOPS", "x cuBLAS")
    shown = Table("size", "version", "regime", "schedule", *times)
    for row in rows:
        size = "x".join(str(row[axis]) for axis in "mnk")
        schedule = " ".join(f"{k}={v}" for k, v in (row["schedule"] or {}).items())
        numbers = (f"{row['cycles']}",) if simulated else timed_cells(row)
        shown.add_row(size, row["version"], row["regime"], schedule, *numbers)
    return shown


def timed_cells(row: Row) -> tuple[str, str, str]:
    """Return milliseconds, TFLOPS and the ratio with its range as text."""
    ms = median(row["latency_ms"])
    speed = records.tflops(row["m"], row["n"], row["k"], ms)
    ratio = "-"
    if row["vs_cublas"] is not None:
        low, high = row["vs_cublas_range"]
        ratio = f"{row['vs_cublas']:.3f} ({low:.3f}-{high:.3f})"
    return f"{ms:.4f}", f"{speed:.1f}", ratio

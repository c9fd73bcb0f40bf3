# SPDX-License-Identifier: Apache-2.0
"""What every example of the ladder does when it is run: check, tune, measure, tell.

::

    if __name__ == "__main__":
        main(MatmulWGMMAV3, version="v3")

On a Hopper GPU the kernel is tuned, judged by :mod:`tilus.verify` and timed against cuBLAS. Without
one it runs on the simulator, is judged there too, and has no times. ``--json`` keeps a record.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tilus import baseline, bench, records, runtime
from tilus.errors import ArgumentError, TilusError
from tilus.frontend import kernel_function
from tilus.options import DEVICES, option
from tilus.verify import GUARD, Case, Verdict

SEED = 2026
"""Of the inputs that are timed, so that all versions compute the same product."""
SIZES = {"cuda": (8192, 8192, 8192), "sim": (256, 256, 256)}
REGIMES: Mapping[str, bench.Burst | bench.Sustained] = {
    "burst": bench.Burst(),
    "sustained": bench.Sustained(),
}
ROOT = Path(__file__).resolve().parents[2]
"""The repository, which paths in a record begin at."""

Row = dict[str, Any]
"""One measurement, in the form of a record."""


def main(script: Any, version: str) -> None:
    """Run an example from the command line; exit with a status other than 0 if all is not well."""
    try:
        command(script, version).main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (TilusError, click.Abort) as error:
        click.echo(f"error: {error or 'interrupted'}", err=True)
        sys.exit(1)


def command(script: Any, version: str) -> click.Command:
    """Return the command line of the example that holds the kernel ``script``."""

    def run(
        device: str,
        size: tuple[int, int, int] | None,
        regimes: Sequence[str],
        path: Path | None,
    ) -> None:
        gpu = choose(device)
        product = Product(script, version, *(size or SIZES["cuda" if gpu else "sim"]), gpu)
        verdict = product.check()
        rows = product.measure(regimes) if gpu else [product.simulated(verdict)]
        Console().print(table(rows))
        if path is not None:
            records.write(product.record(rows), path)
            click.echo(f"record written: {path}")
        click.echo(product.summary(verdict))

    options: list[click.Parameter] = [
        click.Option(
            ["--device"],
            type=click.Choice(DEVICES),
            default=option.current_device,
            show_default=True,
            help="A Hopper GPU, the simulator, or whichever there is.",
        ),
        click.Option(
            ["--size"], type=click.IntRange(1), nargs=3, metavar="M N K", help="The problem."
        ),
        click.Option(
            ["--regime", "regimes"],
            type=click.Choice(list(REGIMES)),
            multiple=True,
            default=["burst"],
            show_default=True,
            help="How to take times; may be repeated.",
        ),
        click.Option(
            ["--json", "path"],
            type=click.Path(dir_okay=False, path_type=Path),
            help="Write a record of the run.",
        ),
    ]
    return click.Command(version, params=options, callback=run, help=f"Run {script.__name__}.")


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


@dataclass(frozen=True, eq=False)
class Operands:
    """The arrays of a case where a kernel takes them: host memory, or a GPU's."""

    a: Any
    b: Any
    c: Any
    memory: Any

    @classmethod
    def place(cls, case: Case, gpu: runtime.Gpu | None) -> Operands:
        """Return copies of the inputs, and C poisoned between guards."""
        raw, output = case.output.fresh(), case.output
        if gpu is None:
            return cls(case.a.copy(), case.b.copy(), output.matrix(raw), raw)
        a, b, memory = (runtime.DeviceArray.from_numpy(x, gpu.index) for x in (case.a, case.b, raw))
        row = raw.itemsize * output.pitch
        c = memory.view((output.m, output.n), (row, raw.itemsize), offset=raw.itemsize * GUARD)
        return cls(a, b, c, memory)

    def poison(self, case: Case) -> None:
        """Make C on the GPU what it was before anything ran."""
        self.memory.copy_from(case.output.fresh())

    def judge(self, case: Case) -> Verdict:
        """Return the verdict on what the arrays hold now."""
        memory, a, b = (
            x.to_numpy() if isinstance(x, runtime.DeviceArray) else x
            for x in (self.memory, self.a, self.b)
        )
        return case.judge(memory, a, b)


class Product:
    """One product, C[m, n] = A[m, k] · B[n, k]ᵀ, by one kernel on one backend."""

    def __init__(
        self, script: Any, version: str, m: int, n: int, k: int, gpu: runtime.Gpu | None
    ) -> None:
        self.script, self.version, self.gpu = script, version, gpu
        self.size = m, n, k
        self.kernel = script()
        self.case = Case.draw("bounded", m, n, k, seed=SEED)
        self.operands = Operands.place(self.case, gpu)
        self.cublas: dict[str, Row] = {}

    @property
    def what(self) -> str:
        """The version and the size in words."""
        return f"{self.version} at {'x'.join(map(str, self.size))}"

    def run(self, operands: Operands) -> None:
        """Launch the kernel."""
        self.kernel(*self.size, operands.a, operands.b, operands.c)

    def check(self) -> Verdict:
        """Judge the kernel on integers, drawn anew, and on the normal numbers that are timed.

        Return the second verdict; raise :class:`TilusError` if either is against the kernel.
        """
        integers = Case.draw("exact", *self.size)
        for case in (integers, self.case):
            operands = self.operands if case is self.case else Operands.place(case, self.gpu)
            self.run(operands)
            verdict = operands.judge(case).demand(self.what)
        click.echo(
            f"{self.what} is right: exact on integers; on normal numbers the largest error is "
            f"{verdict.worst:.2f} of the bound ({verdict.checked} of {verdict.total} elements)"
        )
        return verdict

    def simulated(self, verdict: Verdict) -> Row:
        """Return the row of a run on the simulator: cycles of its model, and no times."""
        cycles = round(self.kernel.last_run.cycles)
        return self.row(self.version, verdict, regime="simulated", latency_ms=[], cycles=cycles)

    def measure(self, regimes: Sequence[str]) -> list[Row]:
        """Time the kernel and every cuBLAS there is, each after it has been judged."""
        assert self.gpu is not None
        rivals = baseline.contenders(self.operands.a, self.operands.b, self.operands.c)
        if not rivals:
            click.echo(f"There is no cuBLAS to compare with. mend: {baseline.INSTALL}")
        ours: bench.Launch = lambda: self.run(self.operands)  # noqa: E731
        launches = {self.version: ours, **{rival.name: rival.launch for rival in rivals}}
        verdicts = {name: self._judged(name, launch) for name, launch in launches.items()}
        timer, rows = bench.CudaTimer(self.gpu), []
        with Console(stderr=True).status("timing") as status:
            for regime in regimes:
                series = REGIMES[regime](timer, launches, status.update)
                rows += [self._timed(name, verdicts[name], regime, series) for name in launches]
        for rival in rivals:
            self.cublas[rival.name] = {"library": rival.library, "version": rival.version}
            if (kernel := rival.kernel()) is not None:
                rows = [r | {"kernel": kernel} if r["version"] == rival.name else r for r in rows]
        return rows

    def _judged(self, name: str, launch: bench.Launch) -> Verdict:
        self.operands.poison(self.case)
        launch()
        return self.operands.judge(self.case).demand(f"{name} at {self.what.partition(' at ')[2]}")

    def _timed(
        self, name: str, verdict: Verdict, regime: str, series: Mapping[str, bench.Series]
    ) -> Row:
        """Return a contender's row: its times, and its ratios to the times of cuBLAS."""
        own = series[name]
        seen = {
            "sm_mhz": [w.sm_mhz for w in own.windows if w.sm_mhz],
            "power_w": [w.power_w for w in own.windows if w.power_w],
        }
        row = self.row(
            name,
            verdict,
            regime=regime,
            latency_ms=list(own.latency_ms),
            launches=[w.launches for w in own.windows],
            **{key: values for key, values in seen.items() if values},
        )
        return row | compared(own, {n: s for n, s in series.items() if n != self.version})

    def row(self, version: str, verdict: Verdict, **fields: Any) -> Row:
        """Return a measurement with what all of them have."""
        m, n, k = self.size
        ours = version == self.version
        return {
            "version": version,
            **{"m": m, "n": n, "k": k, "dtype": "float16", "acc_dtype": "float32"},
            "process": 0,
            "vs_cublas": None,
            "schedule": dict(self.kernel.schedule) if ours else None,
            "verified": verdict.right,
            "verification": {
                "rel_err": verdict.rel_err,
                "worst": verdict.worst,
                "checked": verdict.checked,
                "total": verdict.total,
            },
            **fields,
        }

    def record(self, rows: Sequence[Row]) -> records.Record:
        """Return the record of this run."""
        seen = runtime.telemetry(self.gpu) if self.gpu else None
        operands = self.operands
        call = self.kernel.bind(*self.size, operands.a, operands.b, operands.c)
        made = records.generated(self.script, self.kernel.schedule, call.constants)
        power = seen.power_limit_w if seen else None
        return records.Record(
            {
                "schema": records.SCHEMA_VERSION,
                "environment": records.environment(self.gpu, power, self.cublas),
                "method": bench.method(),
                "sources": records.sources(kernel_file(self.script), self.script, [made], ROOT),
                "measurements": list(rows),
            }
        )

    def summary(self, verdict: Verdict) -> str:
        """Return the line that ends a good run."""
        m, n, k = self.size
        device = "cuda" if self.gpu else "sim"
        return f"ok {self.version} device={device} {m=} {n=} {k=} rel_err={verdict.rel_err:.3e}"


def compared(own: bench.Series, rivals: Mapping[str, bench.Series]) -> Row:
    """Return a row's ratios: to cuBLAS's default, and to the fastest of what cuBLAS offers."""
    if "cublas" not in rivals:
        return {}
    default = rivals["cublas"].latency_ms
    best = min(rivals, key=lambda name: rivals[name].median_ms)
    each = [b / o for b, o in zip(default, own.latency_ms, strict=True)]
    return {
        "vs_cublas": records.ratio(default, own.latency_ms),
        "vs_cublas_range": [min(each), max(each)],
        "best_cublas": best,
        "vs_best_cublas": records.ratio(rivals[best].latency_ms, own.latency_ms),
    }


def kernel_file(script: Any) -> str:
    """Return the path of a kernel's file from the repository's root."""
    path = Path(kernel_function(script).__code__.co_filename).resolve()
    if not path.is_relative_to(ROOT):
        remedy = "Run it from a checkout that holds the kernel."
        raise ArgumentError("--json", f"used with a kernel below {ROOT}", path, remedy)
    return path.relative_to(ROOT).as_posix()


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

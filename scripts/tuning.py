# SPDX-License-Identifier: Apache-2.0
"""How scripts/suite chooses schedules: the model's best are measured, then orders of tiles."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from math import ceil
from pathlib import Path
from typing import Any

import click

from tilus import bench, compiler, records, runtime
from tilus.dtypes import float16
from tilus.errors import ArgumentError, TilusError
from tilus.kernels import Schedule
from tilus.kernels.matmul import Plan, built, plan, script, summing
from tilus.kernels.schedules import USUAL, Size, shortlist, up
from tilus.kernels.table import hashes
from tilus.kernels.table import measured as known
from tilus.product import SEED

CANDIDATES = 8
"""Schedules that are measured for a size, before the order of tiles is."""
ORDERS = ((4, 132), (11, 132), (16, 132), (16, 128))
"""Rows of tiles in a group, and persistent blocks, that are tried with the best tile."""
WORKERS = 16
WINDOW_MS = 12.0
TUNING = bench.Burst(idle_s=0.03, warmups=2, rounds=3)
MOST_ERROR = 2e-3
"""Relative error, in the Frobenius norm, against PyTorch's product: one rounding makes 2e-4."""


@dataclass(frozen=True)
class Clock:
    """Says how much of the time of a run is left."""

    seconds: float
    begin: float = field(default_factory=time.monotonic)

    @property
    def over(self) -> bool:
        """Whether nothing new should begin."""
        return time.monotonic() - self.begin > self.seconds

    def say(self, text: str) -> None:
        """Print a line with the seconds since the beginning."""
        click.echo(f"{time.monotonic() - self.begin:6.1f} s  {text}")


def words(size: Size) -> str:
    """Return a size as text."""
    return "x".join(map(str, size))


@dataclass
class Trial:
    """A size with its operands on the GPU, and what each schedule took there, in milliseconds."""

    size: Size
    gpu: runtime.Gpu
    times: dict[Schedule, float] = field(default_factory=dict)
    cublas_ms: float = 0.0

    @property
    def best(self) -> Schedule:
        """The fastest schedule so far."""
        return min(self.times, key=lambda s: self.times[s])

    def measure(self, schedules: Iterable[Schedule], say: Callable[[str], None]) -> None:
        """Judge and time schedules that have not been timed, in turn with PyTorch's product."""
        torch = import_module("torch")
        m, n, k = self.size
        torch.manual_seed(SEED)
        a, b = (torch.randn(x, k, device="cuda", dtype=torch.float16) for x in (m, n))
        c, right = torch.empty(m, n, device="cuda", dtype=torch.float16), a @ b.T
        launches: dict[Any, bench.Launch] = {"cublas": lambda: torch.matmul(a, b.T, out=c)}
        for schedule in schedules:
            if schedule not in self.times:
                launches |= self._judged(schedule, a, b, c, right, say)
        for name, series in timed(self.gpu, launches).items():
            if isinstance(name, Schedule):
                self.times[name] = series
            else:
                self.cublas_ms = series

    def _judged(
        self, schedule: Schedule, a: Any, b: Any, c: Any, right: Any, say: Callable[[str], None]
    ) -> dict[Schedule, bench.Launch]:
        """Return the launch of a schedule that is right; say what is wrong with any other."""
        try:
            launch = functools.partial(planned(a, b.T, c, schedule).run, 0)
            c.fill_(float("nan"))
            launch()
            error = float((c.float() - right.float()).norm() / right.float().norm())
        except TilusError as problem:
            say(f"{words(self.size)} {schedule}: {str(problem).splitlines()[0]}")
            return {}
        if not error < MOST_ERROR:
            say(f"{words(self.size)} {schedule}: WRONG, relative error {error:.2e}")
            return {}
        return {schedule: launch}

    def row(self) -> dict[str, Any]:
        """Return the row of the table."""
        m, n, k = self.size
        others = sorted(self.times.items(), key=lambda x: x[1])
        return {
            **{"m": m, "n": n, "k": k, "ms": round(self.times[self.best], 5)},
            "cublas_ms": round(self.cublas_ms, 5),
            "schedule": self.best.values(),
            "tried": [{"ms": round(ms, 5), "schedule": s.values()} for s, ms in others],
        }


def planned(a: Any, b: Any, c: Any, schedule: Schedule | None = None) -> Plan:
    """Return the plan of C = A · B."""
    left, right, out = (runtime.describe(x, "array") for x in (a, b, c))
    device = "sim" if left.device == runtime.CPU else left.device
    return plan(left, right, out, device, 0, schedule)


def timed(gpu: runtime.Gpu, launches: dict[Any, bench.Launch]) -> dict[Any, float]:
    """Return the median milliseconds of a launch, the contenders timed in turn."""
    timer, (first, *_) = bench.CudaTimer(gpu), launches.values()
    about = timer.run(first, 3).latency_ms
    count = max(5, min(30, ceil(WINDOW_MS / about)))
    series = replace(TUNING, launches=count)(timer, launches)
    return {name: s.median_ms for name, s in series.items()}


def compiled(schedules: Iterable[Schedule]) -> None:
    """Compile schedules in parallel threads: NVRTC runs without Python's lock."""
    with ThreadPoolExecutor(WORKERS) as pool:
        for schedule in dict.fromkeys(schedules):
            kernels = [built(script(schedule, float16), schedule, USUAL)]
            if schedule.split_k > 1:
                kernels.append(summing(float16, schedule.split_k))
            for kernel, launcher in kernels:
                with suppress(TilusError):  # what is wrong with one is said when it is tried
                    pool.submit(compiler.build, launcher.kernel(kernel, {}))


def tune(path: Path, sizes: Sequence[Size], seconds: float, keep: Path | None = None) -> None:
    """Measure the schedules that are worth it for every size, then orders of tiles.

    Rows of the table ``keep`` stay as they are; it must be of today's kernels and of such a GPU.
    """
    gpu, clock = runtime.require_gpu(), Clock(seconds)
    before = kept_rows(keep, gpu)
    trials = [Trial(size, gpu) for size in sizes if size not in {size_of(r) for r in before}]
    lists = {t.size: worth_it(t.size) for t in trials}
    for stage in (lambda t: lists[t.size], orders):
        compiled(schedule for t in trials for schedule in stage(t))
        clock.say("compiled")
        for trial in trials:
            if clock.over:
                clock.say(f"no time left for {words(trial.size)}")
                continue
            trial.measure(stage(trial), clock.say)
            if trial.times:
                ms = trial.times[trial.best]
                ratio = trial.cublas_ms / ms
                clock.say(f"{words(trial.size)} {ms:.4f} ms {ratio:.3f} x cuBLAS {trial.best}")
            write_table(path, before + [t.row() for t in trials if t.times], gpu)


def worth_it(size: Size) -> list[Schedule]:
    """Return the schedules to measure: what the model finds best, and what is chosen today."""
    today = known().choose(size)
    return list(dict.fromkeys([*shortlist(size, CANDIDATES), *([today] if today else [])]))


def orders(trial: Trial) -> list[Schedule]:
    """Return the best schedule with other orders of its tiles and numbers of blocks."""
    if not trial.times:
        return []
    best = trial.best
    rows = up(best.sides(trial.size)[0], best.block_m)  # larger groups are all the same
    kinds = dict.fromkeys((min(group, rows), blocks) for group, blocks in ORDERS)
    kinds.pop((min(best.group_m, rows), best.num_blocks), None)
    return [replace(best, group_m=group, num_blocks=blocks) for group, blocks in kinds]


def kept_rows(path: Path | None, gpu: runtime.Gpu) -> list[dict[str, Any]]:
    """Return the rows of a table that are not measured again."""
    if path is None:
        return []
    table = json.loads(path.read_text())
    found = table["machine"]["gpu"], table["sources"]
    if found != (gpu.name, hashes()):
        remedy = "Measure it anew, without --keep."
        raise ArgumentError("--keep", f"a table of {gpu.name} and of today's kernels", path, remedy)
    return list(table["rows"])


def size_of(row: Mapping[str, Any]) -> Size:
    """Return M, N, K of a row."""
    return row["m"], row["n"], row["k"]


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], gpu: runtime.Gpu) -> None:
    """Write the table of what has been measured so far."""
    machine = records.environment(gpu, runtime.telemetry(gpu).power_limit_w, {})
    table = {"machine": machine, "sources": hashes(), "rows": rows}
    path.write_text(json.dumps(table, indent=1) + "\n")

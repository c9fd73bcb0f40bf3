# SPDX-License-Identifier: Apache-2.0
"""One matrix product by several kernels: judged, timed in turn with rivals, kept as a record.

Whatever is timed has been judged right on the same arrays in the same process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilus import baseline, bench, records, runtime
from tilus.autotune import Tuning
from tilus.errors import ArgumentError, TilusError
from tilus.facts import facts
from tilus.frontend import kernel_function
from tilus.script import Tuned
from tilus.verify import GUARD, Case, Verdict

SEED = 2026
"""Of all inputs, so that all versions compute the same products."""
ROOT = Path(__file__).resolve().parents[2]
"""The repository, which paths in a record begin at."""

Row = dict[str, Any]
"""One measurement, in the form of a record."""
Rivals = Callable[[Any, Any, Any], Sequence[baseline.Contender]]
"""Finds what else computes C = A Bᵀ on arrays of a GPU, such as :func:`baseline.contenders`."""
Say = Callable[[str], None]
"""Is told what goes on."""


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
        """Make C what it was before anything ran."""
        if isinstance(self.memory, runtime.DeviceArray):
            self.memory.copy_from(case.output.fresh())
        else:
            self.memory[...] = case.output.fresh()

    def blank(self) -> None:
        """Make all of C and its guards NaN, which on a GPU takes no copy."""
        if isinstance(self.memory, runtime.DeviceArray):
            self.memory.fill_bytes(0xFF)
        else:
            self.memory[...] = np.nan

    def bits(self) -> Any:
        """Return the memory of C as it is now, guards included, on the host."""
        return _on_host(self.memory).view(np.uint16)

    def judge(self, case: Case) -> Verdict:
        """Return the verdict on what the arrays hold now."""
        return case.judge(*(_on_host(x) for x in (self.memory, self.a, self.b)))


def _on_host(x: Any) -> Any:
    return x.to_numpy() if isinstance(x, runtime.DeviceArray) else x


@dataclass(frozen=True, eq=False)
class Version:
    """A kernel of ours: ``kernel`` has a schedule, chosen by ``tuning`` unless it was given."""

    name: str
    script: Any
    kernel: Any
    tuning: Tuning | None = None

    @classmethod
    def choose(cls, name: str, script: Any, given: Mapping[str, Any], product: Product) -> Version:
        """Return ``script`` with the schedule ``given``; the rest is tuned for ``product``."""
        kernel = script(**given)
        if not isinstance(kernel, Tuned):
            return cls(name, script, kernel)
        chosen = kernel.choose(*product.size, *product.arrays)
        return cls(name, script, chosen, kernel.tuner.last)


class Product:
    """One product, C[m, n] = A[m, k] · B[n, k]ᵀ, by all ``versions``, which the caller puts in.

    ``process`` is the number of this process among fresh ones that measure the same.
    """

    def __init__(
        self, size: Sequence[int], gpu: runtime.Gpu | None, process: int = 0, say: Say = print
    ) -> None:
        self.size, self.gpu, self.process, self.say = tuple(size), gpu, process, say
        self.case = Case.draw("bounded", *self.size, seed=SEED)
        self.operands = Operands.place(self.case, gpu)
        self.versions: dict[str, Version] = {}
        self.verdicts: dict[str, Verdict] = {}
        self.rivals: dict[str, baseline.Contender] = {}

    def what(self, name: str) -> str:
        """Return a version and the size in words."""
        return f"{name} at {'x'.join(map(str, self.size))}"

    @property
    def arrays(self) -> tuple[Any, Any, Any]:
        """A, B and C."""
        return self.operands.a, self.operands.b, self.operands.c

    def run(self, version: Version, operands: Operands) -> None:
        """Launch a version."""
        version.kernel(*self.size, operands.a, operands.b, operands.c)

    # ---- judging --------------------------------------------------------------------------------

    def check(self, runs: int = 1) -> None:
        """Judge every version on integers, and on the normal numbers that are timed.

        On the latter it runs ``runs`` times and must leave the same bits each time. Raises
        :class:`TilusError` if anything is against a version.
        """
        self._check_integers()
        for name, version in self.versions.items():
            self.operands.poison(self.case)
            self.run(version, self.operands)
            verdict = self.operands.judge(self.case).demand(self.what(name))
            if runs > 1:
                self._repeat(version, runs)
            self.verdicts[name] = verdict
            again = f"; the same bits in {runs} runs" if runs > 1 else ""
            self.say(
                f"{self.what(name)} is right: exact on integers; on normal numbers the largest "
                f"error is {verdict.worst:.2f} of the bound ({verdict.checked} of {verdict.total} "
                f"elements){again}"
            )

    def _check_integers(self) -> None:
        case = Case.draw("exact", *self.size, seed=SEED)
        operands, right = Operands.place(case, self.gpu), None
        inputs = [_on_host(x).copy() for x in (operands.a, operands.b)]
        for name, version in self.versions.items():
            operands.poison(case)
            self.run(version, operands)
            # All that are exact leave the same bits: the first right one saves the others' product.
            untouched = all(map(_same, inputs, map(_on_host, (operands.a, operands.b))))
            if right is None or not untouched or not _same(operands.bits(), right):
                operands.judge(case).demand(self.what(name))
                right = operands.bits().copy()

    def _repeat(self, version: Version, runs: int) -> None:
        first = None
        for number in range(1, runs + 1):
            self.operands.blank()
            self.run(version, self.operands)
            found = self.operands.bits()
            first = found.copy() if first is None else first
            if not _same(found, first):
                what = self.what(version.name)
                raise TilusError(f"{what} is wrong: run {number} leaves other bits than the first")

    def _judged(self, rival: baseline.Contender) -> Verdict:
        self.operands.poison(self.case)
        rival.launch()
        return self.operands.judge(self.case).demand(self.what(rival.name))

    # ---- measuring ------------------------------------------------------------------------------

    def simulated(self) -> list[Row]:
        """Return the rows of runs on the simulator: cycles of its model, and no times."""
        return [
            self._row(name, regime="simulated", latency_ms=[], cycles=round(cycles))
            for name, version in self.versions.items()
            for cycles in [version.kernel.last_run.cycles]
        ]

    def find(self, finders: Sequence[Rivals]) -> None:
        """Look for rivals, and judge each; raises :class:`TilusError` for a wrong one."""
        assert self.gpu is not None
        for rival in (rival for find in finders for rival in find(*self.arrays)):
            self.verdicts[rival.name] = self._judged(rival)
            self.rivals[rival.name] = rival

    def measure(
        self,
        plans: Mapping[str, bench.Burst | bench.Sustained],
        progress: bench.Progress = lambda _: None,
    ) -> list[Row]:
        """Time all versions and rivals in turn by each of ``plans``: a row for each of them.

        They have been judged, by ``check`` and ``find``, before.
        """
        assert self.gpu is not None
        timer, launches, rows = bench.CudaTimer(self.gpu), self.launches(), []
        for regime, plan in plans.items():
            series = plan(timer, launches, progress)
            rows += [self._timed(name, regime, series) for name in launches]
        codes = {name: {"kernel": code} for name, r in self.rivals.items() if (code := r.kernel())}
        return [row | codes.get(row["version"], {}) for row in rows]

    def launches(self) -> dict[str, bench.Launch]:
        """Return what queues one launch, for each version, then for each rival found so far."""
        ours: dict[str, bench.Launch] = {
            name: lambda version=version: self.run(version, self.operands)  # type: ignore[misc]
            for name, version in self.versions.items()
        }
        return ours | {rival.name: rival.launch for rival in self.rivals.values()}

    def _timed(self, name: str, regime: str, series: Mapping[str, bench.Series]) -> Row:
        """Return a contender's row: its times, and its ratios to the times of cuBLAS."""
        own = series[name]
        seen = {
            "sm_mhz": [w.sm_mhz for w in own.windows if w.sm_mhz],
            "power_w": [w.power_w for w in own.windows if w.power_w],
        }
        row = self._row(
            name,
            regime=regime,
            latency_ms=list(own.latency_ms),
            launches=[w.launches for w in own.windows],
            **{key: values for key, values in seen.items() if values},
        )
        return row | compared(own, {n: series[n] for n in baseline.CUBLAS if n in series})

    def _row(self, name: str, **fields: Any) -> Row:
        """Return a measurement with what all of them have."""
        m, n, k = self.size
        version, verdict = self.versions.get(name), self.verdicts[name]
        return {
            "version": name,
            **{"m": m, "n": n, "k": k, "dtype": "float16", "acc_dtype": "float32"},
            "process": self.process,
            "vs_cublas": None,
            "schedule": dict(version.kernel.schedule) if version else None,
            "verified": verdict.right,
            "verification": {
                "rel_err": verdict.rel_err,
                "worst": verdict.worst,
                "checked": verdict.checked,
                "total": verdict.total,
            },
            **fields,
        }

    # ---- the record -----------------------------------------------------------------------------

    def record(self, rows: Sequence[Row], method: Mapping[str, object]) -> records.Record:
        """Return the record of this run; ``method`` is how its times were taken."""
        return records.Record(
            {
                "schema": records.SCHEMA_VERSION,
                "environment": self.environment(),
                "method": dict(method),
                "sources": records.sources(self.kernels(), ROOT),
                "measurements": list(rows),
            }
        )

    def account(self) -> dict[str, Any]:
        """Return who ran on what, in the order of :meth:`launches`, for a profiler's record."""
        m, n, k = self.size
        schedules = {name: dict(v.kernel.schedule) for name, v in self.versions.items()}
        return {
            "environment": self.environment(),
            "sources": records.sources(self.kernels(), ROOT),
            "problem": {"m": m, "n": n, "k": k},
            "launches": [{"version": n, "schedule": schedules.get(n)} for n in self.launches()],
        }

    def environment(self) -> dict[str, Any]:
        """Return the machine, and the libraries of the rivals."""
        seen = runtime.telemetry(self.gpu) if self.gpu else None
        libraries = {
            name: {"library": rival.library, "version": rival.version}
            for name, rival in self.rivals.items()
        }
        return records.environment(self.gpu, seen.power_limit_w if seen else None, libraries)

    def kernels(self) -> dict[str, Any]:
        """Return what the numbers of each version, and of each rival of ours, depend on."""
        ours = {name: self._kernel(version) for name, version in self.versions.items()}
        files = {name: rival.file for name, rival in self.rivals.items() if rival.file}
        return ours | {name: records.kernel(below(file), ROOT) for name, file in files.items()}

    def _kernel(self, version: Version) -> dict[str, Any]:
        constants = version.kernel.bind(*self.size, *self.arrays).constants
        entry = records.generated(version.script, version.kernel.schedule, constants)
        if self.gpu:
            entry["facts"] = facts(version.kernel.lower(**constants), self.gpu)
            if version.tuning:
                entry["facts"]["tuning"] = version.tuning.facts()
        file = Path(kernel_function(version.script).__code__.co_filename)
        return records.kernel(below(file), ROOT, version.script, [entry])


def compared(own: bench.Series, cublas: Mapping[str, bench.Series]) -> Row:
    """Return a row's ratios: to cuBLAS's default, and to the fastest of what cuBLAS offers."""
    if "cublas" not in cublas:
        return {}
    default = cublas["cublas"].latency_ms
    best = min(cublas, key=lambda name: cublas[name].median_ms)
    each = [b / o for b, o in zip(default, own.latency_ms, strict=True)]
    return {
        "vs_cublas": records.ratio(default, own.latency_ms),
        "vs_cublas_range": [min(each), max(each)],
        "best_cublas": best,
        "vs_best_cublas": records.ratio(cublas[best].latency_ms, own.latency_ms),
    }


def below(path: Path) -> str:
    """Return the path of a kernel's file from the repository's root."""
    path = path.resolve()
    if not path.is_relative_to(ROOT):
        remedy = "Run it from a checkout that holds the kernel."
        raise ArgumentError("--json", f"used with a kernel below {ROOT}", path, remedy)
    return path.relative_to(ROOT).as_posix()


def _same(x: Any, y: Any) -> bool:
    return np.array_equal(x.view(np.uint16), y.view(np.uint16))

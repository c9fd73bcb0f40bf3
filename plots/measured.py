# SPDX-License-Identifier: Apache-2.0
"""Records as figures and tables share them: read once, their problems in one order, by one name."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tilus import records
from tilus.records import Record

Problem = tuple[int, int, int, str]
"""m, n, k and the regime."""
RIVALS = {"cublas": "cuBLAS", "cublaslt": "cublasLt's best"}
"""What of NVIDIA's is timed beside the steps, by the names that readers know."""


def load(path: Path) -> Record:
    """Read a record, once for all that ask for it while its file stays as it is."""
    return _load(path, path.stat().st_mtime_ns)


@cache
def _load(path: Path, modified: int) -> Record:
    return records.load(path)


def problems(record: Record, version: str) -> list[Problem]:
    """Return the timed problems of ``version``, largest first and bursts before sustained."""
    rows = record.select(version=version)
    found = {(row["m"], row["n"], row["k"], row["regime"]) for row in rows}
    timed = [p for p in found if p[3] != "simulated"]
    return sorted(timed, key=lambda p: (-p[0] * p[1] * p[2], p))


def versions(record: Record) -> list[str]:
    """Return the steps of the ladder in a record, in their order; a rival has no class."""
    kernels = record.sources["kernels"]
    return sorted(name for name, kernel in kernels.items() if "class" in kernel)


def called(version: str) -> str:
    """Return the name of a version or rival as readers know it."""
    return RIVALS.get(version, version.upper())


def size(m: int, n: int, k: int) -> str:
    """Return the size as people write it: ``8192³`` or ``1000×904×520``."""
    return f"{m}³" if m == n == k else f"{m}×{n}×{k}"

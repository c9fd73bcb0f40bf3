# SPDX-License-Identifier: Apache-2.0
"""The suite of ``tilus.kernels.matmul`` on a page: every row, wins and losses alike.

::

    .. suite-table::

Rows, ratios and their geometric mean come from ``suite.json``; a row that it lacks reads *not
measured yet*.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from ladder import found
from ladder.numbers import FORMATS, NOT_YET, table
from measured import size
from tilus.kernels.suite import SUITE, VERSION, geometric_mean
from tilus.records import tflops

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

    from tilus.kernels.schedules import Size
    from tilus.records import Record

FILE = "suite"
RATIOS = {"vs_cublas": "cuBLAS's default", "vs_best_cublas": "the best of cuBLAS and cublasLt"}
"""What the times are compared with, by the field of a measurement."""


def find(env: BuildEnvironment) -> found.Found | None:
    """Return the record of the suite, where there is one."""
    top = found.root(env)
    for path in (f"{folder}/{FILE}.json" for folder in env.config.record_folders):
        env.note_dependency(str(top / path))
        if (top / path).exists():
            record = found.load(top / path, (top / path).stat().st_mtime_ns)
            return found.Found(VERSION, top, path, record)
    return None


def measurement(record: Record, at: Size) -> Mapping[str, Any] | None:
    """Return the measurement of a row, None where there is none."""
    m, n, k = at
    rows = record.select(version=VERSION, m=m, n=n, k=k, regime="burst")
    return rows[0] if rows else None


def words(schedule: Mapping[str, Any]) -> str:
    """Return a schedule in the words of the page."""
    parts = [f"{schedule['block_m']}×{schedule['block_n']}"]
    parts += [f"{schedule['num_stages']} stages"]
    parts += ["swapped"] * schedule["swapped"] + ["in turn"] * schedule["turns"]
    if schedule["consumers"] != 2:
        parts.append(f"{schedule['consumers']} consumer{'s' * (schedule['consumers'] > 1)}")
    if schedule["split_k"] > 1:
        parts.append(f"K in {schedule['split_k']} parts")
    return ", ".join(parts)


def cells(record: Record, at: Size) -> list[str]:
    """Return the cells of a row."""
    row = measurement(record, at)
    if row is None:
        return [size(*at), NOT_YET, *["–"] * (2 + len(RATIOS))]
    ms = median(row["latency_ms"])
    ratios = [f"{row[f]:.3f}×" if row.get(f) else "–" for f in RATIOS]
    speed = FORMATS["tflops"].format(tflops(*at, ms))
    return [size(*at), words(row["schedule"]), FORMATS["latency_ms"].format(ms), speed, *ratios]


def means(record: Record) -> list[str]:
    """Return a sentence for each thing that times are compared with: the mean, and the least."""
    said = []
    for field, name in RATIOS.items():
        rows = (measurement(record, at) for at in SUITE)
        ratios = [row[field] for row in rows if row and row.get(field)]
        if ratios:
            slower = sum(ratio < 1 for ratio in ratios)
            said.append(
                f"Against {name}: geometric mean {geometric_mean(ratios):.3f}× over {len(ratios)} "
                f"of {len(SUITE)} sizes, from {min(ratios):.3f}× to {max(ratios):.3f}×, slower "
                f"at {slower}."
            )
    return said


class SuiteTable(SphinxDirective):
    """The table of the suite, its means and its badge."""

    def run(self) -> list[nodes.Node]:
        record = find(self.env)
        if record is None:
            return [found.not_yet(FILE)]
        header = ("M×N×K", "Schedule", "Time", "Speed", *(f"Against {x}" for x in RATIOS.values()))
        rows = table(header, [cells(record.record, at) for at in SUITE])
        lines = [nodes.paragraph("", line) for line in means(record.record)]
        return [nodes.container("", rows, *lines, record.badge(), classes=["record-table"])]


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("suite-table", SuiteTable)

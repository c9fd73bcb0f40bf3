# SPDX-License-Identifier: Apache-2.0
"""The suite of ``tilus.kernels.matmul`` on a page: every row, wins and losses alike.

::

    .. suite-table::
    .. suite-table:: unseen       sizes that no schedule was chosen at
    :suite:`3000 5000 2008`       the ratio to cuBLAS at a size
    :suite:`mean`                 their geometric mean, over all sizes

Rows, ratios and their geometric mean come from ``suite.json``; a row that it lacks reads *not
measured yet*.
"""

from __future__ import annotations

from statistics import geometric_mean, median
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective, SphinxRole

from ladder import found
from ladder.numbers import FORMATS, NOT_YET, table
from measured import load, size
from tilus.kernels.suite import SUITE, UNSEEN, VERSION
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
            return found.Found(VERSION, top, path, load(top / path))
    return None


def measurement(record: Record, at: Size) -> Mapping[str, Any] | None:
    """Return the measurement of a row, None where there is none."""
    m, n, k = at
    rows = record.select(version=VERSION, m=m, n=n, k=k, regime="burst")
    return rows[0] if rows else None


def times(value: float | None) -> str:
    """Return a ratio as text."""
    return f"{value:.3f}×" if value else "–"


def words(schedule: Mapping[str, Any]) -> str:
    """Return a schedule in the words of the page."""
    parts = [f"{schedule['block_m']}×{schedule['block_n']}"]
    parts += [f"{schedule['num_stages']} stages"]
    parts += ["swapped"] * schedule["swapped"] + ["in turn"] * schedule["turns"]
    parts += ["in pairs"] * (schedule.get("cluster", 1) > 1)
    if schedule["consumers"] != 2:
        parts.append(f"{schedule['consumers']} consumer{'s' * (schedule['consumers'] > 1)}")
    if schedule["split_k"] > 1:
        parts.append(f"K in {schedule['split_k']} parts")
    return ", ".join(parts)


def cells(record: Record | None, at: Size) -> list[str]:
    """Return the cells of a row."""
    row = measurement(record, at) if record else None
    if row is None:
        return [size(*at), "–", NOT_YET, *["–"] * (1 + len(RATIOS))]
    ms = median(row["latency_ms"])
    speed = FORMATS["tflops"].format(tflops(*at, ms))
    ratios = [times(row.get(field)) for field in RATIOS]
    took = FORMATS["latency_ms"].format(ms)
    return [size(*at), words(row["schedule"]), took, speed, *ratios]


def means(record: Record) -> list[str]:
    """Return a sentence for each thing that times are compared with: the mean, and the least."""
    said = []
    for field, name in RATIOS.items():
        if ratios := against(record, field):
            said.append(f"Against {name}: {sentence(ratios)}.")
    return said


def against(record: Record, field: str, sizes: tuple[Size, ...] = SUITE) -> list[float]:
    """Return the ratios of all rows that the record has."""
    rows = (measurement(record, at) for at in sizes)
    return [row[field] for row in rows if row and row.get(field)]


def losses(ratios: list[float]) -> int:
    """Return at how many sizes cuBLAS is faster."""
    return sum(ratio < 1 for ratio in ratios)


def sentence(ratios: list[float]) -> str:
    """Return the mean, the range and the losses among ratios in words."""
    return (
        f"geometric mean {geometric_mean(ratios):.3f}× over {len(ratios)} of {len(SUITE)} sizes, "
        f"from {min(ratios):.3f}× to {max(ratios):.3f}×, slower at {losses(ratios)}"
    )


def tally(record: Record, sizes: tuple[Size, ...]) -> str:
    """Return how many sizes there are, and where ours is slower."""
    ratios = against(record, "vs_cublas", sizes)
    return f"Slower than {RATIOS['vs_cublas']} at {losses(ratios)} of {len(ratios)} sizes."


class SuiteTable(SphinxDirective):
    """The table of the suite with its means, or that of sizes beside it; and its badge."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        record = find(self.env)
        unseen = self.arguments == ["unseen"]
        sizes = UNSEEN if unseen else SUITE
        compared = (f"Against {name}" for name in RATIOS.values())
        header = ("M×N×K", "Schedule", "Time", "Speed", *compared)
        rows = table(header, [cells(record and record.record, at) for at in sizes])
        said = ([tally(record.record, sizes)] if unseen else means(record.record)) if record else []
        lines = [nodes.paragraph("", line) for line in said]
        badge = record.badge() if record else found.not_yet(FILE)
        return [nodes.container("", rows, *lines, badge, classes=["record-table"])]


class Ratio(SphinxRole):
    """The ratio to cuBLAS at a size, or the mean of all."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        record = find(self.env)
        text = ratio(record.record, self.text, self.get_location()) if record else None
        kind = "measured" if text else "not-yet"
        return [nodes.inline(self.text, text or NOT_YET, classes=[kind])], []


def ratio(record: Record, of: str, place: str) -> str | None:
    """Return what stands for ``of``, a size or ``mean``; None where it has not been measured."""
    if of == "mean":
        ratios = against(record, "vs_cublas")
        return times(geometric_mean(ratios)) if ratios else None
    at = tuple(map(int, of.split()))
    if at not in SUITE + UNSEEN:
        raise ExtensionError(f"{place}: no size {of} in the suite")
    row = measurement(record, at)
    return times(row["vs_cublas"]) if row else None


def setup(app: Sphinx) -> None:
    """Register the directive and the role."""
    app.add_directive("suite-table", SuiteTable)
    app.add_role("suite", Ratio())

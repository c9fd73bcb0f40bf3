# SPDX-License-Identifier: Apache-2.0
"""Numbers on pages: each comes from a record and carries where it comes from. None is typed.

::

    :record:`v3 vs_cublas m=8192 burst`   a number: record, field, what picks the measurement
    :published:`h200_dense_fp16`          a vendor's number, from plots/published.json
    .. record-table:: v3                  all measurements of a record

A record that does not exist reads *not measured yet*. A number that a record lacks ends the build.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective, SphinxRole

from ladder import found
from measured import size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sphinx.application import Sphinx

    from measured import Problem
    from tilus.records import Summary

FORMATS = {
    "latency_ms": "{:.3f} ms",
    "tflops": "{:.0f} TFLOPS",
    "vs_cublas": "{:.3f}×",
}
"""The numbers of a problem, in the order of a table's columns."""
NOT_YET = "not measured yet"


def number(record: found.Found, field: str, picks: Sequence[str]) -> str:
    """Return one number as text, of the one problem and regime that ``picks`` leave."""
    if field not in (*FORMATS, "processes"):
        raise ExtensionError(f"no field {field!r}; there are {', '.join(FORMATS)}, processes")
    left = [p for p in record.problems() if all(_picked(p, pick) for pick in picks)]
    if len(left) != 1:
        wanted = " ".join(picks) or "no condition"
        raise ExtensionError(f"{record.path}: {len(left)} problems fit {wanted}; one is wanted")
    return formatted(record.summary(left[0]), field)


def _picked(problem: Problem, pick: str) -> bool:
    named = dict(zip(("m", "n", "k", "regime"), map(str, problem), strict=True))
    key, equals, value = pick.partition("=")
    return named.get(key) == value if equals else named["regime"] == pick


def formatted(summary: Summary, field: str) -> str:
    """Return a field of a summary with its unit."""
    value = getattr(summary, field)
    if field == "processes":
        count = {2: "two", 3: "three"}.get(value, value)
        return "one process" if value == 1 else f"median of {count} fresh processes"
    return "–" if value is None else FORMATS[field].format(value)


class Record(SphinxRole):
    """One number from a record."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        name, field, *picks = self.text.split()
        record = found.find(self.env, name)
        if record is None:
            return [nodes.inline(self.text, NOT_YET, classes=["not-yet"])], []
        try:
            text = number(record, field, picks)
        except ExtensionError as error:
            raise ExtensionError(f"{self.get_location()}: {error}") from None
        return [nodes.inline(self.text, text, classes=["measured"])], []


class Published(SphinxRole):
    """One vendor's number."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        path = found.root(self.env) / "plots" / "published.json"
        self.env.note_dependency(str(path))
        entry = json.loads(path.read_text())[self.text]
        return [nodes.inline(self.text, f"{entry['value']} {entry['unit']}")], []


class RecordTable(SphinxDirective):
    """A table of everything a record has measured, with its badge."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        record = found.find(self.env, self.arguments[0])
        if record is None:
            return [found.not_yet(self.arguments[0])]
        header = ("Size", "Regime", "Schedule", "Time", "Speed", "Against cuBLAS")
        rows = [self.row(record, problem) for problem in record.problems()]
        return [nodes.container("", table(header, rows), record.badge(), classes=["record-table"])]

    @staticmethod
    def row(record: found.Found, problem: Problem) -> list[str]:
        """Return the cells of one problem."""
        summary, (*shape, regime) = record.summary(problem), problem
        schedule = ", ".join(f"{k} {v}" for k, v in (summary.schedule or {}).items())
        return [size(*shape), regime, schedule, *(formatted(summary, f) for f in FORMATS)]


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> nodes.table:
    """Return a docutils table of plain text."""
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in header), cols=len(header))
    group += nodes.thead("", _row(header))
    group += nodes.tbody("", *(_row(row) for row in rows))
    return nodes.table("", group)


def _row(cells: Sequence[object]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", str(cell))) for cell in cells))


def setup(app: Sphinx) -> None:
    """Register the roles and the directive."""
    app.add_config_value("record_folders", [], "env", types=(list,))
    app.add_role("record", Record())
    app.add_role("published", Published())
    app.add_directive("record-table", RecordTable)

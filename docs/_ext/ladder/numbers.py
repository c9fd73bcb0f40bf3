# SPDX-License-Identifier: Apache-2.0
"""Numbers on pages: each comes from a record and carries where it comes from. None is typed.

::

    :record:`v3 vs_cublas m=8192 burst`   a number: record, field, what picks the measurement
    :record:`v3 vs_v2 m=8192 burst`       how many times as fast as another version
    :record:`v3 aside m=8192 burst`       a fact of the schedule or of how it was found
    :published:`h200_dense_fp16`          a vendor's number, from plots/published.json
    .. record-table:: v3                  all measurements of a record

A record that does not exist reads *not measured yet*. A number that a record lacks ends the build.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective, SphinxRole

from ladder import found
from measured import problems, size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sphinx.application import Sphinx

    from measured import Problem
    from tilus.records import Summary

FORMATS = {
    "latency_ms": "{:.3f}\N{NO-BREAK SPACE}ms",
    "tflops": "{:.0f}\N{NO-BREAK SPACE}TFLOPS",
    "vs_cublas": "{:.3f}×",
}
"""The numbers of a problem, in the order of a table's columns."""
FACTS = {
    "compile_s": "{:.2f} s",
    "seconds": "{:.0f} s",
    **dict.fromkeys(("schedules", "compiled", "registers", "blocks_per_sm"), "{}"),
}
"""What is known of a problem's schedule; ``aside`` is a number for each reason."""
NOT_YET = "not measured yet"


def number(record: found.Found, field: str, picks: Sequence[str]) -> str:
    """Return one number as text, of the one problem and regime that ``picks`` leave."""
    known = (*FORMATS, "processes", *FACTS, "aside")
    other = re.fullmatch(r"vs_(v\d+)", field)
    if field not in known and not other:
        raise ExtensionError(f"no field {field!r}; there are {', '.join(known)}, vs_v0 and so on")
    left = fitting(record, picks)
    if len(left) != 1:
        wanted = " ".join(picks) or "no condition"
        raise ExtensionError(f"{record.path}: {len(left)} problems fit {wanted}; one is wanted")
    if other:
        return _times_as_fast(record, other[1], left[0])
    if field == "aside" or field in FACTS:
        return _fact(record.facts(left[0]), field)
    return formatted(record.summary(left[0]), field)


def fitting(record: found.Found, picks: Sequence[str]) -> list[Problem]:
    """Return the problems of a record that ``picks`` leave."""
    return [p for p in record.problems() if all(_picked(p, pick) for pick in picks)]


def _times_as_fast(record: found.Found, other: str, problem: Problem) -> str:
    """Compare with what the same record says of another version: GPUs and hours differ."""
    if problem not in problems(record.record, other):
        return NOT_YET
    theirs = record.record.summary(other, *problem).latency_ms
    return f"{theirs / record.summary(problem).latency_ms:.2f}×"


def _fact(facts: dict[str, Any], field: str) -> str:
    if field not in facts:
        return NOT_YET
    if field == "aside":
        return str(sum(facts[field].values()))
    return FACTS[field].format(facts[field])


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
    """One number from the first record that has it."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        name, field, *picks = self.text.split()
        records = list(found.every(self.env, name))
        try:
            texts = [number(record, field, picks) for record in having(records, picks)]
        except ExtensionError as error:
            raise ExtensionError(f"{self.get_location()}: {error}") from None
        text = next((t for t in texts if t != NOT_YET), NOT_YET)
        kind = "not-yet" if text == NOT_YET else "measured"
        return [nodes.inline(self.text, text, classes=[kind])], []


def having(records: Sequence[found.Found], picks: Sequence[str]) -> Sequence[found.Found]:
    """Return the records that hold the problem; all of them, to be refused, where none does.

    What a build measures by itself is one size; the others are in the committed record.
    """
    return [record for record in records if fitting(record, picks)] or records


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
        chosen = ", ".join(schedule(summary.schedule))
        return [size(*shape), regime, chosen, *(formatted(summary, f) for f in FORMATS)]


def schedule(chosen: Mapping[str, Any] | None) -> list[str]:
    """Return the values of a schedule as words; none for a contender."""
    return [f"{name} {value}" for name, value in (chosen or {}).items()]


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> nodes.table:
    """Return a docutils table of plain text; every column has a name, for who hears the page."""
    if not all(header):
        raise ValueError(f"a column of {list(header)} has no name: screen readers read it aloud")
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

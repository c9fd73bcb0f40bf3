# SPDX-License-Identifier: Apache-2.0
"""``sass-table``: the machine code of some versions, counted: this build compiles and disassembles.

::

    .. sass-table:: v5 v6

The schedules are those that were measured at the largest cube, or those of the figures.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import simulated
from ladder import found
from ladder.gallery import sources
from ladder.numbers import table
from measured import Problem, called
from tilus import compiler, disasm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

SIZE = 8192
LARGEST: Problem = (SIZE, SIZE, SIZE, "burst")
LINE = re.compile(r"^(?P<label>\.\w+):|/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?P<op>[A-Z]\w*)(.*)")
TARGET = re.compile(r"`\((\.\w+)\)")
HEADS = ("Registers a thread, at launch", "Instructions in all", "In a step of K, consumers")
ROWS = {
    "HGMMA": "HGMMA: WGMMA of 64 rows and 16 of K",
    "UTMALDG": "UTMALDG: loads by TMA",
    "STG": "STG: stores by threads to device memory",
    "STSM": "STSM: stmatrix",
    "UTMASTG": "UTMASTG: stores by TMA",
    "USETMAXREG": "USETMAXREG: register budgets",
    "LDL STL": "LDL, STL: local memory",
}
"""Opcodes -> what a row says of them."""


def instructions(text: str) -> list[str | tuple[str, str]]:
    """Return a kernel's labels, and its instructions as opcode and operands, in their order."""
    lines = (LINE.search(line) for line in text.splitlines())
    return [m["label"] or (m["op"], m[3]) for m in lines if m]


def loop(code: Sequence[str | tuple[str, str]]) -> list[str]:
    """Return the opcodes of the innermost loop that multiplies."""
    found: list[list[str]] = []
    for at, entry in enumerate(code):
        target = TARGET.search(entry[1]) if isinstance(entry, tuple) else None
        if target and target[1] in code[:at]:
            body = opcodes(code[code.index(target[1]) : at + 1])
            found += [body] if "HGMMA" in body else []
    return min(found, key=len)


def opcodes(code: Sequence[str | tuple[str, str]]) -> list[str]:
    """Return the opcodes of some instructions, without labels."""
    return [entry[0] for entry in code if isinstance(entry, tuple)]


def counted(version: str, schedule: dict[str, int]) -> list[str]:
    """Return the cells of a version's column."""
    script = simulated.step(version, **schedule)
    cubin = compiler.build(script.lower(n_size=SIZE, k_size=SIZE)).cubin
    code = instructions(disasm.sass(cubin.code))
    counts, step = Counter(opcodes(code)), loop(code)
    return [
        str(cubin.registers),
        str(counts.total()),
        f"{len(step)}, {step.count('HGMMA')} of them HGMMA",
        *(str(sum(counts[op] for op in names.split())) for names in ROWS),
    ]


class SassTable(SphinxDirective):
    """A column for each version, a row for each count."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        for path in sources(self.config, found.root(self.env)):
            self.env.note_dependency(str(path))
        versions = self.arguments[0].split()
        columns = [counted(v, schedule(self.env, v)) for v in versions]
        rows = zip((*HEADS, *ROWS.values()), *columns, strict=True)
        shown = table(["In the machine code", *map(called, versions)], [list(row) for row in rows])
        label = found.badge("computed", "computed from the kernel")
        return [nodes.container("", shown, label, classes=["record-table", "sass-table"])]


def schedule(env: BuildEnvironment, version: str) -> dict[str, int]:
    """Return the schedule that was measured, or nothing: that of the figures."""
    for record in found.every(env, version):
        if LARGEST in record.problems():
            return dict(record.summary(LARGEST).schedule or {})
    return {}


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("sass-table", SassTable)

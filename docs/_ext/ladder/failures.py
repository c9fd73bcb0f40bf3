# SPDX-License-Identifier: Apache-2.0
"""The failure gallery: kernels broken by small patches, and what the simulator says of each.

::

    .. failures-table::        all of them, with what a GPU and compute-sanitizer made of them
    .. failures:: deadlock     a section for each that has this verdict
    .. failures-kernels::      the correct kernels, and how sure it is that they get none

The mutants are those of ``examples/failures``. The build breaks each anew and judges it; it ends
where a patch no longer fits, or where a mutant gets another diagnosis than the table has for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mutants
import outcomes
from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from ladder import found
from ladder.gallery import sources
from ladder.numbers import table
from tilus.errors import TilusError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mutants import Diagnosis, Kernel, Mutant
    from sphinx.application import Sphinx

RECORD = "failures"
NOT_YET, NEVER = "not run on a GPU yet", "never runs"
ALONE = {
    outcomes.RIGHT: "right numbers in all {launches} launches",
    outcomes.WRONG: "wrong numbers in {wrong} of {launches} launches",
    outcomes.HANG: "hangs in launch {launches}",
    outcomes.ERROR: "stops with an error in launch {launches}",
    outcomes.REFUSED: "is not built",
    outcomes.NOT_RUN: "not run",
}
"""What came of a mutant with no tool watching, in words."""
NO_WITNESS = "complains of the correct kernel too"
WATCHED = {
    outcomes.NOTICED: "noticed by {}",
    outcomes.UNNOTICED: "not noticed by {}",
    outcomes.TIMED_OUT: "no answer in time from {}",
    outcomes.UNSUPPORTED: "not within reach of {}",
    outcomes.NOT_RUN: "not run with {}",
    NO_WITNESS: f"{{}} {NO_WITNESS}",
}
"""What tools made of it."""


@dataclass(frozen=True)
class Hardware:
    """What a record says of the mutants; ``record`` is None while there is none."""

    record: Mapping[str, Any] | None = None

    def alone(self, mutant: Mutant) -> str:
        """Say what the GPU did."""
        if (runs := self.runs(mutant)) is None:
            return self._nothing(mutant)
        plain = runs["plain"]
        return ALONE[plain["outcome"]].format(
            **plain, wrong=plain["launches"] - plain["right"]
        ) + self._changed(mutant)

    def tools(self, mutant: Mutant) -> str:
        """Say what each tool of compute-sanitizer noticed."""
        if (runs := self.runs(mutant)) is None:
            return self._nothing(mutant)
        if runs["plain"]["outcome"] == outcomes.REFUSED:
            return NEVER
        tools: dict[str, list[str]] = {}
        for tool in outcomes.TOOLS:
            tools.setdefault(self._tool(mutant, runs, tool), []).append(tool)
        return "; ".join(WATCHED[outcome].format(", ".join(t)) for outcome, t in tools.items())

    def said(self, mutant: Mutant) -> Iterable[str]:
        """Yield the first words of the compiler, the GPU and of each tool that had any."""
        runs = self.runs(mutant) or {}
        words = {"plain": "alone"} | {tool: tool for tool in outcomes.TOOLS}
        said = {"compiler": runs.get("compiler")}
        said |= {word: runs[run]["said"] for run, word in words.items() if run in runs}
        yield from (f"{who}: {what}" for who, what in said.items() if what)

    def badge(self) -> nodes.Node:
        """Return when and where, or that there is no record."""
        if self.record is not None:
            return found.recorded(self.record["environment"])
        text = f"Not run on a GPU yet: there is no record {found.COMMITTED}/{RECORD}.json."
        return nodes.container("", nodes.paragraph("", text), classes=["not-yet-box"])

    def runs(self, mutant: Mutant) -> Mapping[str, Any] | None:
        """Return the runs of a mutant, None where there are none."""
        return self.record["mutants"].get(mutant.id) if self.record else None

    def _tool(self, mutant: Mutant, runs: Mapping[str, Any], tool: str) -> str:
        assert self.record is not None
        control = self.record["kernels"].get(mutant.kernel.name, {}).get(tool, {})
        outcome: str = runs[tool]["outcome"]
        if outcome == control.get("outcome") == outcomes.NOTICED:
            return NO_WITNESS
        return outcome

    def _changed(self, mutant: Mutant) -> str:
        assert self.record is not None
        return " (changed since)" if outcomes.stale(self.record, mutant.id, now()) else ""

    @staticmethod
    def _nothing(mutant: Mutant) -> str:
        return NEVER if mutant.verdict == mutants.REFUSED else NOT_YET


@cache
def now() -> Mapping[str, Any]:
    """Return the hashes of all kernels and mutants in the tree, once a build."""
    return outcomes.sources()


def diagnosed(mutant: Mutant, folder: Path) -> Diagnosis:
    """Break a kernel, have it judged, and return the diagnosis; raise where it is not the one that
    the mutant must get."""
    try:
        diagnosis = mutants.diagnose(mutant, folder)
    except TilusError as error:
        raise ExtensionError(f"{mutant.id}: {error}") from None
    if faults := diagnosis.faults(mutant):
        said = diagnosis.message or "no message"
        raise ExtensionError(f"{mutant.id} is misjudged: {'; '.join(faults)}\n{said}")
    return diagnosis


class _OfMutants(SphinxDirective):
    def depend(self) -> Hardware:
        """Read the page again when any mutant, kernel or record changes; return the record."""
        root = found.root(self.env)
        own = [path for path in mutants.FOLDER.iterdir() if path.is_file()]
        for path in (*own, *sources(self.config, root)):
            self.env.note_dependency(str(path))
        for folder in self.env.config.record_folders:
            path = root / folder / f"{RECORD}.json"
            self.env.note_dependency(str(path))
            if path.exists():
                return Hardware(outcomes.load(path))
        return Hardware()


ROW = """\
   * - :ref:`{title} <failure-{id}>`
     - {kernel}
     - {verdict}
"""
RUNS = """\
     - {alone}
     - {tools}
"""
TABLE = """\
.. list-table::
   :header-rows: 1
   :class: failures

   * - What is wrong
     - Kernel
     - Simulator
"""
HEADS = """\
     - On the GPU
     - Tools
"""


class FailuresTable(_OfMutants):
    """All mutants, a row each; what the hardware did in two columns more, where there is a
    record."""

    def run(self) -> list[nodes.Node]:
        hardware = self.depend()
        head, row = (TABLE, ROW) if hardware.record is None else (TABLE + HEADS, ROW + RUNS)
        rows = [
            row.format(
                title=mutant.title,
                id=mutant.id,
                kernel=mutant.kernel.called,
                verdict=mutant.verdict,
                alone=hardware.alone(mutant),
                tools=hardware.tools(mutant),
            )
            for mutant in mutants.mutants().values()
        ]
        made = self.parse_text_to_nodes(head + "".join(rows))
        return [nodes.container("", *made, hardware.badge(), classes=["record-table"])]


ABOUT = """\
{why}

A patch of :github:`{file}`:
"""


class Failures(_OfMutants):
    """The mutants of one verdict, a section each."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        hardware, verdict = self.depend(), self.arguments[0]
        chosen = [m for m in mutants.mutants().values() if m.verdict == verdict]
        if not chosen:
            raise ExtensionError(f"{self.get_location()}: no mutant has the verdict {verdict!r}")
        with mutants.folder() as folder:
            return [self.section(mutant, diagnosed(mutant, folder), hardware) for mutant in chosen]

    def section(self, mutant: Mutant, told: Diagnosis, hardware: Hardware) -> nodes.section:
        """Return a mutant's section: why, the patch, the diagnosis, and the hardware's say."""
        made = nodes.section(ids=[mutant.id], names=[f"failure-{mutant.id}"])
        self.state.document.note_explicit_target(made, made)
        made += nodes.title("", mutant.title)
        made += self.parse_text_to_nodes(ABOUT.format(why=mutant.why, file=mutant.kernel.file))
        diff = mutants.shown(mutant)
        body = [
            nodes.literal_block(diff, diff, language="diff"),
            nodes.literal_block(told.message, told.message, language="none"),
            found.badge("simulated", ", ".join(filter(None, ("simulated", told.how)))),
        ]
        made += nodes.container("", *body, classes=["diagnosis"])
        alone, tools = hardware.alone(mutant), hardware.tools(mutant)
        text = f"On the GPU: {alone}" + (
            f". compute-sanitizer: {tools}." if tools != alone else "."
        )
        made += nodes.paragraph("", text)
        if said := "\n".join(hardware.said(mutant)):
            made += nodes.literal_block(said, said, language="none")
        return made


class FailuresKernels(_OfMutants):
    """The correct kernels, judged as the mutants are; one with a verdict ends the build."""

    def run(self) -> list[nodes.Node]:
        self.depend()
        rows = [(kernel.called, self.judged(kernel)) for kernel in mutants.kernels().values()]
        label = found.badge("simulated", "simulated")
        return [nodes.container("", table(("Kernel", "Verdict"), rows), label)]

    @staticmethod
    def judged(kernel: Kernel) -> str:
        """Return how sure it is that a kernel gets no verdict."""
        diagnosis = mutants.judge(kernel.path, kernel.simulator)
        if diagnosis.verdict:
            raise ExtensionError(f"{kernel.file} gets the verdict {diagnosis}")
        return diagnosis.how


def setup(app: Sphinx) -> None:
    """Register the directives."""
    app.add_directive("failures-table", FailuresTable)
    app.add_directive("failures", Failures)
    app.add_directive("failures-kernels", FailuresKernels)

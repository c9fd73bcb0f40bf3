# SPDX-License-Identifier: Apache-2.0
"""The failure gallery: kernels broken by small patches, and what the simulator says of each.

::

    .. failures-summary::      how many came to what on a GPU, and who noticed
    .. failures-passes::       those with right numbers on a GPU, and why that may be
    .. failures-table::        all of them, with what a GPU and compute-sanitizer made of them
    .. failures-verdicts::     the simulator's verdicts against what a GPU did
    .. failures:: deadlock     a section for each that has this verdict
    .. failure:: load-removed  one of them, on the page of its kernel
    .. failures-kernels::      the correct kernels, and how sure it is that they get none

The mutants are those of ``examples/failures``. The build breaks each anew and judges it; it ends
where a patch no longer fits, or where a mutant gets another diagnosis than the table has for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import mutants
import outcomes
from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from ladder import found, hardware
from ladder.gallery import sources
from ladder.hardware import Hardware
from ladder.numbers import table
from tilus.errors import TilusError

if TYPE_CHECKING:
    from mutants import Diagnosis, Kernel, Mutant
    from sphinx.application import Sphinx


def broken(mutant: Mutant, told: Diagnosis) -> nodes.container:
    """Return the patch of a mutant and what the simulator says of it."""
    diff = mutants.shown(mutant)
    body = [
        nodes.literal_block(diff, diff, language="diff"),
        nodes.literal_block(told.message, told.message, language="none"),
        found.badge("simulated", ", ".join(filter(None, ("simulated", told.how)))),
    ]
    return nodes.container("", *body, classes=["diagnosis"])


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
            path = root / folder / f"{hardware.RECORD}.json"
            self.env.note_dependency(str(path))
            if path.exists():
                return Hardware(outcomes.load(path))
        return Hardware()


class FailuresSummary(_OfMutants):
    """How many mutants came to what on a GPU, and who noticed; sentences counted by the build."""

    def run(self) -> list[nodes.Node]:
        gpu = self.depend()
        if gpu.record is None:
            return [gpu.badge()]
        counts = table(
            ("On the GPU", "Mutants", "ptxas notes", "A tool names an error"), gpu.counts()
        )
        shown = nodes.container("", counts, gpu.badge(), classes=["record-table"])
        said = "\n".join(f"* {text}" for text in hardware.findings(gpu))
        first, rest = (self.parse_text_to_nodes(text) for text in (hardware.ran(gpu), said))
        return [*first, shown, *rest]


UNEXPLAINED = "We do not know why."
PASSED = """\
* :ref:`{title} <failure-{id}>` ({kernel}, {verdict}). {why}
"""


class FailuresPasses(_OfMutants):
    """The mutants with right numbers on a GPU, and why that may be."""

    def run(self) -> list[nodes.Node]:
        gpu = self.depend()
        if gpu.record is None:
            return [gpu.badge()]
        rows = [
            PASSED.format(**about(mutant), why=gpu.why(mutant).replace("\n", " ") or UNEXPLAINED)
            for mutant in gpu.having(outcomes.RIGHT)
        ]
        return self.parse_text_to_nodes("\n".join([hardware.passes(gpu), "", *rows]))


ROW = """\
   * - :ref:`{title} <failure-{id}>`
     - {kernel}
     - {verdict}
"""
RUNS = """\
     - {brief}
     - {named}
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
     - Tools that name an error
"""


def about(mutant: Mutant) -> dict[str, str]:
    """Return what rows and lists have of a mutant."""
    return {
        "title": mutant.title,
        "id": mutant.id,
        "kernel": mutant.kernel.called,
        "verdict": mutant.verdict,
    }


class FailuresTable(_OfMutants):
    """All mutants, a row each; what the hardware did in two columns more, where there is a
    record: then those with right numbers come first."""

    def run(self) -> list[nodes.Node]:
        gpu = self.depend()
        head, row = (TABLE, ROW) if gpu.record is None else (TABLE + HEADS, ROW + RUNS)
        rows = [
            row.format(**about(mutant), brief=gpu.brief(mutant), named=gpu.named(mutant))
            for mutant in gpu.ordered()
        ]
        made = self.parse_text_to_nodes(head + "".join(rows))
        return [nodes.container("", *made, gpu.badge(), classes=["record-table"])]


class FailuresVerdicts(_OfMutants):
    """The simulator's verdicts against what a GPU did."""

    def run(self) -> list[nodes.Node]:
        gpu = self.depend()
        if gpu.record is None:
            return [gpu.badge()]
        shown = table(("Verdict", *hardware.COUNTED.values()), gpu.verdicts())
        made = nodes.container("", shown, gpu.badge(), classes=["record-table"])
        return [made, *self.parse_text_to_nodes(hardware.agreement(gpu))]


ABOUT = """\
{why}

A patch of :github:`{file}`:
"""
SEEN = """\
*On the GPU:* {alone}.{why}
"""
HEARD = """\
*compute-sanitizer:* {tools}.
"""


def seen(mutant: Mutant, gpu: Hardware) -> str:
    """Say what came of a mutant on a GPU, why that may be, and what the tools made of it."""
    why = f" *Our explanation:* {text}" if (text := gpu.why(mutant)) else ""
    text = SEEN.format(alone=gpu.alone(mutant), why=why)
    return text + "\n" + HEARD.format(tools=gpu.tools(mutant)) if gpu.heard(mutant) else text


class Failures(_OfMutants):
    """The mutants of one verdict, a section each."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        gpu, verdict = self.depend(), self.arguments[0]
        chosen = [m for m in mutants.mutants().values() if m.verdict == verdict]
        if not chosen:
            raise ExtensionError(f"{self.get_location()}: no mutant has the verdict {verdict!r}")
        with mutants.folder() as folder:
            return [self.section(mutant, diagnosed(mutant, folder), gpu) for mutant in chosen]

    def section(self, mutant: Mutant, told: Diagnosis, gpu: Hardware) -> nodes.section:
        """Return a mutant's section: why, the patch, the diagnosis, and the hardware's say."""
        made = nodes.section(ids=[mutant.id], names=[f"failure-{mutant.id}"])
        self.state.document.note_explicit_target(made, made)
        made += nodes.title("", mutant.title)
        made += self.parse_text_to_nodes(ABOUT.format(why=mutant.why, file=mutant.kernel.file))
        made += broken(mutant, told)
        made += self.seen(mutant, gpu)
        return made

    def seen(self, mutant: Mutant, gpu: Hardware) -> list[nodes.Node]:
        """Return what came of a mutant on a GPU, and the words of who had any."""
        made = self.parse_text_to_nodes(seen(mutant, gpu))
        if said := "\n".join(gpu.said(mutant)):
            made.append(nodes.literal_block(said, said, language="none", classes=["said"]))
        return made


class Failure(_OfMutants):
    """One mutant on the page of its kernel: its patch, the diagnosis, and what the hardware did."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        gpu, known = self.depend(), mutants.mutants()
        mutant = known.get(self.arguments[0])
        if mutant is None:
            raise ExtensionError(
                f"{self.get_location()}: no mutant is called {self.arguments[0]!r}; "
                f"there are {', '.join(known)}"
            )
        with mutants.folder() as folder:
            shown = broken(mutant, diagnosed(mutant, folder))
        shown += self.parse_text_to_nodes(seen(mutant, gpu))
        shown += gpu.dated(mutant)
        return [shown]


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
    app.add_directive("failures-summary", FailuresSummary)
    app.add_directive("failures-passes", FailuresPasses)
    app.add_directive("failures-table", FailuresTable)
    app.add_directive("failures-verdicts", FailuresVerdicts)
    app.add_directive("failures", Failures)
    app.add_directive("failure", Failure)
    app.add_directive("failures-kernels", FailuresKernels)

# SPDX-License-Identifier: Apache-2.0
"""What a GPU and compute-sanitizer made of the failure gallery, in words.

Every number in a sentence or a table is counted from the record; none is typed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mutants
import outcomes
from docutils import nodes

from ladder import found

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mutants import Mutant

RECORD = "failures"
NOT_YET, NEVER = "not run on a GPU yet", "never runs"
ALONE = {
    outcomes.RIGHT: "right numbers in all {launches} launches",
    outcomes.WRONG: "wrong numbers in {wrong} of {launches} launches",
    outcomes.ERROR: "stops with an error in launch {launches}",
    outcomes.HANG: "hangs in launch {launches}",
    outcomes.REFUSED: "is not built",
    outcomes.NOT_RUN: "not run",
}
"""What came of a mutant with no tool watching, in words; in the order of the page."""
BRIEF = {
    outcomes.RIGHT: "**right** {right}/{launches}",
    outcomes.WRONG: "wrong {wrong}/{launches}",
    outcomes.ERROR: "error in launch {launches}",
    outcomes.HANG: "hangs",
    outcomes.REFUSED: "not built",
}
"""The same in a cell."""
RAN = tuple(BRIEF)[:-1]
"""The outcomes of what was launched."""
COUNTED = {
    outcomes.RIGHT: "right",
    outcomes.WRONG: "wrong",
    outcomes.ERROR: "error",
    outcomes.HANG: "hangs",
}
"""The same of several. Right is what is so in every launch."""
WATCHED = {
    outcomes.NOTICED: "an error named by {}",
    outcomes.FAILED: "a failed launch and no reason told by {}",
    outcomes.UNNOTICED: "nothing said by {}",
    outcomes.TIMED_OUT: "hangs without a word under {}",
    outcomes.UNSUPPORTED: "not within reach of {}",
    outcomes.NOT_RUN: "not run with {}",
    outcomes.NO_WITNESS: "{} complains of the correct kernel too",
}
"""What tools made of it."""


def share(some: int, every: int) -> str:
    """Return how many of several: ``none of the 5``, ``2 of the 5``, ``all 5``."""
    if some == every > 0:
        return f"all {every}"
    return f"{some or 'none'} of the {every}"


@dataclass(frozen=True)
class Hardware:
    """What a record says of the mutants; ``record`` is None while there is none."""

    record: Mapping[str, Any] | None = None

    # ---- one mutant ----

    def runs(self, mutant: Mutant) -> Mapping[str, Any] | None:
        """Return the runs of a mutant, None where there are none."""
        return self.record["mutants"].get(mutant.id) if self.record else None

    def outcome(self, mutant: Mutant) -> str:
        """Return what came of a mutant with no tool watching, ``""`` where there are no runs."""
        runs = self.runs(mutant)
        return runs["plain"]["outcome"] if runs else ""

    def alone(self, mutant: Mutant) -> str:
        """Say what the GPU did."""
        return self._worded(mutant, ALONE) + self._changed(mutant)

    def brief(self, mutant: Mutant) -> str:
        """Say it in a cell."""
        return self._worded(mutant, ALONE | BRIEF) + self._changed(mutant)

    def why(self, mutant: Mutant) -> str:
        """Return the explanation of what the GPU did, ``""`` where we have none."""
        return mutant.explained.get(self.outcome(mutant), "").strip()

    def heard(self, mutant: Mutant) -> dict[str, list[str]]:
        """Return the tools by what their outcome is worth, in the order of :data:`WATCHED`."""
        if self.record is None or self.outcome(mutant) not in RAN:
            return {}
        worth = {tool: outcomes.heard(self.record, mutant, tool) for tool in outcomes.TOOLS}
        by = {kind: [tool for tool in worth if worth[tool] == kind] for kind in WATCHED}
        return {kind: tools for kind, tools in by.items() if tools}

    def tools(self, mutant: Mutant) -> str:
        """Say what each tool of compute-sanitizer noticed."""
        said = [WATCHED[kind].format(", ".join(t)) for kind, t in self.heard(mutant).items()]
        return "; ".join(said) or (NOT_YET if self.runs(mutant) is None else NEVER)

    def named(self, mutant: Mutant) -> str:
        """Say in a cell which tools name an error."""
        heard = self.heard(mutant)
        if heard.keys() == {outcomes.TIMED_OUT}:
            return "none (hangs)"
        return ", ".join(heard.get(outcomes.NOTICED, ["none" if heard else "–"]))

    def said(self, mutant: Mutant) -> Iterable[str]:
        """Yield the first words of the compiler, the GPU and of each tool that had any."""
        runs = self.runs(mutant) or {}
        words = {"plain": "alone"} | {tool: tool for tool in outcomes.TOOLS}
        said = {"compiler": runs.get("compiler")}
        said |= {word: runs[run]["said"] for run, word in words.items() if run in runs}
        yield from (f"{who}: {what}" for who, what in said.items() if what)

    def _worded(self, mutant: Mutant, words: Mapping[str, str]) -> str:
        if (runs := self.runs(mutant)) is None:
            return NEVER if mutant.verdict == mutants.REFUSED else NOT_YET
        plain = runs["plain"]
        wrong = plain["launches"] - plain["right"]
        return words[plain["outcome"]].format(**plain, wrong=wrong)

    def _changed(self, mutant: Mutant) -> str:
        if self.runs(mutant) is None or self.record is None:
            return ""
        now = {"kernels": {}, "mutants": {mutant.id: outcomes.hashes(mutant.id)}}
        changed = outcomes.stale(self.record, mutant.id, now)
        return " (changed since)" if changed else ""

    def dated(self, mutant: Mutant) -> list[nodes.Node]:
        """Return the badge of one mutant's runs; nothing where there are none."""
        if self.runs(mutant) is None or self.record is None:
            return []
        return [found.recorded(self.record["environment"])]

    # ---- all of them ----

    def having(self, *kinds: str) -> list[Mutant]:
        """Return the mutants that came to one of these outcomes, in the order of the table."""
        return [m for m in mutants.mutants().values() if self.outcome(m) in kinds]

    def ordered(self) -> list[Mutant]:
        """Return all mutants, those with right numbers first, those without runs last."""
        order = [*ALONE, ""]
        return sorted(mutants.mutants().values(), key=lambda m: order.index(self.outcome(m)))

    def noted(self, chosen: Sequence[Mutant]) -> int:
        """Return how many of some mutants the compiler has something against."""
        return sum(bool((self.runs(m) or {}).get("compiler")) for m in chosen)

    def witnessed(self, chosen: Sequence[Mutant], *tools: str) -> int:
        """Return of how many mutants one of ``tools``, or of all, names an error."""
        wanted = set(tools or outcomes.TOOLS)
        return sum(bool(wanted & set(self.heard(m).get(outcomes.NOTICED, ()))) for m in chosen)

    def complaints(self, chosen: Sequence[Mutant]) -> list[str]:
        """Return the different first words of the tools that name an error."""
        pairs = [(m, t) for m in chosen for t in self.heard(m).get(outcomes.NOTICED, ())]
        return sorted({(self.runs(m) or {})[tool]["said"] for m, tool in pairs})

    def counts(self) -> list[tuple[str, int, int, int]]:
        """Return for each outcome how many mutants, how many of these ptxas has a note for, and of
        how many a tool names an error."""
        groups = {words: self.having(kind) for kind, words in COUNTED.items()}
        return [(w, len(g), self.noted(g), self.witnessed(g)) for w, g in groups.items()]

    def verdicts(self) -> list[tuple[str, int, int, int, int]]:
        """Return for each verdict on what can run how often a GPU came to which outcome."""
        pairs = Counter((m.verdict, self.outcome(m)) for m in mutants.mutants().values())
        runnable = [verdict for verdict in mutants.VERDICTS if verdict != mutants.REFUSED]
        return [(v, *(pairs[v, kind] for kind in COUNTED)) for v in runnable]  # type: ignore[misc]

    def stale(self) -> list[str]:
        """Return the kernels and mutants that are other ones now than the record's."""
        if self.record is None:
            return []
        known = [*self.record["kernels"], *self.record["mutants"]]
        now = outcomes.sources()
        here = now["kernels"].keys() | now["mutants"].keys()
        return [name for name in known if name in here and outcomes.stale(self.record, name, now)]

    def badge(self) -> nodes.Node:
        """Return when and where, and if it is out of date; or that there is no record."""
        if self.record is None:
            text = f"Not run on a GPU yet: there is no record {found.COMMITTED}/{RECORD}.json."
            return nodes.container("", nodes.paragraph("", text), classes=["not-yet-box"])
        labels = found.recorded(self.record["environment"])
        if self.stale():
            labels += found.changed()
        return labels


# ---- sentences ----------------------------------------------------------------------------------


def ran(hardware: Hardware) -> str:
    """Say how many mutants were launched, where, and what became of the others."""
    assert hardware.record is not None
    every, method = len(mutants.mutants()), hardware.record["method"]
    others = {
        "refused at build": len(hardware.having(outcomes.REFUSED)),
        "not launched": len(hardware.having(outcomes.NOT_RUN)),
        "not in the record": len(hardware.having("")),
    }
    missing = ", ".join(f"{count} {what}" for what, count in others.items() if count)
    return (
        f"{share(len(hardware.having(*RAN)), every).capitalize()} mutants ran on an "
        f"{hardware.record['environment']['gpu']}" + (f" ({missing})" if missing else "") + ": "
        f"{method['launches']} launches alone, and {method['tool_launches']} under each tool, "
        f"unless one of them hangs or fails. A hang is a launch that takes over {_limits(method)}."
    )


def _limits(method: Mapping[str, Any]) -> str:
    return f"{method['limit_s']:g} s alone, or {method['tool_limit_s']:g} s under a tool"


def findings(hardware: Hardware) -> Iterable[str]:
    """Say what the tools found, what came of the correct kernels, and what is out of date."""
    yield named(hardware)
    yield from nameless(hardware)
    yield races(hardware)
    yield control(hardware)
    if names := ", ".join(hardware.stale()):
        yield f"Changed since, and perhaps of another outcome now: {names}."


def named(hardware: Hardware) -> str:
    """Say of how many mutants a tool names an error, by tool, and with which words it begins."""
    launched = hardware.having(*RAN)
    counts = {tool: hardware.witnessed(launched, tool) for tool in outcomes.TOOLS}
    by = ", ".join(f"{tool} in {count}" for tool, count in counts.items() if count)
    text = f"A tool names an error in {share(hardware.witnessed(launched), len(launched))}"
    words = " ".join(f"``{words}``" for words in hardware.complaints(launched))
    return f"{text}: {by}. First words: {words}" if by else f"{text}."


def nameless(hardware: Hardware) -> Iterable[str]:
    """Say which tools told only that a launch failed, and how many mutants hang under all."""
    heard = [hardware.heard(m) for m in hardware.having(*RAN)]
    for tool in outcomes.TOOLS:
        if count := sum(tool in h.get(outcomes.FAILED, ()) for h in heard):
            yield f"In {share(count, len(heard))} {tool} says only that the launch failed."
    if count := sum(h.keys() == {outcomes.TIMED_OUT} for h in heard):
        yield f"{share(count, len(heard)).capitalize()} hang under every tool, without a word."


def races(hardware: Hardware) -> str:
    """Say how many races racecheck finds."""
    mine = [m for m in hardware.having(*RAN) if m.verdict == "race"]
    named = share(hardware.witnessed(mine, "racecheck"), len(mine))
    return f"The simulator calls {len(mine)} of them races: racecheck names an error in {named}."


def control(hardware: Hardware) -> str:
    """Say what came of the correct kernels."""
    assert hardware.record is not None
    kernels = hardware.record["kernels"].values()
    right = sum(runs["plain"]["outcome"] == outcomes.RIGHT for runs in kernels)
    quiet = sum(all(r[t]["outcome"] == outcomes.UNNOTICED for t in outcomes.TOOLS) for r in kernels)
    return (
        f"The correct kernels ran in the same way: {share(right, len(kernels))} gave right "
        f"numbers, and {share(quiet, len(kernels))} ended under every tool without a complaint."
    )


def passes(hardware: Hardware) -> str:
    """Say how many mutants gave right numbers, and who objected."""
    right, launched = hardware.having(outcomes.RIGHT), hardware.having(*RAN)
    text = f"Right numbers in every launch: {share(len(right), len(launched))} mutants."
    if not right:
        return text
    return (
        f"{text} A tool names an error in {share(hardware.witnessed(right), len(right))}. "
        f"ptxas has a note for {share(hardware.noted(right), len(right))}, and ``tilus`` builds "
        "nothing that has such a note; here it was told to."
    )


def agreement(hardware: Hardware) -> str:
    """Say how many deadlocks hang."""
    counts = {verdict: row for verdict, *row in hardware.verdicts()}["deadlock"]
    hangs = counts[list(COUNTED).index(outcomes.HANG)]
    return f"The GPU hangs in {share(hangs, sum(counts))} that the judge calls a deadlock."

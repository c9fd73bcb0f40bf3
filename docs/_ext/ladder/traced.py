# SPDX-License-Identifier: Apache-2.0
"""Where the cost model is wrong: one block by the simulator, and as a GPU has recorded it.

::

    .. trace-table:: v3                         what takes how long, on either side
    .. trace-table::                            the most telling of it for all versions
    :traced:`v3 step measured`                  one of the numbers; also simulated, and ratio
    :traced:`v3 waits:warp4:empty measured`     a role's waits at one array of mbarriers, a step
    :traced:`v3 step measured m=4096`           at another size than the record's first
    :traced:`v3 probe`                          what is known of the instrumented build

The record is ``trace.json``, which ``scripts/trace`` writes. The simulated side is computed by this
build, with the schedule and the K of the record.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective, SphinxRole

import beside
from ladder import cycles, found, numbers
from ladder.gallery import sources
from measured import size

if TYPE_CHECKING:
    from collections.abc import Callable

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

    from tilus.records import Values
    from tilus.simulator import Result
    from tilus.traces import Trace

SIDES = ("simulated", "measured")
HEADER = ("Cycles", "Simulated", "Measured", "Ratio")
OVERVIEW = {
    "before": "Start",
    "first_load": "Load",
    "product": "Product",
    "step": "Step",
    "after": "End",
}
"""Quantities of the table of all versions, whose heads must be short: phones are narrow."""


def pair(record: found.Traced, *shape: tuple[int, int, int]) -> tuple[Result, Result, Trace]:
    """Return the simulated block, the recorded one, and its entry in the record."""
    return beside.pair(str(record.root / record.path), record.version, *shape)


# ---- numbers ------------------------------------------------------------------------------------


def number(record: found.Traced, field: str, *picks: str) -> str:
    """Return one number as text; ``picks`` are the side and, as ``m=4096``, the size."""
    sizes = [pick for pick in picks if "=" in pick]
    model, gpu, trace = pair(record, *chosen(record, sizes))
    if field in FACTS:
        return FACTS[field](record, gpu, trace)
    side = next((pick for pick in picks if pick not in sizes), "")
    values = dict(zip(SIDES, (cycles.quantity(r, field) for r in (model, gpu)), strict=True))
    if side == "ratio":
        return ratio(*values.values())
    if side not in values:
        raise ExtensionError(f"no side {side!r} of {field}; there are {', '.join(SIDES)}, ratio")
    return written(field, values[side])


def written(field: str, value: float) -> str:
    """Return a value as it is written: cycles or, of what is busy, per cent."""
    return f"{value:.0%}" if field == "busy" else f"{value:,.0f}"


def ratio(model: float, gpu: float) -> str:
    """Return how many times as long as the model says something takes."""
    return f"{gpu / model:.2f}" if model else "–"


def chosen(record: found.Traced, picks: list[str]) -> tuple[tuple[int, int, int], ...]:
    """Return the one size that ``picks`` leave; nothing without picks."""
    wanted = [pick.partition("=") for pick in picks]
    left = [
        (entry["m"], entry["n"], entry["k"])
        for entry in entries(record)
        if all(str(entry.get(axis)) == value for axis, _, value in wanted)
    ]
    if picks and len(left) != 1:
        raise ExtensionError(f"{record.path}: {len(left)} sizes fit {' '.join(picks)}")
    return tuple(left) if picks else ()


def entries(record: found.Traced) -> list[Values]:
    """Return what the record has of the version, by size."""
    mine = (t for t in record.traces.data["traces"] if t["version"] == record.version)
    return sorted(mine, key=lambda t: t["m"] * t["n"] * t["k"])


def slowed(record: found.Traced) -> str:
    """Return how many times as long the instrumented build takes; a dash for a single size.

    By what the largest size takes longer than the smallest, so that what a launch costs by itself,
    or with its buffer, drops out.
    """
    few, *_, many = [*entries(record), *entries(record)[-1:]]
    plain, instrumented = (many[name] - few[name] for name in ("ms", "traced_ms"))
    return ratio(plain, instrumented)


def ms(name: str) -> Callable[[found.Traced, Result, Trace], str]:
    """Return what writes a time of the record."""
    return lambda _, __, trace: numbers.FORMATS["latency_ms"].format(trace.data[name])


def count(name: str) -> Callable[[found.Traced, Result, Trace], str]:
    """Return what writes a count of the record."""
    return lambda _, __, trace: str(trace.data[name])


FACTS: dict[str, Callable[[found.Traced, Result, Trace], str]] = {
    "probe": lambda _, gpu, __: written("probe", cycles.probe(gpu)),
    "looks": lambda _, gpu, __: f"{cycles.looks(gpu):.0f}",
    "net": lambda _, gpu, __: written("net", cycles.net(gpu)),
    "slowed": lambda record, _, __: slowed(record),
    "ms": ms("ms"),
    "traced_ms": ms("traced_ms"),
    "registers": count("registers"),
    "traced_registers": count("traced_registers"),
}
"""What is known of the instrumented build, and how it is written."""


# ---- tables and the role ------------------------------------------------------------------------


def rows(model: Result, gpu: Result) -> list[list[str]]:
    """Return the cells of one version's table; what roles wait for stands below the step."""
    made = []
    for name, what in cycles.QUANTITIES.items():
        if name in ("turn", "gap") and not cycles.turns(gpu):
            continue
        made.append(row(name, what.text, what.of(model), what.of(gpu)))
        if name == "step":
            here, there = cycles.waits(model), cycles.waits(gpu)
            made += [row(name, _waiting(*who), here.get(who, 0), there[who]) for who in there]
    return made


def row(name: str, text: str, model: float, gpu: float) -> list[str]:
    """Return the cells of a quantity."""
    return [text, written(name, model), written(name, gpu), ratio(model, gpu)]


def _waiting(lane: str, what: str) -> str:
    verb = "waits" if lane.startswith("warp ") else "wait"
    return f"in which {lane} {verb} for {what}"


def note(record: found.Traced) -> str:
    """Return in words how one version was recorded, and what looking costs."""
    _, gpu, trace = pair(record)
    blocks, sms = prod(trace.data["grid"]), record.traces.data["environment"]["sms"]
    fact = {name: write(record, gpu, trace) for name, write in FACTS.items()}
    return (
        f"Block {trace.block} of {size(*trace.size)}: {blocks} blocks on {sms} multiprocessors. "
        f"Looking slows. The shortest instruction took {fact['probe']} cycles, nearly all of them "
        f"the look at the clock. The role that is looked at most has {fact['looks']} instructions "
        f"in each step: without looks a step takes less than measured, but hardly less than "
        f"{fact['net']}. One launch took {fact['ms']}, instrumented {fact['traced_ms']}, with all "
        f"that a launch costs. {_larger(record, fact['slowed'])}"
    )


def _larger(record: found.Traced, times: str) -> str:
    if len(entries(record)) == 1:
        return ""
    largest = size(*(entries(record)[-1][axis] for axis in "mnk"))
    return f"What {largest} takes longer than this size, instruments make {times} times as long."


class TraceTable(SphinxDirective):
    """Simulated and measured cycles of one version, or of all."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        versions = self.arguments or list(beside.VERSIONS)
        records = [r for v in versions if (r := found.find_trace(self.env, v))]
        if not records:
            return [found.not_yet(found.TRACE)]
        depend(self.env)
        shown = single(records[0]) if self.arguments else [overview(records)]
        shown.append(found.traced(records))
        return [nodes.container("", *shown, classes=["record-table", "trace-table"])]


def single(record: found.Traced) -> list[nodes.Node]:
    """Return the table of one version, and what is to be known about it."""
    model, gpu, _ = pair(record)
    caption = nodes.paragraph("", note(record), classes=["table-note"])
    return [numbers.table(HEADER, rows(model, gpu)), caption]


def overview(records: list[found.Traced]) -> nodes.table:
    """Return the table with a row for each version."""
    made = []
    for record in records:
        both = pair(record)[:2]
        cells = (
            " → ".join(written(name, cycles.quantity(r, name)) for r in both) for name in OVERVIEW
        )
        made.append([record.version.upper(), *cells, slowed(record)])
    return numbers.table(["Of", *OVERVIEW.values(), "Looks"], made)


class Traced(SphinxRole):
    """One number of a record of traces."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        version, *words = self.text.split()
        record = found.find_trace(self.env, version)
        if record is None:
            return [nodes.inline(self.text, numbers.NOT_YET, classes=["not-yet"])], []
        depend(self.env)
        try:
            text = number(record, *words)
        except ExtensionError as error:
            raise ExtensionError(f"{self.get_location()}: {error}") from None
        return [nodes.inline(self.text, text, classes=["measured"])], []


def depend(env: BuildEnvironment) -> None:
    """Let the page be read again when the simulator or a kernel changes."""
    for path in sources(env.config, found.root(env)):
        env.note_dependency(str(path))


def setup(app: Sphinx) -> None:
    """Register the directive and the role."""
    app.add_directive("trace-table", TraceTable)
    app.add_role("traced", Traced())

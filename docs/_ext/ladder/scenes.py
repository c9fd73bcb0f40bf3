# SPDX-License-Identifier: Apache-2.0
"""What the template of :mod:`ladder.stepper` puts on the page: each step's state, the ring's
shapes, the timeline's bars, the kernel's lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from html import escape
from itertools import groupby
from math import cos, pi, sin
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

import timelines
from ladder import words
from ladder.moments import Run, Step
from tilus import timeline
from tilus.ir import Event
from tilus.simulator import Result

RADIUS, BAND, GAP = 92.0, 74.0, 2.5
"""Of the ring: its middle, its width, and half the gap between two stages in degrees."""
NARROW = 2.6  # percent of the timeline: a number does not fit into such a bar


# ---- the state of a step ------------------------------------------------------------------------


def code(text: str) -> str:
    """Return text as HTML, with what stands in backticks as code."""
    return re.sub(r"`(.*?)`", r"<code>\1</code>", escape(text))


def pointers(run: Run) -> list[tuple[str, str]]:
    """Return who has a place at the ring, and as what: ``"copy"`` or ``"compute"``."""
    kinds = (("copy", run.loaders), ("compute", run.computers))
    return [(lane, kind) for kind, lanes in kinds for lane in run.roles if lane in lanes]


def actors(run: Run) -> list[dict[str, Any]]:
    """Return who acts, roles, then engines, each with its pointers' numbers and kinds."""
    places = list(enumerate(pointers(run)))
    return [
        {"name": name, "places": [(n, kind) for n, (lane, kind) in places if lane == name]}
        for name in (*run.roles, *timeline.ENGINES[: 3 if run.leaving else 2])
    ]


def stagers(run: Run) -> list[str]:
    """Return the groups that have a staging buffer."""
    return sorted({x.lane for x in run.leaving})


def scene(run: Run, step: Step) -> dict[str, Any]:
    """Return all that the figure shows of a step, in short lists: there is one for each step."""
    time, states = step.time, timeline.at(run.states, step.time)
    lanes = [actor["name"] for actor in actors(run)]
    doing = [(mood, code(text)) for mood, text in (words.doing(run, x, time) for x in lanes)]
    return {
        "time": round(time),
        "text": [code(text) for text in words.tell(run, step)],
        "stages": [(s.state, s.tile, round(s.share, 3)) for s in run.stages(time)],
        "barriers": [(states[x].phase, states[x].arrivals, states[x].bytes) for x in run.labels],
        "actors": [(*x, *_lines(run, lane, step)) for x, lane in zip(doing, lanes, strict=True)],
        "product": next((e.tile for e in run.products if e.start <= time < e.end), None),
        "staging": [astuple(run.staging(lane, time)) for lane in stagers(run)],
        "places": [run.at_stage(lane, kind, time) for lane, kind in pointers(run)],
    }


def _lines(run: Run, lane: str, step: Step) -> tuple[int | None, list[int]]:
    """Return the line a role is at, and the lines that it ran in this step."""
    ran = {e.location.line for a in step.acts if a.lane == lane for e in a.events}
    event = run.current(lane, step.time)
    if lane in timeline.ENGINES or event is None:
        return None, []
    return None if event.end <= step.time else event.location.line, sorted(ran)


# ---- the ring -----------------------------------------------------------------------------------


def _point(radius: float, degrees: float) -> str:
    angle = degrees * pi / 180
    return f"{radius * sin(angle):.1f} {-radius * cos(angle):.1f}"


@dataclass(frozen=True)
class Sector:
    """A stage's place in the ring: its outline, the arc along its middle, where its text stands."""

    outline: str
    arc: str
    x: float
    y: float


def sectors(count: int) -> list[Sector]:
    """Return the places of ``count`` stages, clockwise from the top, around the origin."""
    return [_sector(360 * i / count, 360 / count) for i in range(count)]


def _sector(middle: float, width: float) -> Sector:
    begin, end = middle - width / 2 + GAP, middle + width / 2 - GAP
    inner, outer, large = RADIUS - BAND / 2, RADIUS + BAND / 2, int(end - begin > 180)
    outline = (
        f"M{_point(outer, begin)} A{outer} {outer} 0 {large} 1 {_point(outer, end)} "
        f"L{_point(inner, end)} A{inner} {inner} 0 {large} 0 {_point(inner, begin)}Z"
    )
    arc = f"M{_point(RADIUS, begin)} A{RADIUS} {RADIUS} 0 {large} 1 {_point(RADIUS, end)}"
    x, y = (float(number) for number in _point(RADIUS - 6, middle).split())
    return Sector(outline, arc, x, y)


# ---- the timeline -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """A bar in a row of the timeline; ``left`` and ``width`` in percent, ``text`` if it fits."""

    kind: str
    left: float
    width: float
    text: str


def bars(result: Result) -> list[tuple[str, list[Bar]]]:
    """Return the rows of the timeline, as :mod:`timelines` draws them."""
    rows = timelines.rows(result)
    return [(r.label.split("\n")[0], [_bar(e, result.cycles) for e in _merged(r)]) for r in rows]


def _merged(row: timelines.Row) -> Iterator[Event]:
    """Yield the events of a row, waits and what engines did; instructions are too short to see."""
    yield from (e for e in row.events if e.kind in ("wait", "sync", "copy", "compute", "store"))


def _bar(event: Event, cycles: float) -> Bar:
    width = 100 * (event.end - event.start) / cycles
    engine = event.kind in ("copy", "compute")
    fits = engine and width > NARROW and event.tile is not None
    kind = event.kind if engine else "store" if event.kind == "store" else "wait"
    kind = "leave" if kind == "store" and event.issuer else kind
    text = str(event.tile) if fits else ""
    return Bar(kind, round(100 * event.start / cycles, 2), round(width, 2), text)


# ---- the source ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A line of the kernel as HTML, and its indentation; ``number`` is None where lines are left
    out."""

    number: int | None
    html: str
    indent: int = 0


def source(text: str, used: Iterable[int]) -> list[Line]:
    """Return the functions in which the ``used`` lines stand, the kernel's own from the first."""
    shown = highlight(text, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)).split("\n")
    wanted = sorted({n for first, last in _pieces(text, set(used)) for n in range(first, last + 1)})
    code = text.splitlines()
    indents = {n: len(code[n - 1]) - len(code[n - 1].lstrip()) for n in wanted}
    least = min(indents[n] for n in wanted if code[n - 1])
    lines: list[Line] = []
    for _, piece in groupby(enumerate(wanted), key=lambda pair: pair[1] - pair[0]):
        lines += [Line(None, "⋮")] if lines else []
        lines += [_line(n, shown[n - 1], indents[n], least) for _, n in piece]
    return lines


def _line(number: int, html: str, indent: int, least: int) -> Line:
    """Return a line without the spaces that all have; they may stand in a tag."""
    return Line(
        number, re.sub(rf"^((?:<[^>]*>)?) {{{least}}}", r"\1", html), max(0, indent - least)
    )


def _pieces(text: str, used: set[int]) -> Iterator[tuple[int, int]]:
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef):
            continue
        first, last = node.lineno, node.end_lineno or node.lineno
        mine = [n for n in used if first <= n <= last]
        if mine:
            yield (min(mine), max(mine)) if node.name == "__call__" else (first, last)

# SPDX-License-Identifier: Apache-2.0
"""Timelines of one block of each step, all on one scale: who waited for whom on the simulator.

On a page: ``.. chart:: timelines.v3`` with ``:badge: simulated`` draws V2 above V3; so do ``v1`` to
``v7`` with the step before, ``v0`` alone, ``ladder`` all up to V6: V7 has another tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

import simulated
from style import WIDTH, Theme, theme
from tilus.ir import Event
from tilus.simulator import Costs, Result

THIN, ROW = 0.62, 1.0
INCHES, POINTS = 0.36, 10.8  # of a row; of all text: a phone shrinks the figure
DIGIT = 0.024  # of the whole width
LOADS, COMPUTES, LEAVE = "loads", "computes", "results leave"


@dataclass(frozen=True)
class Row:
    """One line of a timeline: its label, its height, and what is drawn in it."""

    label: str
    height: float
    events: tuple[Event, ...]


def rows(result: Result) -> list[Row]:
    """Return the lines of one block as the data flow: who loads, the stages, who computes."""
    loaders = {e.issuer for e in result.events if e.kind == "copy"}
    computers = {e.issuer or e.lane for e in result.events if e.kind == "compute"}
    stages = sorted({e.stage for e in result.events if e.kind == "copy" and e.stage is not None})
    found = [_role(result, lane, LOADS) for lane in sorted(loaders - computers)]
    found += [_role(result, lane, f"{LOADS}, {COMPUTES}") for lane in sorted(loaders & computers)]
    found += [Row(f"stage {i}", THIN, tuple(_life(result, i))) for i in stages]
    for lane in sorted(computers - loaders):
        found += [_role(result, lane, COMPUTES), *_results(result, lane)]
    products = tuple(e for e in result.events if e.kind == "compute")
    return [*found, Row(f"tensor cores\n{busy(result):.0%} busy", ROW, products)]


def _role(result: Result, lane: str, does: str) -> Row:
    return Row(f"{lane}\n{does}", ROW, tuple(e for e in result.events if e.lane == lane))


def _results(result: Result, lane: str) -> Iterator[Row]:
    """Yield the bulk stores of a lane, if it has any: each from its issue until it has arrived."""
    mine = [e for e in result.events if e.kind == "store" and e.issuer == lane]
    stores = [e for e in mine if e.reads]
    ends = {e.issued: max(x.end for x in mine if x.issued == e.issued) for e in stores}
    if stores:
        yield Row(LEAVE, THIN, tuple(replace(e, end=ends[e.issued]) for e in stores))


def _life(result: Result, stage: int) -> Iterator[Event]:
    """Yield the loads into a stage, those of one tile as one, and what reads it."""
    mine = [e for e in result.events if e.stage == stage and e.tile is not None]
    for tile in dict.fromkeys(e.tile for e in mine if e.kind == "copy"):
        copies = [e for e in mine if e.kind == "copy" and e.tile == tile]
        begin, end = min(e.start for e in copies), max(e.end for e in copies)
        yield replace(copies[0], start=begin, end=end)
    yield from _together([e for e in mine if e.reads])


def _together(events: Sequence[Event]) -> Iterator[Event]:
    """Yield what reads a stage; what reads the same tile at the same time as one."""
    latest: Event | None = None
    for event in sorted(events, key=lambda e: e.start):
        if latest and event.tile == latest.tile and event.start < latest.end:
            latest = replace(latest, end=max(event.end, latest.end))
            continue
        if latest:
            yield latest
        latest = event
    if latest:
        yield latest


def busy(result: Result) -> float:
    """Return the share of the block's time in which the tensor cores had work."""
    c = Costs()
    products = [e for e in result.events if e.kind == "compute"]
    cycles = sum(e.amount / (c.wgmma_flop if e.issuer else c.mma_flop) for e in products)
    return cycles / result.cycles


def draw(name: str, versions: Sequence[str], tiles: int = simulated.TILES) -> None:
    """Draw ``versions`` below each other, in the colours of the page ``name``."""
    results = [simulated.run(version, tiles) for version in versions]
    panels = {v.upper(): rows(r) for v, r in zip(versions, results, strict=True)}
    end = 1.02 * max(r.cycles for r in results)
    below_each_other(name, panels, end, "simulated cycles since the block began")


def below_each_other(
    name: str, panels: Mapping[str, Sequence[Row]], end: float, label: str
) -> None:
    """Draw timelines by their titles on one axis of time, which goes from 0 to ``end``."""
    heights = [sum(row.height for row in panel) for panel in panels.values()]
    with theme(name) as colours, plt.rc_context({"font.size": POINTS}):
        figure, axes = plt.subplots(
            len(panels),
            figsize=(WIDTH, 0.75 + sum(INCHES * h + 0.3 for h in heights)),
            height_ratios=heights,
            sharex=True,
            squeeze=False,
            layout="constrained",
        )
        for ax, (title, panel) in zip(axes[:, 0], panels.items(), strict=True):
            ax.set_xlim(0, end)
            _panel(ax, title, panel, colours)
        axes[-1, 0].set_xlabel(label)
        axes[-1, 0].locator_params(axis="x", nbins=6)
        figure.legend(handles=_kinds(colours), loc="outside upper center", ncols=4, handlelength=1)


def _panel(ax: Axes, title: str, panel: Sequence[Row], colours: Theme) -> None:
    ticks, y = [], 0.0
    for row in panel:
        for event in (e for e in row.events if e.start < ax.get_xlim()[1]):
            _bar(ax, y + row.height / 2, row.height, event, colours)
        ticks.append(y + row.height / 2)
        y += row.height
        if row.height == ROW:
            ax.axhline(y, color=colours.faint, lw=0.6)
    ax.set_yticks(ticks, [row.label for row in panel], fontsize=POINTS, linespacing=1.0)
    ax.set_ylim(y, 0)
    ax.set_title(title, loc="left", fontweight="bold", fontsize=POINTS, pad=3)
    ax.tick_params(axis="x", length=2)


def _bar(ax: Axes, y: float, height: float, event: Event, colours: Theme) -> None:
    width = event.end - event.start

    def bar(thick: float, **look: Any) -> None:
        ax.add_artist(Rectangle((event.start, y - thick / 2), width, thick, **look))

    if event.kind in ("wait", "sync"):
        bar(0.55 * height, fc="none", ec=colours.muted, hatch="/////", lw=0)
        return
    fill = {"copy": colours.load, "compute": colours.compute}.get(event.kind, colours.other)
    if event.kind == "store" and event.issuer:
        fill = colours.muted
    engine = event.kind in ("copy", "compute")
    edge = {"ec": colours.page, "lw": 0.4} if engine else {"ec": fill, "lw": 0.6}
    bar(0.8 * height, fc=fill, **edge)
    if engine and event.tile is not None:
        _number(ax, event.start + width / 2, y, width, str(event.tile), colours.on_bar)


def _number(ax: Axes, x: float, y: float, width: float, number: str, colour: str) -> None:
    """Write the number of a tile into its bar where there is room for it."""
    right = ax.get_xlim()[1]
    needed = DIGIT * (len(number) + 0.3) * right
    if width > needed and x + needed / 2 < right:
        ax.text(x, y, number, ha="center", va="center_baseline", color=colour)


def _kinds(colours: Theme) -> list[Patch]:
    return [
        Patch(fc=colours.load, label="load"),
        Patch(fc=colours.compute, label="product"),
        Patch(fc=colours.other, label="instructions"),
        Patch(fc="none", ec=colours.muted, hatch="/////", lw=0, label="waiting"),
    ]


v0 = partial(draw, versions=("v0",))
v1, v2, v3, v4, v5, v6, v7 = (
    partial(draw, versions=pair) for pair in pairwise(simulated.SCHEDULES)
)
ladder = partial(draw, versions=tuple(simulated.SCHEDULES)[:-1])

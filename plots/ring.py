# SPDX-License-Identifier: Apache-2.0
"""The stages of a ring and their mbarriers over time, as the simulator saw them.

On a page: ``.. chart:: ring.v3`` (``v1`` to ``v7``) with ``:badge: simulated``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

import simulated
from style import WIDTH, Theme, theme
from tilus import timeline
from tilus.ir import BarrierState
from tilus.simulator import Result

STATE, BARRIER, GAP = 1.0, 0.8, 0.45
FULL, EMPTY = "full", "empty"


@dataclass(frozen=True)
class Phase:
    """A phase of an mbarrier: what it lacked, from 1 down to 0, at the times it changed."""

    number: int
    start: float
    end: float
    times: tuple[float, ...]
    lacks: tuple[float, ...]


def role(states: tuple[BarrierState, ...], array: str) -> str:
    """Say what the barriers of ``array`` tell: bytes are announced to those of full stages."""
    mine = (s for s in states if s.array == array)
    return FULL if any(s.cause == "expect" for s in mine) else EMPTY


def phases(states: tuple[BarrierState, ...], label: str, end: float) -> Iterator[Phase]:
    """Yield the phases of one barrier until the block's ``end``: their bytes, if it has any."""
    mine = [s for s in states if s.label == label]
    most = max(s.bytes for s in mine)
    whole = most or max(s.arrivals for s in mine)
    for number in sorted({s.phase for s in mine}):
        inside = [s for s in mine if s.phase == number]
        after = [s.time for s in mine if s.phase > number]
        stop = min(after, default=end)
        lacks = [(s.bytes if most else s.arrivals) / whole for s in inside]
        times = [s.time for s in inside]
        yield Phase(number, times[0], stop, (*times, stop), (*lacks, lacks[-1]))


def draw(name: str, version: str) -> None:
    """Draw each stage of one block: its state, and what the phases of its mbarriers lack."""
    result = simulated.run(version)
    arrays = list(dict.fromkeys(s.array for s in result.barriers))
    spans = timeline.stages(result.events)
    stages = sorted({s.stage for s in spans})
    height = STATE + BARRIER * len(arrays) + GAP
    with theme(name) as colours:
        figure, ax = plt.subplots(
            figsize=(WIDTH, 1.0 + 0.3 * height * len(stages)), layout="constrained"
        )
        ticks: dict[float, str] = {}
        for stage in stages:
            top = stage * height
            ticks[top + STATE / 2] = f"stage {stage}"
            _states(ax, top, [s for s in spans if s.stage == stage], colours)
            for i, array in enumerate(arrays):
                y = top + STATE + BARRIER * i
                ticks[y + BARRIER / 2] = kind = role(result.barriers, array)
                _barrier(ax, y, result, f"{array}[{stage}]", kind, colours)
        ax.set_yticks(list(ticks), ticks.values(), fontsize=8.5)
        ax.set_ylim(len(stages) * height - GAP, 0)
        ax.set_xlim(0, result.cycles)
        ax.set_xlabel("simulated cycles since the block began")
        figure.legend(handles=_kinds(colours), loc="outside upper center", ncols=3, handlelength=1)


def _states(ax: Axes, top: float, spans: list[timeline.Span], colours: Theme) -> None:
    fills = {"filling": colours.load, "full": colours.muted, "read": colours.compute}
    for span in spans:
        width = span.end - span.start
        if span.state in fills:
            look = {"fc": fills[span.state], "ec": colours.page, "lw": 0.4}
            ax.barh(top + STATE / 2, width, 0.9 * STATE, left=span.start, **look)
            label = {"ha": "center", "va": "center_baseline", "color": colours.on_bar}
            if span.state != "full":
                middle = span.start + width / 2
                ax.text(middle, top + STATE / 2, str(span.tile), **label, fontsize=7.5)


def _barrier(ax: Axes, top: float, result: Result, label: str, kind: str, colours: Theme) -> None:
    fill = colours.load if kind == FULL else colours.other
    bottom = top + 0.9 * BARRIER
    ax.plot([0, result.cycles], [bottom, bottom], color=colours.faint, lw=0.6)
    for phase in phases(result.barriers, label, result.cycles):
        heights = bottom - 0.75 * BARRIER * np.array(phase.lacks)
        ax.fill_between(phase.times, heights, bottom, step="post", color=fill, alpha=0.3, lw=0)
        if phase.start:
            ax.plot([phase.start] * 2, [top, bottom], color=fill, lw=1.2)
        text = {"va": "center_baseline", "fontsize": 7, "color": colours.ink, "clip_on": True}
        ax.text(phase.start, top + BARRIER / 2, f" {phase.number}", **text)


def _kinds(colours: Theme) -> list[Patch]:
    return [
        Patch(fc=colours.load, label="filling"),
        Patch(fc=colours.muted, label="full"),
        Patch(fc=colours.compute, label="being read"),
        Patch(fc=colours.load, alpha=0.3, label="bytes lacking"),
        Patch(fc=colours.other, alpha=0.3, label="arrivals lacking"),
    ]


v1, v2, v3, v4, v5, v6, v7 = (partial(draw, version=v) for v in list(simulated.SCHEDULES)[1:])

# SPDX-License-Identifier: Apache-2.0
"""From the simulator's events to lanes that a figure can draw, and to a trace that Perfetto shows.

This module draws nothing. Times are the simulator's cycles.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilus.ir import Event

ENGINES = ("TMA engine", "tensor cores", "bulk stores")


@dataclass(frozen=True)
class Interval:
    """An event in its lane; ``row`` is 0 unless earlier events of the lane overlap it."""

    event: Event
    row: int


@dataclass(frozen=True)
class Lane:
    """All that one role or engine did, in order, in more than one row where events overlap."""

    name: str
    intervals: tuple[Interval, ...]

    @property
    def rows(self) -> int:
        """Most events that go on at once, at least 1."""
        return 1 + max((i.row for i in self.intervals), default=0)

    def busy(self, *kinds: str) -> float:
        """Return the cycles in which some event of these kinds (of any, if none) went on."""
        spans = sorted((i.event.start, i.event.end) for i in self.intervals if _is(i.event, kinds))
        total = end = 0.0
        for start, stop in spans:
            total += max(0.0, stop - max(start, end))
            end = max(end, stop)
        return total


def _is(event: Event, kinds: Sequence[str]) -> bool:
    return not kinds or event.kind in kinds


def lanes(events: Iterable[Event], block: tuple[int, int, int] | None = None) -> tuple[Lane, ...]:
    """Sort the events of one block (by default the first) into lanes: roles, then engines."""
    recorded = list(events)
    if block is None and recorded:
        block = recorded[0].block
    mine = sorted((e for e in recorded if e.block == block), key=lambda e: (e.start, e.end))
    names = sorted({e.lane for e in mine}, key=_lane_order)
    return tuple(Lane(name, _rows(e for e in mine if e.lane == name)) for name in names)


def _lane_order(name: str) -> tuple[int, int, int]:
    """Order roles by their first thread or warp, wider ones first; engines as the data flow."""
    if name in ENGINES:
        return 1, ENGINES.index(name), 0
    numbers = [int(n) for n in re.findall(r"\d+", name)]
    return 0, numbers[0], -numbers[-1]


def _rows(events: Iterable[Event]) -> tuple[Interval, ...]:
    """Put each event, in order of start, into the first row that is free by then."""
    ends: list[float] = []
    intervals = []
    for event in events:
        row = next((r for r, end in enumerate(ends) if end <= event.start), len(ends))
        ends[row : row + 1] = [event.end]
        intervals.append(Interval(event, row))
    return tuple(intervals)


def chrome(events: Iterable[Event]) -> dict[str, Any]:
    """Return the events in the Trace Event Format that chrome://tracing and ui.perfetto.dev read.

    A block is a process, a row of a lane is a thread; one cycle is shown as one nanosecond.
    """
    recorded = list(events)
    blocks = sorted({e.block for e in recorded})
    rows: list[dict[str, Any]] = []
    for pid, block in enumerate(blocks):
        rows.append(_name("process_name", pid, 0, f"block {block}"))
        tid = 0
        for lane in lanes(recorded, block):
            for row in range(lane.rows):
                rows.append(_name("thread_name", pid, tid + row, lane.name))
            rows += [_complete(i.event, pid, tid + i.row) for i in lane.intervals]
            tid += lane.rows
    return {"traceEvents": rows, "displayTimeUnit": "ns"}


def write_chrome(events: Iterable[Event], path: str | Path) -> None:
    """Write :func:`chrome` of the events to ``path`` as JSON."""
    Path(path).write_text(json.dumps(chrome(events), indent=1) + "\n")


def _name(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _complete(event: Event, pid: int, tid: int) -> dict[str, Any]:
    args = {"place": str(event.location), "barrier": event.barrier, "stage": event.stage}
    return {
        "name": event.what,
        "cat": event.kind,
        "ph": "X",
        "ts": event.start / 1000,
        "dur": (event.end - event.start) / 1000,
        "pid": pid,
        "tid": tid,
        "args": {k: v for k, v in args.items() if v is not None},
    }

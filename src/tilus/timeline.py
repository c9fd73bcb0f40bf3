# SPDX-License-Identifier: Apache-2.0
"""From the simulator's events to what a figure can draw, and to a trace that Perfetto shows.

Lanes say what each role and engine did; spans, in which state each stage of a ring was; the steady
state, how long a tile takes.

This module draws nothing. Times are the simulator's cycles.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilus.ir import BarrierState, Event

SEEN = {
    "tma": "TMA copies, from asked for to seen",
    "wgmma": "products, from asked for to seen",
    "store": "bulk stores, from asked for to seen",
}
"""The lanes of engines as threads of a GPU see them, from outside."""
ENGINES = ("TMA engine", "tensor cores", "bulk stores", *SEEN.values())


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


WAITING = ("wait", "sync")


@dataclass(frozen=True)
class Total:
    """What one lane did in all: instructions or tasks, waits among them, cycles, bytes, FLOP."""

    steps: int
    waits: int
    busy: float
    waiting: float
    nbytes: float
    flop: float


def total(lane: Lane) -> Total:
    """Sum up a lane. A role is busy while it does not wait, an engine while it has a task."""
    events = [i.event for i in lane.intervals]
    kinds = {e.kind for e in events} - set(WAITING)
    return Total(
        steps=len(events),
        waits=sum(e.kind in WAITING for e in events),
        busy=lane.busy(*kinds) if kinds else 0.0,
        waiting=lane.busy(*WAITING),
        nbytes=sum(e.amount for e in events if e.kind != "compute"),
        flop=sum(e.amount for e in events if e.kind == "compute"),
    )


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


@dataclass(frozen=True)
class Span:
    """The state of a stage from ``start`` to ``end``: ``"empty"``, ``"filling"``, ``"full"`` or
    ``"read"`` (being read); ``tile`` is what it holds or is being filled with."""

    stage: int
    state: str
    start: float
    end: float
    tile: int | None = None


def stages(events: Iterable[Event]) -> tuple[Span, ...]:
    """Return the states of each stage of one block, in order and without gaps.

    A stage is filling from the moment that its first copy is asked for until the last one has
    landed, and being read from the first event that reads it to the end of the last one.
    """
    recorded = list(events)
    end = max((e.end for e in recorded), default=0.0)
    found: list[Span] = []
    for stage in sorted({e.stage for e in recorded if e.stage is not None and e.writes}):
        mine = [e for e in recorded if e.stage == stage]
        found += _joined(stage, end, [s for tile in _tiles(mine) for s in _life(mine, tile, end)])
    return tuple(found)


def _tiles(events: Iterable[Event]) -> list[int]:
    """Return the tiles that copies bring, in their order."""
    return sorted({e.tile for e in events if e.writes and e.tile is not None})


def _life(events: Iterable[Event], tile: int, end: float) -> list[Span]:
    """Return what a stage went through with one tile."""
    mine = [e for e in events if e.tile == tile]
    copies, readers = [e for e in mine if e.writes], [e for e in mine if e.reads]
    stage = copies[0].stage or 0
    asked = min(e.start if e.issued is None else e.issued for e in copies)
    landed = max(e.end for e in copies)
    begun = min((e.start for e in readers), default=end)
    done = max((e.end for e in readers), default=end)
    times = (("filling", asked, landed), ("full", landed, begun), ("read", begun, done))
    return [Span(stage, state, start, stop, tile) for state, start, stop in times if start < stop]


def _joined(stage: int, end: float, spans: Sequence[Span]) -> list[Span]:
    """Return the spans with the gaps between them, and those at both ends, as empty ones."""
    starts = [s.start for s in spans] + [end]
    ends = [0.0] + [s.end for s in spans]
    gaps = (Span(stage, "empty", a, b) for a, b in zip(ends, starts, strict=True) if a < b)
    return sorted([*spans, *gaps], key=lambda s: s.start)


def at(states: Iterable[BarrierState], time: float) -> dict[str, BarrierState]:
    """Return the last state of each barrier of one block up to ``time``, by label."""
    return {s.label: s for s in states if s.time <= time}


@dataclass(frozen=True)
class Steady:
    """What a tile takes once the ring turns: cycles from one to the next, and its work.

    ``copied`` are the bytes that the TMA engine brings in for it, ``flop`` what WGMMA computes and
    ``mma_flop`` what ``mma.sync`` does. ``rest`` is what the block takes besides: its beginning,
    until the ring turns, and its end.
    """

    step: float
    copied: float
    flop: float
    mma_flop: float
    rest: float


def steady(events: Iterable[Event], window: int) -> Steady:
    """Measure the last ``window`` tiles of one block; it needs more than that.

    The step is the time between the ends of the products of two tiles, so latencies that the kernel
    hides do not show.
    """
    recorded = list(events)
    ends: dict[int, float] = {}
    for e in recorded:
        if e.kind == "compute" and e.tile is not None:
            ends[e.tile] = max(e.end, ends.get(e.tile, 0.0))
    last = max(ends)
    step = (ends[last] - ends[last - window]) / window
    tile = [e for e in recorded if e.tile == last]
    products = [e for e in tile if e.kind == "compute"]
    return Steady(
        step=step,
        copied=sum(e.amount for e in tile if e.kind == "copy"),
        flop=sum(e.amount for e in products if e.issuer),
        mma_flop=sum(e.amount for e in products if not e.issuer),
        rest=max(e.end for e in recorded) - len(ends) * step,
    )


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
    args = {
        "place": str(event.location),
        "barrier": event.barrier,
        "stage": event.stage,
        "phase": event.phase,
        "tile": event.tile,
    }
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

# SPDX-License-Identifier: Apache-2.0
"""One block as the simulator has it, above the same block as a GPU recorded it.

On a page: ``.. chart:: beside.v5`` with ``:trace: v5``; so do ``v0`` to ``v7``. Both panels show
the first tiles of the same product with the same schedule, on one axis of cycles; of persistent
blocks those around the end of the first tile of C. What engines do
is seen from outside on a GPU: a load or a product lasts there from the instruction that asks for it
until a thread is past the wait for it, so it ended earlier than its bar.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import simulated
from tilus import prediction, timeline, traces
from tilus.simulator import Result
from tilus.traces import Trace, Traces
from timelines import THIN, Row, below_each_other, rows

ROOT = Path(__file__).parent.parent
TILES, WINDOW = 6, 24  # tiles that are drawn; those at the end by which a step is measured


def load(path: str) -> Traces:
    """Return the record at ``path``, absolute or below the repository's root."""
    return _load(ROOT / path, (ROOT / path).stat().st_mtime_ns)


@cache
def _load(path: Path, modified: int) -> Traces:
    return traces.load(path)


def pair(
    path: str, version: str, size: tuple[int, int, int] | None = None
) -> tuple[Result, Result, Trace]:
    """Return what the simulator says of a recorded block, what the GPU did, and its record.

    The block is the one of ``size``, or the first that the record has of a version.
    """
    return _pair(ROOT / path, (ROOT / path).stat().st_mtime_ns, version, size)


@cache
def _pair(
    path: Path, modified: int, version: str, size: tuple[int, int, int] | None
) -> tuple[Result, Result, Trace]:
    trace = _load(path, modified).of(version, size)
    script = simulated.step(version, **trace.data["schedule"])
    recorded = Result({trace.block: trace.data["cycles"]}, trace.events)
    return prediction.traced(script, trace), recorded, trace


def seen(result: Result) -> list[Row]:
    """Return the lines of a recorded block. Its last ones are no engine's: what somebody has asked
    for stands below what others have."""
    *found, products = rows(result)
    if not any(e.issuer for e in products.events):
        return [*found, products]
    share = products.label.partition("\n")[2]
    (lane,) = timeline.lanes(products.events)
    if lane.rows == 1:
        return [*found, replace(products, label=f"products, until\nseen: {share}")]
    labels = ["products, until", f"seen: {share}", *[""] * lane.rows]
    for i in range(lane.rows):
        events = tuple(x.event for x in lane.intervals if x.row == i)
        found.append(Row(labels[i], THIN, events))
    return found


def shifted(row: Row, by: float) -> Row:
    """Return a line whose time begins ``by`` cycles later; what was over before is left out."""
    later = (e for e in row.events if e.end > by)
    events = (replace(e, start=e.start - by, end=e.end - by) for e in later)
    return replace(row, events=tuple(events))


def begin(trace: Trace, tiles: int) -> int:
    """Return the tile of K with which a figure begins: half of those it shows are before the end of
    the first tile of C where there are several."""
    each = -(-trace.size[2] // trace.data["schedule"]["block_k"])
    last = max(e.tile or 0 for e in trace.events if e.kind == "compute")
    return each - tiles // 2 if last >= each else 0


def until(result: Result, tiles: int) -> float:
    """Return when the products of the first tiles are over."""
    return max(e.end for e in result.events if e.kind == "compute" and (e.tile or 0) < tiles)


def draw(name: str, path: str, version: str, tiles: int = TILES) -> None:
    """Draw both timelines of a version, in the colours of the page ``name``."""
    model, gpu, trace = pair(path, version)
    first, label = begin(trace, tiles), "cycles since the block began"
    if first:
        label = f"cycles since the product of tile {first - 1} was over"
    begins = [until(r, first) if first else 0.0 for r in (model, gpu)]
    where = load(path).data["environment"]["gpu"].removeprefix("NVIDIA ")
    lines = {
        f"{version.upper()}, simulated (cost model)": rows(model),
        f"{version.upper()}, measured on {where} (instrumented build)": seen(gpu),
    }
    panels = {
        title: [shifted(row, by) for row in found]
        for (title, found), by in zip(lines.items(), begins, strict=True)
    }
    ends = [until(r, first + tiles) - by for r, by in zip((model, gpu), begins, strict=True)]
    below_each_other(name, panels, 1.02 * max(ends), label)


VERSIONS = tuple(simulated.SCHEDULES)
v0, v1, v2, v3, v4, v5, v6, v7 = (partial(draw, version=v) for v in VERSIONS)

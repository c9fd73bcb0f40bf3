# SPDX-License-Identifier: Apache-2.0
"""One block as the simulator has it, above the same block as a GPU recorded it.

On a page: ``.. chart:: beside.v5`` with ``:trace: v5``; so do ``v0`` to ``v7``. Both panels show
the first tiles of the same product with the same schedule, on one axis of cycles. What engines do
is seen from outside on a GPU: a load or a product lasts there from the instruction that asks for it
until a thread is past the wait for it, so it ended earlier than its bar.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import simulated
from measured import size
from tilus import prediction, timeline, traces
from tilus.simulator import Result
from tilus.traces import Trace
from timelines import Row, below_each_other, rows

ROOT = Path(__file__).parent.parent
TILES, WINDOW = 8, 24  # tiles that are drawn; those at the end by which a step is measured


def pair(path: str, version: str) -> tuple[Result, Result, Trace]:
    """Return what the simulator says of a recorded block, what the GPU did, and its record."""
    trace = traces.load(ROOT / path).of(version)
    script = simulated.step(version, **trace.data["schedule"])
    recorded = Result({trace.block: trace.data["cycles"]}, trace.events)
    return prediction.traced(script, trace), recorded, trace


def seen(result: Result) -> list[Row]:
    """Return the lines of a recorded block, whose last one is no engine's."""
    *found, products = rows(result)
    share = products.label.partition("\n")[2]
    return [*found, replace(products, label=f"products, until\nseen: {share}")]


def until(result: Result, tiles: int) -> float:
    """Return when the products of the first tiles are over."""
    return max(e.end for e in result.events if e.kind == "compute" and (e.tile or 0) < tiles)


def draw(name: str, path: str, version: str, tiles: int = TILES) -> None:
    """Draw both timelines of a version, in the colours of the page ``name``."""
    model, gpu, trace = pair(path, version)
    environment = traces.load(ROOT / path).data["environment"]
    m, n, k = trace.size
    panels = {
        f"{version.upper()}, simulated": rows(model),
        f"{version.upper()}, recorded on {environment['gpu']}, {size(m, n, k)}": seen(gpu),
    }
    end = 1.02 * max(until(model, tiles), until(gpu, tiles))
    below_each_other(name, panels, end, "cycles since the block began")


def steps(path: str, version: str) -> tuple[float, float]:
    """Return the cycles from one tile to the next once the ring turns: simulated, recorded."""
    model, gpu, _ = pair(path, version)
    here, there = (timeline.steady(r.events, WINDOW).step for r in (model, gpu))
    return here, there


v0, v1, v2, v3, v4, v5, v6, v7 = (partial(draw, version=v) for v in simulated.SCHEDULES)

# SPDX-License-Identifier: Apache-2.0
"""What takes how long in one block: computed alike from the simulator's events and a GPU's.

A GPU's threads see what engines do from outside, so all times end where a thread has seen it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from sphinx.errors import ExtensionError

import beside
import timelines
from simulated import STAGE, bulk
from tilus import timeline
from tilus.timeline import ENGINES, WAITING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tilus.ir import Event
    from tilus.simulator import Result

PRODUCTS, THREADS, STORES = "products", "other threads", "stores"


def asked(result: Result) -> dict[int, float]:
    """Return when the first load of each tile of K was asked for."""
    copies = [e for e in result.events if e.kind == "copy"]
    times = sorted(((e.tile or 0, e.issued or 0.0) for e in copies), reverse=True)
    return dict(times)


def had(result: Result) -> dict[int, float]:
    """Return when some thread was first past the wait for the loads of each tile of K."""
    tiles = {(e.barrier, e.phase): e.tile or 0 for e in result.events if e.kind == "copy"}
    ends: defaultdict[int, list[float]] = defaultdict(list)
    for e in result.events:
        if e.kind == "wait" and (e.barrier, e.phase) in tiles:
            ends[tiles[e.barrier, e.phase]].append(e.end)
    return {tile: min(times) for tile, times in ends.items()}


def loads(result: Result) -> list[float]:
    """Return how long each tile of K took from asked for to seen."""
    begun, ended = asked(result), had(result)
    return [ended[tile] - begun[tile] for tile in sorted(ended)]


def products(result: Result) -> list[tuple[float, float]]:
    """Return when each product was asked for, and when its threads were past the wait for it."""
    found = []
    waits = [w for w in result.events if w.kind == "wait" and not w.barrier]
    for e in (e for e in result.events if e.kind == "compute"):
        past = [w.end for w in waits if w.lane == e.issuer and w.end >= e.end]
        found.append((e.start if e.issued is None else e.issued, min(past, default=e.end)))
    return found


def turns(result: Result) -> list[float]:
    """Return how long each group took from the end of a tile of C, whose results it staged, to its
    first product of the next one."""
    found = []
    for stage in (e for e in result.events if e.what == STAGE):
        mine = [e for e in result.events if e.lane == stage.lane]
        over = [e for e in mine if e.what == "wait_group" and not bulk(e)]
        ends = [e.end for e in over if e.start < stage.start]
        begins = [e.start for e in mine if e.what == "mma" and e.start > stage.start]
        again = [e for e in mine if e.what == STAGE and e.start > stage.start]
        if begins and not any(e.start < min(begins) for e in again):
            found.append(min(begins) - max(ends))
    return found


def gaps(result: Result) -> list[float]:
    """Return how long no product was in flight between two tiles of C; 0 where one was."""
    begun: defaultdict[int, list[float]] = defaultdict(list)
    over: defaultdict[int, list[float]] = defaultdict(list)
    computed = (e for e in result.events if e.kind == "compute")
    for event, (begin, end) in zip(computed, products(result), strict=True):
        begun[event.tile or 0].append(begin)
        over[event.tile or 0].append(end)
    groups = len({e.lane for e in result.events if e.what == STAGE})
    outputs = 1 + (len(turns(result)) // groups if groups else 0)
    each = len(begun) // outputs
    firsts = range(each, each * outputs, each)
    return [max(0.0, min(begun[tile]) - max(over[tile - 1])) for tile in firsts]


def lately(result: Result) -> Iterator[Event]:
    """Yield what roles did in the last steps, those whose length is measured."""
    steps = [e for e in result.events if e.kind == "compute"]
    last = max(e.tile or 0 for e in steps)
    begin, end = (
        max(e.end for e in steps if e.tile == tile) for tile in (last - beside.WINDOW, last)
    )
    yield from (e for e in result.events if e.lane not in ENGINES and begin <= e.start < end)


def waits(result: Result) -> dict[tuple[str, str], float]:
    """Return the cycles a step that each role waits, by what it waits for."""
    total: defaultdict[tuple[str, str], float] = defaultdict(float)
    for e in sorted(lately(result), key=lambda e: e.lane):
        if e.kind in WAITING:
            what = (e.barrier or "").partition("[")[0]
            what = what or (THREADS if e.kind == "sync" else STORES if bulk(e) else PRODUCTS)
            total[e.lane, what] += (e.end - e.start) / beside.WINDOW
    return dict(total)


@dataclass(frozen=True)
class Quantity:
    """Something that a block has: what it is, and how it is computed."""

    text: str
    of: Callable[[Result], float]


QUANTITIES = {
    "before": Quantity("before the first load is asked for", lambda r: min(asked(r).values())),
    "first_load": Quantity("the first tile of K, from asked for to seen", lambda r: loads(r)[0]),
    "load": Quantity("any tile of K, from asked for to seen, median", lambda r: median(loads(r))),
    "product": Quantity(
        "a product, from asked for to seen, median",
        lambda r: median(end - begin for begin, end in products(r)),
    ),
    "step": Quantity(
        "a step, from one tile of K to the next",
        lambda r: timeline.steady(r.events, beside.WINDOW).step,
    ),
    "turn": Quantity(
        "a group, from a tile of C to the next, median",
        lambda r: median(turns(r) or [0.0]),
    ),
    "gap": Quantity(
        "no product in flight, between two tiles of C, median",
        lambda r: median(gaps(r) or [0.0]),
    ),
    "after": Quantity(
        "after the last product", lambda r: r.cycles - max(end for _, end in products(r))
    ),
    "block": Quantity("the block in all", lambda r: r.cycles),
    "busy": Quantity("tensor cores busy", timelines.busy),
}
"""All but the last are cycles."""


def quantity(result: Result, name: str) -> float:
    """Return a quantity of a block, ``waits:warp4:empty`` for one of its :func:`waits`."""
    if name in QUANTITIES:
        return QUANTITIES[name].of(result)
    known = {
        f"waits:{lane.replace(' ', '')}:{what}": x for (lane, what), x in waits(result).items()
    }
    if name not in known:
        raise ExtensionError(f"no quantity {name!r}; there are {', '.join([*QUANTITIES, *known])}")
    return known[name]


def probe(result: Result) -> float:
    """Return the cycles of the shortest recorded instruction: more than that no look costs."""
    return min(e.end - e.start for e in result.events if e.lane not in ENGINES)


def looks(result: Result) -> float:
    """Return the recorded instructions a step of the role that has most."""
    counts: defaultdict[str, int] = defaultdict(int)
    for e in lately(result):
        counts[e.lane] += 1
    return max(counts.values()) / beside.WINDOW


def net(result: Result) -> float:
    """Return the cycles of a step less all looks of the role that has most."""
    return QUANTITIES["step"].of(result) - looks(result) * probe(result)

# SPDX-License-Identifier: Apache-2.0
"""Schedules: how long things take, and which of the possible moves comes next.

Every order that a schedule can produce is one the hardware may produce too: groups run
concurrently, TMA loads land in any order, the products of one warp group land in theirs. A correct
kernel is right under all of them. ``timed`` estimates cycles; ``early``, ``late`` and ``random``
look for the orders that a broken kernel cannot stand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, ClassVar

from tilus.simulator.group import ThreadGroup

if TYPE_CHECKING:
    from tilus import ir
    from tilus.simulator.engines import Effect


@dataclass
class Work:
    """What an instruction did by its own threads, not by an engine: bytes moved, FLOP of
    ``mma.sync``, and the parts of shared memory that it read and wrote."""

    shared: int = 0
    loaded: int = 0
    stored: int = 0
    flop: float = 0
    reads: list[ir.Region] = field(default_factory=list)
    writes: list[ir.Region] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """What the time was spent on: ``compute``, ``store``, ``load`` or only ``issue``."""
        if self.flop:
            return "compute"
        if self.stored or self.writes:
            return "store"
        return "load" if self.loaded or self.reads else "issue"

    @property
    def amount(self) -> float:
        """The FLOP, or else all bytes moved."""
        return self.flop or self.shared + self.loaded + self.stored


ROUND = "round number"


def _cost(value: float, unit: str, what: str, source: str = ROUND) -> float:
    """Return a field of :class:`Costs`: a page shows its unit, its meaning and its source."""
    metadata = {"unit": unit, "what": what, "source": source}
    return field(default=value, metadata=metadata)


@dataclass(frozen=True)
class Costs:
    """The cost model of ``timed``: one block alone on one SM of a Hopper GPU.

    Each field carries ``unit``, ``what`` and ``source`` as metadata; the design page "Cost model"
    is made from them. The model serves to show who waits for whom.
    """

    issue: float = _cost(
        4, "cycles", "an instruction of a warp or a warp group, from one to the next"
    )
    wake: float = _cost(20, "cycles", "from the end of a wait to the next instruction")
    tma_latency: float = _cost(600, "cycles", "a TMA copy, on top of its bytes")
    tma_bytes: float = _cost(
        64,
        "bytes per cycle",
        "TMA copies into one SM",
        "width of the path from the L2 cache to an SM",
    )
    wgmma_latency: float = _cost(32, "cycles", "a product of WGMMA, on top of its FLOP")
    wgmma_flop: float = _cost(
        4096,
        "FLOP per cycle",
        "products of WGMMA, float16 inputs",
        "data sheet of the H200 SXM: 989 TFLOPS dense, by 132 SMs at 1.83 GHz",
    )
    mma_flop: float = _cost(
        2731,
        "FLOP per cycle",
        "products of mma.sync, float16 inputs",
        "counted on an H200: V0's FLOP by the cycles in which its tensor pipe was active",
    )
    store_latency: float = _cost(500, "cycles", "a bulk store, on top of its bytes")
    store_bytes: float = _cost(64, "bytes per cycle", "bulk stores of one SM", "as copies")
    load_latency: float = _cost(500, "cycles", "a load from device memory, on top of its bytes")
    loaded_bytes: float = _cost(
        64, "bytes per cycle", "loads from device memory by threads", "as copies"
    )
    stored_bytes: float = _cost(
        24,
        "bytes per cycle",
        "stores to device memory by threads, of accumulators as products leave them",
        "traced on an H200: the epilogues of V0 to V3; before that 64, as copies",
    )
    shared_latency: float = _cost(24, "cycles", "shared memory read or written by threads")
    shared_bytes: float = _cost(
        128,
        "bytes per cycle",
        "shared memory read or written by threads",
        "CUDA C++ Programming Guide: 32 banks of 4 bytes",
    )


class Schedule:
    """The ``timed`` schedule, and the interface of all others. One object serves one block.

    Engines are serial: TMA, the tensor cores and the bulk stores each work on one request at a
    time; latency comes on top.
    """

    costs: ClassVar[Costs] = Costs()

    def __init__(self, random: Random) -> None:
        self.random = random
        self._free = {"tma": 0.0, "wgmma": 0.0, "store": 0.0}

    def cost(self, work: Work) -> float:
        """Return the cycles that an instruction occupies its group."""
        c = self.costs
        cycles = c.issue + work.flop / c.mma_flop
        cycles += work.loaded / c.loaded_bytes + work.stored / c.stored_bytes
        cycles += work.shared / c.shared_bytes
        if work.loaded:
            cycles += c.load_latency
        return cycles + (c.shared_latency if work.shared else 0)

    def wake(self) -> float:
        """Return the cycles from the end of a wait to the next instruction."""
        return self.costs.wake

    def flight(self, engine: str, now: float, amount: float) -> tuple[float, float]:
        """Return when an effect issued at ``now`` starts to occupy its engine and when it lands."""
        c = self.costs
        rate, latency = {
            "tma": (c.tma_bytes, c.tma_latency),
            "wgmma": (c.wgmma_flop, c.wgmma_latency),
            "store": (c.store_bytes, c.store_latency),
        }[engine]
        start = max(now, self._free[engine])
        self._free[engine] = start + amount / rate
        return start, self._free[engine] + latency

    def read(self, start: float, time: float) -> float:
        """Return when a bulk store that begins at ``start`` and ends at ``time`` has read shared
        memory."""
        return max(start, time - self.costs.store_latency)

    def pick(
        self, moves: Sequence[ThreadGroup | Effect], needed: Callable[[Effect], bool]
    ) -> ThreadGroup | Effect:
        """Choose the next of the possible moves: the earliest, effects before groups.

        ``needed`` says whether some waiting group waits for an effect. An exhaustive exploration
        overrides this method.
        """
        return min(moves, key=_when)


_when = attrgetter("time", "thread", "order")
"""Sorts moves by their time, effects before groups."""


class Early(Schedule):
    """Effects land at once: the engines are infinitely fast."""

    def flight(self, engine: str, now: float, amount: float) -> tuple[float, float]:
        return now, now


class Late(Early):
    """Effects land when nothing else can move: the oldest that a group needs, else the oldest."""

    def pick(
        self, moves: Sequence[ThreadGroup | Effect], needed: Callable[[Effect], bool]
    ) -> ThreadGroup | Effect:
        groups = [m for m in moves if isinstance(m, ThreadGroup)]
        if groups:
            return min(groups, key=_when)
        effects = [m for m in moves if not isinstance(m, ThreadGroup)]
        return min([e for e in effects if needed(e)] or effects, key=lambda e: e.order)


class Shuffled(Schedule):
    """Costs and latencies are random over three orders of magnitude; one seed, one run."""

    def cost(self, work: Work) -> float:
        return self._cycles()

    def wake(self) -> float:
        return self._cycles()

    def flight(self, engine: str, now: float, amount: float) -> tuple[float, float]:
        return now, now + self._cycles()

    def read(self, start: float, time: float) -> float:
        return self.random.uniform(start, time)

    def _cycles(self) -> float:
        return float(2 ** self.random.uniform(0, 10))


SCHEDULES: dict[str, Callable[[Random], Schedule]] = {
    "timed": Schedule,
    "early": Early,
    "late": Late,
    "random": Shuffled,
}

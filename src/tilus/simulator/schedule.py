# SPDX-License-Identifier: Apache-2.0
"""Schedules: how long things take, and which of the possible moves comes next.

Every order that a schedule can produce is one the hardware may produce too: groups run
concurrently, TMA loads land in any order, the products of one warp group land in theirs. A correct
kernel is right under all of them. ``timed`` estimates cycles; ``early``, ``late`` and ``random``
look for the orders that a broken kernel cannot stand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

from tilus.simulator.group import ThreadGroup

if TYPE_CHECKING:
    from tilus.simulator.engines import Effect


@dataclass
class Work:
    """What an instruction did by its own threads, not by an engine: bytes moved, FLOP of
    ``mma.sync``."""

    shared: int = 0
    loaded: int = 0
    stored: int = 0
    flop: float = 0

    @property
    def kind(self) -> str:
        """The kind of event it is in a trace; copies between shared memory and registers belong to
        computing."""
        if self.stored:
            return "store"
        if self.loaded:
            return "load"
        return "compute" if self.flop or self.shared else "issue"


@dataclass(frozen=True)
class Costs:
    """The cost model of ``timed`` for one Hopper SM, in cycles and bytes per cycle.

    Throughputs follow from the data sheet: 4096 dense FP16 FLOP per cycle (989 TFLOPS over 132 SMs
    at 1.83 GHz), 128 bytes per cycle of shared memory, 64 bytes per cycle between L2 and an SM.
    ``mma.sync`` reaches about 62 % of the tensor cores' rate on Hopper, a rough number.
    Latencies are round numbers of the right order. The model serves to show who waits for whom; it
    predicts no measurement.
    """

    issue: float = 4
    wake: float = 20
    tma_latency: float = 600
    tma_bytes: float = 64
    wgmma_latency: float = 32
    wgmma_flop: float = 4096
    mma_flop: float = 2540
    store_latency: float = 500
    store_bytes: float = 64
    load_latency: float = 500
    global_bytes: float = 64
    shared_latency: float = 24
    shared_bytes: float = 128


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
        cycles = (
            c.issue + (work.loaded + work.stored) / c.global_bytes + work.shared / c.shared_bytes
        )
        cycles += work.flop / c.mma_flop
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

    def pick(
        self, moves: Sequence[ThreadGroup | Effect], needed: Callable[[Effect], bool]
    ) -> ThreadGroup | Effect:
        """Choose the next of the possible moves: the earliest, effects before groups.

        ``needed`` says whether some waiting group waits for an effect. An exhaustive exploration
        overrides this method.
        """
        return min(moves, key=_when)


def _when(move: ThreadGroup | Effect) -> tuple[float, bool, int]:
    return move.time, isinstance(move, ThreadGroup), move.order


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

    def _cycles(self) -> float:
        return float(2 ** self.random.uniform(0, 10))


SCHEDULES: dict[str, Callable[[Random], Schedule]] = {
    "timed": Schedule,
    "early": Early,
    "late": Late,
    "random": Shuffled,
}

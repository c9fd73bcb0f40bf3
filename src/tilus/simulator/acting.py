# SPDX-License-Identifier: Apache-2.0
"""Who acts, where and for whom: a block of a cluster, on behalf of one of its thread groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from tilus import ir
from tilus.errors import Location, SimulationError
from tilus.simulator.access import Agent, Kind
from tilus.simulator.barriers import IssuedBarrier, Signal, ThreadBarrier
from tilus.simulator.clocks import Atoms, Clock, Knowledge, Mark
from tilus.simulator.group import Block, ThreadGroup
from tilus.simulator.log import Log
from tilus.simulator.memory import GlobalMemory
from tilus.simulator.schedule import Schedule, Work
from tilus.simulator.trace import Trace

if TYPE_CHECKING:
    from tilus.simulator.machine import BlockMachine

Array = NDArray[Any]


@dataclass(eq=False)
class Cluster:
    """Blocks that run together: what they know of each other, and the barrier of all of them."""

    kernel: ir.Kernel
    memory: GlobalMemory
    size: int
    log: Log | None = None
    machines: list[BlockMachine] = field(default_factory=list)
    knowledge: Knowledge = field(init=False)
    barrier: ThreadBarrier = field(init=False)
    relaxed: list[tuple[Agent, Clock]] = field(default_factory=list)
    """The relaxed arrivals, and what they would have released."""

    def __post_init__(self) -> None:
        function = self.kernel.function
        self.knowledge = Knowledge(function, self.size)
        self.barrier = ThreadBarrier(function.threads.count * self.size)


class Acting:
    """What every part of a block knows: its cluster, the group it acts for, what that is charged.

    ``agent`` is the step that acts: an instruction, or an effect that lands.
    """

    def __init__(self, cluster: Cluster, schedule: Schedule, block: Block, trace: Trace) -> None:
        self.block, self.rank, self.trace = block, len(cluster.machines), trace
        self.schedule, self.cycles = schedule, 0.0
        self.work = Work()
        self.signal: Signal | None = None
        self.visited: list[tuple[Agent, Mark, bool]] = []
        """Agents of peers that came to this block's memory or barriers, how it may hear so, and
        whether they only read: then it is enough that they are over."""
        self.threads: ir.Threads
        self.group: ThreadGroup
        self.location: Location
        self.agent: Agent
        self._cluster, self._known, self._now = cluster, cluster.knowledge, 0.0
        self._plan = cluster.kernel.plan
        self._issued: list[IssuedBarrier] = []
        self._frozen: list[tuple[Kind, ir.SharedTensor, BlockMachine]] = []

    def enter(self, group: ThreadGroup, location: Location, now: float | None = None) -> None:
        """Act for ``group`` from here on, with nothing charged yet; by default, at its time."""
        self.group, self.threads, self.location = group, group.threads, location
        self.work, self.signal, self._issued, self._frozen = Work(), None, [], []
        self._now = group.time if now is None else now

    def knowledge(self) -> Clock:
        """Return what the threads of the block know, all taken together."""
        return self._known.together(self.rank)

    def fail(self, verdict: str, message: str, **facts: object) -> NoReturn:
        """Raise the verdict with the place, the role and the block."""
        raise SimulationError(
            verdict,
            f"{self.location}: {self.threads.role} of block {self.block}: {message}",
            **(self.context() | facts),
        )

    def context(self) -> dict[str, object]:
        """Return who acts and where, for the facts of a verdict."""
        place = self.location
        role, file, line = self.threads.role, place.file, place.line
        return {"role": role, "file": file, "line": line, "block": self.block}

    @property
    def _atoms(self) -> Atoms:
        return self._known.atoms(self.rank, self.threads)

    def _agent(self, mark: Mark, clock: Clock, what: str, engine: str | None = None) -> Agent:
        signals = tuple(f"{b.array.name}[{self.value(b.index)}]" for b in self._issued)
        role = self.threads.role
        cluster = self._cluster
        return Agent(mark, clock, self.location, role, self.block, what, cluster, engine, signals)

    def _peer(self, rank: int | None) -> BlockMachine:
        """Return the block of the cluster that has a rank; None is this one."""
        rank = self.rank if rank is None else rank
        if not 0 <= rank < self._cluster.size:
            rule = f"must be in 0..{self._cluster.size - 1}, got {rank}"
            self.fail("protocol", f"rank of a block of the cluster {rule}", rank=rank)
        return self._cluster.machines[rank]

    # Scalars and registers

    def value(self, x: ir.ExprLike) -> ir.Scalar:
        return x.value if isinstance(x, ir.Const) else self.group.value(x)

    def registers(self, tensor: ir.RegisterTensor) -> Array:
        return self.group.tile(tensor)

    def define(self, tensor: ir.RegisterTensor, values: Array) -> None:
        with np.errstate(over="ignore"):  # a conversion that overflows gives infinity, as cvt does
            self.group.tile(tensor)[...] = values

    def multiply(self, flop: float) -> None:
        self.work.flop += flop

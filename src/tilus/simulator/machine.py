# SPDX-License-Identifier: Apache-2.0
"""The machine that instructions speak to: a thread block with its memory, barriers and engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from tilus import ir
from tilus.simulator.access import Access, Agent
from tilus.simulator.acting import Cluster
from tilus.simulator.clocks import Mark
from tilus.simulator.engines import Effect, Engines
from tilus.simulator.group import Block, ThreadGroup
from tilus.simulator.loadstore import LoadStore
from tilus.simulator.schedule import Schedule
from tilus.simulator.sync import Sync
from tilus.simulator.tiles import Tiles
from tilus.simulator.trace import Trace


class BlockMachine(LoadStore, Sync):
    """Implements :class:`tilus.ir.Machine` for one block, on behalf of ``group``.

    Its memory and its barriers are those of its bases; its own are the engines, the register tiles
    that products use, and the beginning of each step.
    """

    def __init__(self, cluster: Cluster, schedule: Schedule, block: Block, trace: Trace) -> None:
        super().__init__(cluster, schedule, block, trace)
        self.engines = Engines()
        self._tiles = Tiles(self.fail)
        self._stmt: ir.Instruction | None = None
        self._launched = 0
        cluster.machines.append(self)

    def begin(self, group: ThreadGroup, stmt: ir.Instruction) -> None:
        """Act for ``group``, which comes to an instruction."""
        self.enter(group, stmt.location)
        self._stmt = stmt
        atoms = self._atoms
        mark = self._known.step(atoms)
        self.agent = self._agent(mark, self._known.common(atoms), type(stmt).__name__)
        if self._cluster.log:
            self._cluster.log.act(mark)
        self._tiles.touch(stmt, self.agent)

    def land(self, effect: Effect, now: float) -> None:
        """Let an effect land."""
        self.enter(effect.group, effect.location, now)
        self._stmt, self.agent = None, effect.agent
        if self._cluster.log:
            self._cluster.log.act(effect.agent.mark)
        self.engines.land(effect)

    def end(self) -> None:
        """Say that all threads of the block have ended."""
        self._cluster.barrier.leave(self._cluster.kernel.function.threads.count)

    # Engines

    def launch(
        self,
        engine: Literal["tma", "wgmma", "store"],
        land: Callable[[], None],
        *,
        amount: float,
        what: str,
        then: Callable[[], None] | None = None,
    ) -> None:
        start, time = self.schedule.flight(engine, self.group.time, amount)
        read = self.schedule.read(start, time) if then else time
        effect = self._effect(engine, land, what, start, read, amount)
        for kind, tensor, home in self._frozen:
            access = Access(effect.agent, kind, "async", tensor, self._offset(tensor))
            home._enter(access, self, None)
        if then:
            effect.then = self._effect(engine, then, what, read, time, amount)
            effect.then.agent = _behind(effect.then.agent, effect.agent.mark)
        self.engines.launch(effect)
        if self._stmt is not None:
            self._tiles.launch(self._stmt, effect.agent)
        self._issued, self._frozen = [], []

    def _effect(
        self,
        engine: str,
        land: Callable[[], None],
        what: str,
        start: float,
        time: float,
        amount: float,
    ) -> Effect:
        self._launched += 1
        atoms = self._atoms
        agent = self._agent(self._known.effect(atoms), self._known.common(atoms), what, engine)
        return Effect(
            engine,
            self.group,
            self.location,
            land,
            what,
            start,
            time,
            self._launched,
            tuple(self._issued),
            self.group.time,
            amount,
            agent,
            self.group.next_key(),
        )

    def commit(self, engine: Literal["wgmma", "store"]) -> None:
        self.engines.commit((engine, self.threads.begin))

    def wait_commits(
        self, engine: Literal["wgmma", "store"], pending: int, *, read: bool = False
    ) -> ir.Wait:
        atoms = self._atoms

        def passed(awaited: list[Effect]) -> None:
            for effect in awaited:
                self._known.acquire_effect(atoms, effect.agent.mark, effect.agent.clock.before)

        return self.engines.wait((engine, self.threads.begin), pending, read, passed)

    def fence_registers(self) -> None:
        self._tiles.fence(self.threads)


def _behind(agent: Agent, first: Mark) -> Agent:
    """Return the agent of an effect's second step, which knows that the first is over."""
    clock = agent.clock
    return replace(agent, clock=clock._replace(done=clock.done | first.bit))

# SPDX-License-Identifier: Apache-2.0
"""The asynchronous engines: effects in flight, and the commit groups that wait for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from tilus import ir
from tilus.errors import Location
from tilus.simulator.access import Agent
from tilus.simulator.barriers import IssuedBarrier
from tilus.simulator.group import Key, ThreadGroup

LANES = {"tma": "TMA engine", "wgmma": "tensor cores", "store": "bulk stores"}
KINDS = {"tma": "copy", "wgmma": "compute", "store": "store"}

Queue = tuple[str, int]
"""Engine and first issuing thread: what commit groups belong to."""


@dataclass(eq=False)
class Effect:
    """What an engine works on: ``land`` carries it out, at ``time`` or when the schedule says.

    Asked for at ``issued``; the engine is free for it at ``start``. ``then`` is what the engine
    goes on to do: a bulk store that has read shared memory writes device memory.
    """

    engine: str
    group: ThreadGroup
    location: Location
    land: Callable[[], None]
    what: str
    start: float
    time: float
    order: int
    barriers: tuple[IssuedBarrier, ...]
    issued: float
    amount: float
    agent: Agent
    key: Key
    then: Effect | None = None
    landed: bool = False
    awaited: bool = False
    thread: ClassVar[bool] = False

    @property
    def queue(self) -> Queue:
        """Whose commit groups it belongs to."""
        return self.engine, self.group.threads.begin


@dataclass(frozen=True)
class EffectWait(ir.Wait):
    """A wait that some effects can end: those for which ``needs`` is true."""

    needs: Callable[[Effect], bool] = lambda effect: False


class Engines:
    """All effects of one block that have not landed, and its commit groups."""

    def __init__(self) -> None:
        self.pending: list[Effect] = []
        self.loads: list[Effect] = []
        """All copies so far: they complete through an mbarrier, not a commit group."""
        self._open: defaultdict[Queue, list[Effect]] = defaultdict(list)
        self._groups: defaultdict[Queue, list[list[Effect]]] = defaultdict(list)

    def launch(self, effect: Effect) -> None:
        """Take an effect into flight."""
        self.pending.append(effect)
        if effect.engine == "tma":
            self.loads.append(effect)
        else:
            self._open[effect.queue].append(effect)

    def land(self, effect: Effect) -> None:
        """Carry the effect out."""
        self.pending.remove(effect)
        effect.landed = True
        effect.land()
        if effect.then:
            self.pending.append(effect.then)

    def landable(self) -> Iterator[Effect]:
        """Yield what may land next: any load or store, the oldest product of each warp group."""
        busy = set()
        for effect in self.pending:
            if effect.engine != "wgmma":
                yield effect
            elif effect.queue not in busy:
                busy.add(effect.queue)
                yield effect

    def commit(self, queue: Queue) -> None:
        """Close the effects launched since the last commit into one group."""
        self._groups[queue].append(self._open.pop(queue, []))

    def wait(
        self, queue: Queue, pending: int, read: bool, passed: Callable[[list[Effect]], None]
    ) -> EffectWait:
        """Return the wait until all commit groups but the ``pending`` newest have landed, or, with
        ``read``, have only read shared memory; ``passed`` is told of them."""
        groups = self._groups[queue]
        cut = max(0, len(groups) - pending)
        closed = [effect for group in groups[:cut] for effect in group]
        awaited = [effect for effect in closed if not effect.awaited]
        for effect in awaited:
            effect.awaited = True
        if not read:
            awaited += [effect.then for effect in closed if effect.then]
            self._groups[queue] = groups[cut:]
        return EffectWait(
            ready=lambda: all(e.landed for e in awaited),
            describe=lambda: f"{sum(not e.landed for e in awaited)} effects of {LANES[queue[0]]}",
            facts=lambda: {"engine": queue[0], "pending": pending},
            passed=lambda: passed(awaited),
            needs=lambda effect: effect in awaited,
        )

    def abandoned(self) -> Iterator[tuple[Effect, str]]:
        """Yield the effects that nobody has made sure of, and what was left undone."""
        yield from ((e, "never committed") for effects in self._open.values() for e in effects)
        committed = (group for groups in self._groups.values() for group in groups)
        unsure = (e for group in committed for e in group if not e.awaited)
        yield from ((e, "never waited for") for e in unsure)
        yield from ((e, "in flight") for e in self.pending if e.engine != "store")

# SPDX-License-Identifier: Apache-2.0
"""The event loop of one cluster: whose turn it is, and the verdict when nobody can move."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from tilus import ir
from tilus.errors import SimulationError
from tilus.simulator import leaving
from tilus.simulator.acting import Cluster
from tilus.simulator.engines import Effect, EffectWait
from tilus.simulator.group import ThreadGroup
from tilus.simulator.interpreter import JOIN, Interpreter
from tilus.simulator.schedule import Schedule

Move = ThreadGroup | Effect


class Scheduler:
    """Runs the groups and effects of the blocks of one cluster to the end, one move at a time.

    A move is a step of a group that does not wait, or an effect that lands; the schedule picks.
    ``now`` never goes back under ``timed`` and ``random``, which always pick the earliest move.
    """

    def __init__(self, cluster: Cluster, schedule: Schedule, max_steps: int) -> None:
        self._cluster, self._schedule = cluster, schedule
        self._interpreter = Interpreter(self.spawn, max_steps)
        self._groups: list[ThreadGroup] = []
        self._ended: list[ThreadGroup] = []
        self._now = 0.0

    def spawn(self, group: ThreadGroup, body: tuple[ir.Stmt, ...]) -> None:
        """Let a group take part from now on."""
        group.order = len(self._groups) + len(self._ended)
        group.coroutine = self._interpreter.run(group, body)
        self._groups.append(group)

    def run(self) -> None:
        """Run until all groups have ended, and say so to their machines."""
        while self._groups:
            self._wake()
            moves: list[Move] = [g for g in self._groups if g.wait is None]
            moves += self._landable()
            if not moves:
                self._deadlock()
            self._perform(self._pick(moves))
        self._end()
        for group in self._ended:
            group.machine.cycles = max(group.machine.cycles, group.time)

    def _pick(self, moves: list[Move]) -> Move:
        chosen = self._schedule.pick(moves, self._needed)
        if self._cluster.log:
            self._cluster.log.move(tuple(move.key for move in moves), chosen.key)
        return chosen

    def _landable(self) -> list[Effect]:
        return [e for machine in self._cluster.machines for e in machine.engines.landable()]

    def _wake(self) -> None:
        """Let every group go on whose wait is over."""
        for group in self._groups:
            if group.wait is not None and group.wait.ready():
                group.time = max(group.time, self._now)
                if group.wait.kind != JOIN:
                    group.time += group.machine.schedule.wake()
                group.wait = None

    def _perform(self, move: Move) -> None:
        self._now = max(self._now, move.time)
        if isinstance(move, Effect):
            self._land(move)
        else:
            self._resume(move)

    def _land(self, effect: Effect) -> None:
        machine = effect.group.machine
        machine.land(effect, self._now)
        machine.trace.effect(effect, self._now, machine.signal, machine.work)

    def _resume(self, group: ThreadGroup) -> None:
        try:
            group.wait = next(group.coroutine)
        except StopIteration:
            group.done = True
            self._groups.remove(group)
            self._ended.append(group)
            if group.parent is None:
                group.machine.end()

    def _needed(self, effect: Effect) -> bool:
        waits = (g.wait for g in self._groups)
        return any(isinstance(w, EffectWait) and w.needs(effect) for w in waits)

    def _deadlock(self) -> NoReturn:
        """Raise the verdict: who waits where for what."""
        waits = list(self._waiting())
        lines = [f"{w['file']}:{w['line']}: {w['role']}: waits for {w['text']}" for w in waits]
        lines += [f"{role} ended" for role in self._ended_roles()]
        blocks = list(dict.fromkeys(str(w["block"]) for w in waits))
        message = f"nothing can move in block {', '.join(blocks)}\n  " + "\n  ".join(lines)
        raise SimulationError("deadlock", message, **(waits[0] | {"waits": waits}))

    def _waiting(self) -> Iterator[dict[str, object]]:
        for group in self._groups:
            if group.wait is not None and group.wait.kind != JOIN:
                group.machine.enter(group, group.location)
                text = {"text": group.wait.describe()}
                yield group.machine.context() | text | group.wait.facts()

    def _ended_roles(self) -> list[str]:
        """Name the groups that have ended, without the single threads of a warp."""
        return list(dict.fromkeys(g.threads.role for g in self._ended if g.threads.count >= 32))

    def _end(self) -> None:
        """Refuse what the blocks left behind; let bulk stores write what they have read."""
        for machine in self._cluster.machines:
            leaving.check_visits(machine)
            leaving.check_effects(machine)
        while effects := self._landable():
            self._perform(self._pick(list(effects)))
        for machine in self._cluster.machines:
            leaving.check_bytes(machine)
            leaving.check_loads(machine)
            leaving.check_visits(machine)

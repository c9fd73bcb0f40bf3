# SPDX-License-Identifier: Apache-2.0
"""The event loop of one block: whose turn it is, and the verdict when nobody can move."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from tilus import ir
from tilus.errors import SimulationError
from tilus.simulator.engines import LANES, Effect, EffectWait
from tilus.simulator.group import ThreadGroup
from tilus.simulator.interpreter import JOIN, Interpreter
from tilus.simulator.machine import BlockMachine
from tilus.simulator.schedule import Schedule
from tilus.simulator.trace import Trace


class Scheduler:
    """Runs the groups and effects of one block to the end, one move at a time.

    A move is a step of a group that does not wait, or an effect that lands; the schedule picks.
    ``now`` never goes back under ``timed`` and ``random``, which always pick the earliest move.
    """

    def __init__(
        self, machine: BlockMachine, schedule: Schedule, trace: Trace, max_steps: int
    ) -> None:
        self._machine, self._schedule, self._trace = machine, schedule, trace
        self._interpreter = Interpreter(machine, schedule, trace, self.spawn, max_steps)
        self._groups: list[ThreadGroup] = []
        self._ended: list[ThreadGroup] = []
        self._now = 0.0

    def spawn(self, group: ThreadGroup, body: tuple[ir.Stmt, ...]) -> None:
        """Let a group take part from now on."""
        group.order = len(self._groups) + len(self._ended)
        group.coroutine = self._interpreter.run(group, body)
        self._groups.append(group)

    def run(self) -> float:
        """Run until all groups have ended; return the block's cycles."""
        while self._groups:
            self._wake()
            moves: list[ThreadGroup | Effect] = [g for g in self._groups if g.wait is None]
            moves += self._machine.engines.landable()
            if not moves:
                self._deadlock()
            self._perform(self._schedule.pick(moves, self._needed))
        self._check_exit()
        return max(group.time for group in self._ended)

    def _wake(self) -> None:
        """Let every group go on whose wait is over."""
        for group in self._groups:
            if group.wait is not None and group.wait.ready():
                group.time = max(group.time, self._now)
                if group.wait.kind != JOIN:
                    group.time += self._schedule.wake()
                group.wait = None

    def _perform(self, move: ThreadGroup | Effect) -> None:
        self._now = max(self._now, move.time)
        if isinstance(move, Effect):
            self._land(move)
        else:
            self._resume(move)

    def _land(self, effect: Effect) -> None:
        self._machine.enter(effect.group, effect.location, self._now)
        self._machine.engines.land(effect)
        self._trace.effect(effect, self._now, self._machine.signal, self._machine.work)

    def _resume(self, group: ThreadGroup) -> None:
        try:
            group.wait = next(group.coroutine)
        except StopIteration:
            group.done = True
            self._groups.remove(group)
            self._ended.append(group)

    def _needed(self, effect: Effect) -> bool:
        waits = (g.wait for g in self._groups)
        return any(isinstance(w, EffectWait) and w.needs(effect) for w in waits)

    def _deadlock(self) -> NoReturn:
        """Raise the verdict: who waits where for what."""
        waits = list(self._waiting())
        lines = [f"{w['file']}:{w['line']}: {w['role']}: waits for {w['text']}" for w in waits]
        lines += [f"{role} ended" for role in self._ended_roles()]
        block = self._machine.block
        message = f"nothing can move in block {block}\n  " + "\n  ".join(lines)
        raise SimulationError("deadlock", message, block=block, waits=waits)

    def _waiting(self) -> Iterator[dict[str, object]]:
        for group in self._groups:
            if group.wait is not None and group.wait.kind != JOIN:
                self._machine.enter(group, group.location)
                text = {"text": group.wait.describe()}
                yield self._machine.context() | text | group.wait.facts()

    def _ended_roles(self) -> list[str]:
        """Name the groups that have ended, without the single threads of a warp."""
        return list(dict.fromkeys(g.threads.role for g in self._ended if g.threads.count >= 32))

    def _check_exit(self) -> None:
        """Refuse what the block left behind."""
        machine = self._machine
        for effect, state in machine.engines.abandoned():
            machine.enter(effect.group, effect.location)
            what = f"{effect.what} ({LANES[effect.engine]}) is {state} when the block ends"
            machine.fail("protocol", what, engine=effect.engine, state=state)
        for barrier in (b for array in machine.barriers.values() for b in array):
            if barrier.bytes:
                machine.fail(
                    "protocol",
                    f"the block ends, but {barrier.label} still expects {barrier.bytes} bytes",
                    **barrier.facts(),
                )

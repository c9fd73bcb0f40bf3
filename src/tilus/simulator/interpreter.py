# SPDX-License-Identifier: Apache-2.0
"""Statements as coroutines: each group walks its body and hands control back where time matters.

A coroutine yields None when it is about to carry out an instruction, so that the scheduler resumes
it at its turn, and a :class:`~tilus.ir.Wait` when it cannot go on before something has happened.
Scalar statements take no time.

A ``Group`` statement forks a coroutine. The group around it goes on, and joins those of its
children whose threads take part in what it does next: an instruction involves all of them, another
``Group`` those that overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from enum import Enum

from tilus import ir
from tilus.errors import Location, SimulationError
from tilus.simulator.group import ThreadGroup

JOIN = "join"
"""Kind of the wait for forked groups: neither traces nor verdicts show it."""


class Flow(Enum):
    """How a statement list was left before its end."""

    BREAK = "break"
    CONTINUE = "continue"
    RETURN = "return"


Coroutine = Generator[ir.Wait | None, None, None]
Steps = Generator[ir.Wait | None, None, Flow | None]


class Interpreter:
    """Walks the statements of a cluster's groups; ``spawn(group, body)`` starts a forked one."""

    def __init__(
        self, spawn: Callable[[ThreadGroup, tuple[ir.Stmt, ...]], None], max_steps: int
    ) -> None:
        self._spawn = spawn
        self._steps, self._max_steps = 0, max_steps

    def run(self, group: ThreadGroup, body: tuple[ir.Stmt, ...]) -> Coroutine:
        """Return the coroutine of a group; it ends when all that it has forked has ended."""
        flow = yield from self._body(group, body)
        yield from self._join(group, list(group.children))
        group.exited = flow is Flow.RETURN

    def _body(self, group: ThreadGroup, body: tuple[ir.Stmt, ...]) -> Steps:
        for stmt in body:
            flow = yield from self._statement(group, stmt)
            if flow is not None:
                return flow
        return None

    def _statement(self, group: ThreadGroup, stmt: ir.Stmt) -> Steps:
        self._count(group, stmt.location)
        group.location = stmt.location
        match stmt:
            case ir.Declare(var=var, value=value) | ir.Assign(var=var, value=value):
                group.scalars[var] = ir.wrap(group.value(value), var.dtype)
            case ir.SetElement(tensor=tensor, index=index, value=value):
                new = ir.wrap(group.value(value), tensor.dtype)
                group.tile(tensor)[group.element(tensor, index)] = new
            case ir.If(cond=cond, then=then, orelse=orelse):
                return (yield from self._body(group, then if group.value(cond) else orelse))
            case ir.For() | ir.While():
                return (yield from self._loop(group, stmt))
            case ir.Break() | ir.Continue() | ir.Return():
                return Flow(type(stmt).__name__.lower())
            case ir.Group():
                yield from self._fork(group, stmt)
            case ir.Instruction():
                yield from self._instruction(group, stmt)
            case _:
                raise SimulationError("not modelled", f"{stmt.location}: {type(stmt).__name__}")
        return None

    def _loop(self, group: ThreadGroup, stmt: ir.For | ir.While) -> Steps:
        for _ in self._turns(group, stmt):
            self._count(group, stmt.location)
            flow = yield from self._body(group, stmt.body)
            if flow is Flow.BREAK:
                break
            if flow is Flow.RETURN:
                return flow
        return None

    def _turns(self, group: ThreadGroup, stmt: ir.For | ir.While) -> Iterator[None]:
        if isinstance(stmt, ir.While):
            while group.value(stmt.cond):
                yield
            return
        start, stop, step = (int(group.value(x)) for x in (stmt.start, stmt.stop, stmt.step))
        if step == 0:
            message = f"{stmt.location}: the step of a range must be other than 0, got 0"
            raise SimulationError("protocol", message)
        for i in range(start, stop, step):
            group.scalars[stmt.var] = i
            yield

    def _fork(self, group: ThreadGroup, stmt: ir.Group) -> Steps:
        overlapping = [c for c in group.children if c.threads.overlaps(stmt.threads)]
        yield from self._join(group, overlapping)
        self._refuse_returned(group, stmt.threads, stmt.location)
        self._spawn(group.fork(stmt.threads, stmt.location), stmt.body)
        return None

    def _join(self, group: ThreadGroup, children: Sequence[ThreadGroup]) -> Coroutine:
        for child in children:
            if not child.done:
                yield _end_of(child)
            group.time = max(group.time, child.time)
            group.children.remove(child)
            if child.exited:
                group.returned.append(child.threads)

    def _refuse_returned(self, group: ThreadGroup, threads: ir.Threads, place: Location) -> None:
        for gone in group.returned:
            if gone.overlaps(threads):
                message = f"{place}: {gone.role} returned before what {threads.role} do here"
                raise SimulationError("not modelled", message, role=gone.role)

    def _instruction(self, group: ThreadGroup, stmt: ir.Instruction) -> Steps:
        if group.children:
            yield from self._join(group, list(group.children))
            group.location = stmt.location
        self._refuse_returned(group, group.threads, stmt.location)
        yield None
        machine, start = group.machine, group.time
        machine.begin(group, stmt)
        wait = stmt.simulate(machine)
        group.time += machine.schedule.cost(machine.work)
        work, signal = machine.work, machine.signal
        if wait is not None:
            yield wait
            wait.passed()
        machine.trace.instruction(group, stmt, start, wait, work, signal)
        return None

    def _count(self, group: ThreadGroup, location: Location) -> None:
        self._steps += 1
        if self._steps > self._max_steps:
            group.machine.enter(group, location)
            group.machine.fail("deadlock", f"no end after {self._max_steps} statements")


def _end_of(child: ThreadGroup) -> ir.Wait:
    return ir.Wait(lambda: child.done, lambda: f"{child.threads.role} to end", kind=JOIN)

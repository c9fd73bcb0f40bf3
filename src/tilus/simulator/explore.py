# SPDX-License-Identifier: Apache-2.0
"""Exploring all orders of moves: one execution stands for all that differ in what commutes.

Dynamic partial-order reduction over replays (Flanagan and Godefroid, POPL 2005): an execution is
repeated up to a move that a later one could have overtaken, and goes on another way from there. See
docs/design/judge.rst for why this finds every outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from tilus.errors import SimulationError
from tilus.simulator.engines import Effect
from tilus.simulator.group import Key, ThreadGroup
from tilus.simulator.log import Log, Operation
from tilus.simulator.schedule import Late

Choices = tuple[Key, ...]
"""The moves of an execution by their keys; what comes behind them is not chosen."""


class Chosen(Late):
    """Makes given moves, and goes on as late effects do."""

    def __init__(self, choices: Sequence[Key] = ()) -> None:
        super().__init__(Random(0))
        self._choices = iter(choices)

    def pick(
        self, moves: Sequence[ThreadGroup | Effect], needed: Callable[[Effect], bool]
    ) -> ThreadGroup | Effect:
        key = next(self._choices, None)
        if key is None:
            return super().pick(moves, needed)
        return next(move for move in moves if move.key == key)


@dataclass(frozen=True)
class Exploration:
    """What exploring found: the first verdict with the moves that lead to it, or that all orders of
    moves are sound (``proved``), or neither within the given number of executions."""

    executions: int
    error: SimulationError | None = None
    choices: Choices = ()
    exhausted: bool = True

    @property
    def proved(self) -> bool:
        """Whether every order of moves is without a verdict."""
        return self.exhausted and self.error is None


@dataclass(eq=False)
class _Node:
    """A point of an execution: what is possible, what has been tried, what is to be."""

    possible: tuple[Key, ...]
    chosen: Key
    tried: set[Key] = field(default_factory=set)
    wanted: set[Key] = field(default_factory=set)

    def open(self) -> list[Key]:
        """Return what is still to be tried, in a stable order."""
        return [key for key in self.possible if key in self.wanted - self.tried]


Execute = Callable[[Chosen, Log], None]
"""Runs a cluster by a schedule and fills a log."""


def explore(execute: Execute, cap: int) -> Exploration:
    """Explore the orders of moves of ``execute``, with at most ``cap`` executions."""
    nodes: list[_Node] = []
    drifts = False
    for count in range(1, cap + 1):
        log = Log()
        try:
            execute(Chosen([node.chosen for node in nodes]), log)
        except SimulationError as error:
            return Exploration(count, error, tuple(log.chosen))
        for possible, chosen in list(zip(log.possible, log.chosen, strict=True))[len(nodes) :]:
            nodes.append(_Node(possible, chosen, {chosen}))
        for i, keys in _reversals(log):
            nodes[i].wanted |= keys
        drifts = drifts or log.drifts()
        while nodes and not nodes[-1].open():
            nodes.pop()
        if not nodes:
            return Exploration(count, exhausted=not drifts)
        nodes[-1].chosen = nodes[-1].open()[0]
        nodes[-1].tried.add(nodes[-1].chosen)
    return Exploration(cap, exhausted=False)


def _reversals(log: Log) -> Iterator[tuple[int, set[Key]]]:
    """Yield the moves at which an execution should go another way, and the ways."""
    for first, second in log.hazards():
        possible = log.possible[first.move]
        leading = {k for k in _leading(log, first.move, second) if k in possible}
        yield first.move, leading or set(possible)


def _leading(log: Log, after: int, second: Operation) -> Iterator[Key]:
    """Yield who has to move, before the later of two moves can, once the earlier one waits."""
    before = second.agent.clock.before
    for i in range(after + 1, second.move + 1):
        mark = log.marks[i]
        if i == second.move or (mark is not None and mark.known(before)):
            yield log.chosen[i]

# SPDX-License-Identifier: Apache-2.0
"""The moves of one execution of a cluster, and which of them would not commute.

Groups and engines meet at mbarriers alone, and no decision of a kernel depends on data. What could
come out otherwise in another order of moves is which phase of a barrier an arrival or a copy's
bytes count in, and which phase a wait finds; see docs/design/judge.rst.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from tilus.simulator.access import Agent
from tilus.simulator.barriers import MBarrier
from tilus.simulator.clocks import Mark
from tilus.simulator.group import Key

Kind = Literal["arrive", "expect", "bytes", "wait"]


@dataclass(frozen=True, eq=False)
class Operation:
    """What move number ``move`` did to a barrier.

    ``phase``: the one that it counts in, or whose end a wait has seen. ``expect`` announces bytes
    without an arrival. ``counted``: how clocks know that it counts.
    """

    move: int
    kind: Kind
    phase: int
    agent: Agent
    counted: Mark

    def before(self, other: Operation) -> bool:
        """Say whether this comes before the other in every order of moves."""
        return self.agent.mark.known(other.agent.clock.before)

    def drifts(self, other: Operation) -> bool:
        """Say whether this may count after the other although its move comes before: that an
        arrival at a peer has come is told by a wait for it, or by a release behind it, alone."""
        sure = self.counted.known(other.agent.clock.before) or self.told(other)
        return self.before(other) and not sure

    def among(self, other: Operation) -> bool:
        """Say whether threads of one group do both."""
        mine, its = self.agent, other.agent
        return (mine.role, mine.block) == (its.role, its.block)

    def told(self, other: Operation) -> bool:
        """Say whether every thread of the other knows of all threads of this."""
        return self.agent.mark.known(other.agent.clock)


@dataclass
class Log:
    """What was possible at each move, what was chosen, and what happened at barriers."""

    possible: list[tuple[Key, ...]] = field(default_factory=list)
    chosen: list[Key] = field(default_factory=list)
    marks: list[Mark | None] = field(default_factory=list)
    at: dict[MBarrier, list[Operation]] = field(default_factory=lambda: defaultdict(list))

    def move(self, possible: tuple[Key, ...], chosen: Key) -> None:
        """Begin a move."""
        self.possible.append(possible)
        self.chosen.append(chosen)
        self.marks.append(None)

    def act(self, mark: Mark) -> None:
        """Say as what clocks know the current move."""
        if self.marks:
            self.marks[-1] = mark

    def operate(
        self, barrier: MBarrier, kind: Kind, phase: int, agent: Agent, counted: Mark
    ) -> None:
        """Note what the current move does to a barrier."""
        self.at[barrier].append(Operation(len(self.chosen) - 1, kind, phase, agent, counted))

    def hazards(self) -> Iterator[tuple[Operation, Operation]]:
        """Yield pairs of moves, the earlier first, that nothing orders and whose order matters."""
        for barrier, operations in self.at.items():
            yield from _hazards(barrier, operations)

    def drifts(self) -> bool:
        """Say whether arrivals may count in other phases than the moves of groups show.

        Threads of one group may arrive for a phase while others of it have yet to arrive for the
        phase before; a relaxed arrival may overtake what its thread has told a peer before.
        """
        return any(
            x.drifts(op) or (op.kind == x.kind == "arrive" and x.among(op) and not x.told(op))
            for operations in self.at.values()
            for counted in (_counted(operations),)
            for op in operations
            for x in counted[op.phase - 1]
        )


def _counted(operations: list[Operation]) -> defaultdict[int, list[Operation]]:
    """Return what has counted in each phase."""
    counted: defaultdict[int, list[Operation]] = defaultdict(list)
    for op in operations:
        if op.kind != "wait":
            counted[op.phase].append(op)
    return counted


def _hazards(
    barrier: MBarrier, operations: list[Operation]
) -> Iterator[tuple[Operation, Operation]]:
    counted = _counted(operations)
    for op in operations:
        last, now, following = (counted[op.phase + i] for i in (-1, 0, 1))
        # It could have come before what ended the last phase: counted, or found another phase.
        yield from ((x, op) for x in last if not x.before(op))
        # The next phase could have ended before it.
        overtaken = op.kind == "wait" and barrier.phase > op.phase + 1
        if overtaken and not any(op.before(x) for x in following):
            yield from ((op, x) for x in following if x.move > op.move)
        # Its phase could have ended without it.
        if op.kind == "expect" and not any(op.before(x) for x in now if x.kind == "arrive"):
            yield from ((op, x) if op.move < x.move else (x, op) for x in now if x is not op)

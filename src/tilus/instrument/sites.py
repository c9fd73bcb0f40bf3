# SPDX-License-Identifier: Apache-2.0
"""The instructions that report, by number, and who runs them."""

from __future__ import annotations

from dataclasses import dataclass

from tilus.errors import Location
from tilus.instrument.probe import Facts
from tilus.ir import Barrier, Threads


@dataclass(frozen=True, eq=False)
class Runner:
    """Who ran an instruction: ``threads``, in the lane of ``lane``, as written at ``location``."""

    threads: Threads
    lane: Threads
    location: Location


@dataclass(frozen=True, eq=False)
class Site:
    """An instruction as it stands in the generated code.

    ``threads`` run it; ``lane`` is the smallest group around it of whole warps, which names its
    role. Where groups share their code these are those of the first, ``twin``, and ``locations``
    has a place for each of them.
    """

    op: str
    facts: Facts
    threads: Threads
    lane: Threads
    twin: Threads | None
    locations: tuple[Location, ...]

    @property
    def barrier(self) -> Barrier | None:
        """The mbarrier that takes part."""
        return self.facts.barrier

    def runner(self, thread: int) -> Runner:
        """Return who ``thread`` of a block, which runs the instruction, belongs to."""
        member = (thread - self.twin.begin) // self.twin.count if self.twin else 0
        moved = member * self.twin.count if self.twin else 0
        threads, lane = (Threads(t.begin + moved, t.count) for t in (self.threads, self.lane))
        return Runner(threads, lane, self.locations[member])


def label(barrier: Barrier, index: int) -> str:
    """Return the name of a barrier as kernels and events have it."""
    return f"{barrier.array.name}[{index}]"

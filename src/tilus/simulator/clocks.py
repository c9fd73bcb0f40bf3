# SPDX-License-Identifier: Apache-2.0
"""Who knows what: happens-before by vector clocks.

The threads of a block fall into *atoms*: runs of threads that no ``Group`` statement of the kernel
takes apart. Each atom of each block of a cluster has one component in every clock. What an engine
does on its own is no point on such a line: it has a bit, set in the clocks of those who know that
it has completed.

A clock holds two things. The *past* in the sense of the memory model: whose accesses are visible.
And ``before``, what came before for any reason at all, also where it makes nothing visible: the
instructions of a thread group follow one another in all its threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from tilus import ir


class Past:
    """``seen[a]``: the time of atom ``a`` up to which all is known; ``done``: one bit an effect."""

    __slots__ = ("done", "seen")

    def __init__(self, seen: Sequence[int], done: int = 0) -> None:
        self.seen, self.done = list(seen), done

    def join(self, other: Past) -> None:
        """Learn what another knows."""
        self.seen = list(map(max, self.seen, other.seen))
        self.done |= other.done


class Clock(Past):
    """What one atom, one phase of an mbarrier or one effect knows.

    ``fenced[a]``: up to when the writes of atom ``a`` are visible to the async proxy.
    """

    __slots__ = ("before", "fenced")

    def __init__(self, seen: Sequence[int], fenced: Sequence[int], done: int, before: Past) -> None:
        super().__init__(seen, done)
        self.fenced, self.before = list(fenced), Past(before.seen, before.done)

    @classmethod
    def empty(cls, atoms: int) -> Clock:
        """Return the clock of who knows nothing."""
        zeros = [0] * atoms
        return cls(zeros, zeros, 0, Past(zeros))

    def copy(self) -> Clock:
        """Return a clock that goes its own way from here."""
        return Clock(self.seen, self.fenced, self.done, self.before)

    def join(self, other: Past) -> None:
        super().join(other)
        if isinstance(other, Clock):
            self.fenced = list(map(max, self.fenced, other.fenced))
            self.before.join(other.before)


@dataclass(frozen=True, eq=False)
class Mark:
    """An event, as clocks know it: atoms with their times, and the bit of an effect they issued."""

    atoms: tuple[tuple[int, int], ...]
    bit: int = 0

    def known(self, past: Past) -> bool:
        """Say whether the event is over for who knows ``past``."""
        return bool(past.done & self.bit) if self.bit else self.issued(past)

    def issued(self, past: Past) -> bool:
        """Say whether its threads had come that far."""
        return all(past.seen[a] >= time for a, time in self.atoms)

    def fenced(self, clock: Clock) -> bool:
        """Say whether a write by threads is visible to the async proxy."""
        return all(clock.fenced[a] >= time for a, time in self.atoms)


Atoms = range
"""Numbers of neighbouring atoms of one block."""


class Knowledge:
    """The clocks of all atoms of a cluster."""

    def __init__(self, function: ir.Function, blocks: int) -> None:
        self._cuts = cuts(function)
        self._each = len(self._cuts) - 1
        n = self._each * blocks
        single = [b - a == 1 for a, b in zip(self._cuts, self._cuts[1:], strict=False)]
        self._single = single * blocks
        self._times = [0] * n
        self._clocks = [Clock.empty(n) for _ in range(n)]
        self._effects = 0

    def empty(self) -> Clock:
        """Return the clock of who knows nothing."""
        return Clock.empty(len(self._times))

    def atoms(self, rank: int, threads: ir.Threads) -> Atoms:
        """Return the atoms of ``threads`` in the block of a rank."""
        first, last = self._cuts.index(threads.begin), self._cuts.index(threads.end)
        return range(rank * self._each + first, rank * self._each + last)

    def step(self, atoms: Atoms) -> Mark:
        """Begin the next instruction of a group."""
        before = Past(self._clocks[atoms[0]].before.seen)
        for a in atoms:
            before.join(self._clocks[a].before)
            self._times[a] += 1
        for a in atoms:
            before.seen[a] = self._times[a]
        for a in atoms:
            clock = self._clocks[a]
            clock.before = Past(before.seen, before.done)
            if self._single[a]:
                clock.seen[a] = self._times[a]
        return self.mark(atoms)

    def mark(self, atoms: Atoms) -> Mark:
        """Return what the group does now as clocks know it."""
        return Mark(tuple((a, self._times[a]) for a in atoms))

    def effect(self, atoms: Atoms) -> Mark:
        """Return the mark of an effect that the group launches."""
        self._effects += 1
        return Mark(self.mark(atoms).atoms, 1 << self._effects)

    def release(self, atoms: Atoms) -> Clock:
        """Return what is known to one who meets all threads of a group."""
        result = self._clocks[atoms[0]].copy()
        for a in atoms[1:]:
            result.join(self._clocks[a])
        for a in atoms:
            result.seen[a] = self._times[a]
        return result

    def acquire(self, atoms: Atoms, clock: Past) -> None:
        """Let every thread of a group know what ``clock`` does."""
        for a in atoms:
            self._clocks[a].join(clock)

    def acquire_effect(self, atoms: Atoms, mark: Mark, before: Past) -> None:
        """Let every thread of a group know that an effect has completed, and nothing else; it came
        after what is ``before`` it."""
        for a in atoms:
            clock = self._clocks[a]
            clock.done |= mark.bit
            clock.before.join(before)
            clock.before.done |= mark.bit

    def together(self, rank: int) -> Clock:
        """Return what the threads of a block know, all taken together."""
        clocks = self._clocks[rank * self._each : (rank + 1) * self._each]
        result = clocks[0].copy()
        for clock in clocks[1:]:
            result.join(clock)
        return result

    def begun(self, rank: int, clock: Past) -> bool:
        """Say whether somebody who knows that a block has begun has told ``clock``."""
        return any(clock.seen[rank * self._each : (rank + 1) * self._each])

    def fence(self, atoms: Atoms) -> None:
        """Make the writes of a group's threads visible to the async proxy, each its own."""
        for a in atoms:
            self._clocks[a].fenced[a] = self._times[a]

    def common(self, atoms: Atoms) -> Clock:
        """Return what every thread of a group knows."""
        clocks = [self._clocks[a] for a in atoms]
        if len(clocks) == 1:
            return clocks[0].copy()
        return Clock(
            [min(parts) for parts in zip(*(c.seen for c in clocks), strict=True)],
            [min(parts) for parts in zip(*(c.fenced for c in clocks), strict=True)],
            reduce(lambda done, c: done & c.done, clocks, -1),
            clocks[0].before,
        )


def cuts(function: ir.Function) -> list[int]:
    """Return the threads at which atoms begin, and the end of the last."""
    places = {function.threads.begin, function.threads.end}
    for stmt in ir.walk(function.body):
        if isinstance(stmt, ir.Group | ir.Instruction):
            places |= {stmt.threads.begin, stmt.threads.end}
    return sorted(places)

# SPDX-License-Identifier: Apache-2.0
"""Who knows what: happens-before by vector clocks.

The threads of a block fall into *atoms*: runs of threads that no ``Group`` statement of the kernel
takes apart. Each atom of each block of a cluster has one component in every clock. What an engine
does on its own is no point on such a line: it has a bit, set in the clocks of those who know that
it has completed.

A clock holds three things. The *past* in the sense of the memory model: whose accesses are visible.
``over``: whose reads and copies are over; a relaxed arrival tells that, too, and makes nothing
visible. And ``before``, what came before for any reason at all: the instructions of a thread group
follow one another in all its threads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from tilus import ir

Times = tuple[int, ...]
"""A time of every atom."""


class Past(NamedTuple):
    """``seen[a]``: the time of atom ``a`` up to which all is known; ``done``: one bit an effect."""

    seen: Times
    done: int = 0

    def join(self, other: Past) -> Past:
        """Return what both know together."""
        return Past(tuple(map(max, self.seen, other.seen)), self.done | other.done)

    def meet(self, other: Past) -> Past:
        """Return what each of both knows."""
        return Past(tuple(map(min, self.seen, other.seen)), self.done & other.done)


class Clock(NamedTuple):
    """What one atom, one phase of an mbarrier or one effect knows.

    ``seen`` and ``done`` as in :class:`Past`; ``fenced[a]``: up to when the writes of atom ``a``
    are visible to the async proxy. ``over`` grows where threads meet or wait: what a thread has
    asked for since, its own reads as well, need not have come.
    """

    seen: Times
    fenced: Times
    done: int
    over: Past
    before: Past

    @classmethod
    def empty(cls, atoms: int) -> Clock:
        """Return the clock of who knows nothing."""
        zeros = (0,) * atoms
        return cls(zeros, zeros, 0, Past(zeros), Past(zeros))

    def join(self, other: Clock) -> Clock:
        """Return what both know together."""
        return Clock(
            tuple(map(max, self.seen, other.seen)),
            tuple(map(max, self.fenced, other.fenced)),
            self.done | other.done,
            self.over.join(other.over),
            self.before.join(other.before),
        )

    def learn(self, bit: int, before: Past) -> Clock:
        """Return this and that an effect has completed, which came after what is ``before`` it."""
        past = self.before.join(before)
        return self._replace(
            done=self.done | bit,
            over=Past(self.over.seen, self.over.done | bit),
            before=Past(past.seen, past.done | bit),
        )

    def relaxed(self) -> Clock:
        """Return what a relaxed arrival lets others know of this: what is over, and no write."""
        return Clock.empty(len(self.seen))._replace(over=self.over, before=self.before)


@dataclass(frozen=True, eq=False)
class Mark:
    """An event, as clocks know it: atoms with their times, and the bit of an effect they issued."""

    atoms: tuple[tuple[int, int], ...]
    bit: int = 0

    def known(self, past: Past | Clock) -> bool:
        """Say whether the event is over for who knows ``past``."""
        return bool(past.done & self.bit) if self.bit else self.issued(past)

    def issued(self, past: Past | Clock) -> bool:
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
        self._clocks = [Clock.empty(n)] * n
        self._effects = 0
        self._atoms: dict[tuple[int, ir.Threads], Atoms] = {}

    def empty(self) -> Clock:
        """Return the clock of who knows nothing."""
        return Clock.empty(len(self._times))

    def atoms(self, rank: int, threads: ir.Threads) -> Atoms:
        """Return the atoms of ``threads`` in the block of a rank."""
        if (rank, threads) not in self._atoms:
            first, last = self._cuts.index(threads.begin), self._cuts.index(threads.end)
            self._atoms[rank, threads] = range(rank * self._each + first, rank * self._each + last)
        return self._atoms[rank, threads]

    def step(self, atoms: Atoms) -> Mark:
        """Begin the next instruction of a group."""
        for a in atoms:
            self._times[a] += 1
        seen, done = reduce(Past.join, (self._clocks[a].before for a in atoms))
        before = Past(self._now(seen, atoms), done)
        for a in atoms:
            clock = self._clocks[a]
            own = self._now(clock.seen, (a,)) if self._single[a] else clock.seen
            self._clocks[a] = Clock(own, clock.fenced, clock.done, clock.over, before)
        return self.mark(atoms)

    def _now(self, times: Times, atoms: Iterable[int]) -> Times:
        """Return ``times`` with those of some atoms brought to now."""
        new = list(times)
        for a in atoms:
            new[a] = self._times[a]
        return tuple(new)

    def mark(self, atoms: Atoms) -> Mark:
        """Return what the group does now as clocks know it."""
        return Mark(tuple((a, self._times[a]) for a in atoms))

    def effect(self, atoms: Atoms) -> Mark:
        """Return the mark of an effect that the group launches."""
        self._effects += 1
        return Mark(self.mark(atoms).atoms, 1 << self._effects)

    def release(self, atoms: Atoms) -> Clock:
        """Return what is known to one who meets all threads of a group."""
        clock = self._joined(atoms)
        seen = self._now(clock.seen, atoms)
        return clock._replace(seen=seen, over=clock.over.join(Past(seen, clock.done)))

    def relaxed(self, atoms: Atoms) -> Clock:
        """Return what is known to one who sees that all threads of a group have arrived, each by a
        relaxed arrival."""
        return self._joined(atoms).relaxed()

    def _joined(self, atoms: Atoms) -> Clock:
        return reduce(Clock.join, self._clocks[atoms.start : atoms.stop])

    def acquire(self, atoms: Atoms, clock: Clock) -> None:
        """Let every thread of a group know what ``clock`` does."""
        for a in atoms:
            self._clocks[a] = self._clocks[a].join(clock)

    def acquire_effect(self, atoms: Atoms, mark: Mark, before: Past) -> None:
        """Let every thread of a group know that an effect has completed, and nothing else; it came
        after what is ``before`` it."""
        for a in atoms:
            self._clocks[a] = self._clocks[a].learn(mark.bit, before)

    def together(self, rank: int) -> Clock:
        """Return what the threads of a block know, all taken together."""
        return reduce(Clock.join, self._clocks[rank * self._each : (rank + 1) * self._each])

    def begun(self, rank: int, clock: Clock) -> bool:
        """Say whether somebody who knows that a block has begun has told ``clock``."""
        return any(clock.seen[rank * self._each : (rank + 1) * self._each])

    def fence(self, atoms: Atoms) -> None:
        """Make the writes of a group's threads visible to the async proxy, each its own."""
        for a in atoms:
            clock = self._clocks[a]
            self._clocks[a] = clock._replace(fenced=self._now(clock.fenced, (a,)))

    def common(self, atoms: Atoms) -> Clock:
        """Return what every thread of a group knows."""
        first, *others = self._clocks[atoms.start : atoms.stop]
        if not others:
            return first
        return Clock(
            tuple(map(min, first.seen, *(c.seen for c in others))),
            tuple(map(min, first.fenced, *(c.fenced for c in others))),
            reduce(int.__and__, (c.done for c in others), first.done),
            reduce(Past.meet, (c.over for c in others), first.over),
            first.before,
        )


def cuts(function: ir.Function) -> list[int]:
    """Return the threads at which atoms begin, and the end of the last."""
    places = {function.threads.begin, function.threads.end}
    for stmt in ir.walk(function.body):
        if isinstance(stmt, ir.Group | ir.Instruction):
            places |= {stmt.threads.begin, stmt.threads.end}
    return sorted(places)

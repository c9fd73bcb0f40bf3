# SPDX-License-Identifier: Apache-2.0
"""Shadow memory: who last wrote and who has read since, for every byte of shared memory and every
element of device memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilus.simulator.access import Access

Conflict = tuple[Access, str]
"""An earlier access, and what is missing between it and a later one."""
Interval = tuple[int, int]
"""Bytes from the first up to, not including, the second."""


@dataclass(eq=False)
class _Cell:
    """Bytes with one history."""

    written: Access | None = None
    read: list[Access] = field(default_factory=list)

    def copy(self) -> _Cell:
        return _Cell(self.written, list(self.read))

    def conflict(self, access: Access) -> Conflict | None:
        """Return the first earlier access that is not ordered before this one, and what is
        missing."""
        earlier = self.read if access.kind == "write" else []
        for other in (*earlier, *([self.written] if self.written else [])):
            missing = access.conflicts(other)
            if missing:
                early = other.kind == "read" and self.written is None
                return other, (access.unawaited(other) if early else None) or missing
        return None

    def add(self, access: Access) -> None:
        """Enter an access that conflicts with none."""
        if access.kind == "write":
            self.written, self.read = access, []
        else:
            self.read = [r for r in self.read if not _covers(access, r)] + [access]


def _covers(later: Access, earlier: Access) -> bool:
    """Say whether who is ordered after the later read is after the earlier one too."""
    new, old = later.agent, earlier.agent
    if new.engine or old.engine or earlier.owners is not later.owners:
        return old.mark.known(new.clock.over)
    return [a for a, _ in new.mark.atoms] == [a for a, _ in old.mark.atoms]


class Shadow:
    """The histories of the bytes of one block's shared memory, cut where accesses begin and end."""

    def __init__(self, nbytes: int) -> None:
        self._starts = [0, nbytes]
        self._cells = [_Cell(), _Cell()]

    def enter(self, access: Access, where: Iterable[Interval]) -> Conflict | None:
        """Check an access against those before it and remember it; return a conflict."""
        cells = [cell for interval in where for cell in self._between(*interval)]
        for cell in cells:
            conflict = cell.conflict(access)
            if conflict:
                return conflict
        for cell in cells:
            cell.add(access)
        return None

    def _between(self, begin: int, end: int) -> Iterator[_Cell]:
        first, last = self._cut(begin), self._cut(end)
        yield from self._cells[first:last]

    def _cut(self, at: int) -> int:
        """Let a cell begin at a byte; return its number."""
        i = bisect_right(self._starts, at) - 1
        if self._starts[i] == at:
            return i
        self._starts.insert(i + 1, at)
        self._cells.insert(i + 1, self._cells[i].copy())
        return i + 1


class GlobalShadow:
    """The histories of the elements of one array in device memory.

    ``written`` holds the number of the last write, ``read`` that of the set of reads since; 0 is
    none. Both are arrays, so that a box of them is a view like the box itself.
    """

    def __init__(self, size: int) -> None:
        self.written, self.read = np.zeros(size, np.int32), np.zeros(size, np.int32)
        self._accesses: list[Access] = []
        self._sets: list[frozenset[int]] = [frozenset()]
        self._numbers = {frozenset[int](): 0}

    def enter(self, access: Access, written: NDArray[Any], read: NDArray[Any]) -> Conflict | None:
        """Check an access of a box against those before it and remember it; return a conflict."""
        earlier = set(_values(written)) - {0}
        if access.kind == "write":
            earlier |= {n for number in _values(read) for n in self._sets[number]}
        for number in sorted(earlier):
            missing = access.conflicts(self._accesses[number - 1])
            if missing:
                return self._accesses[number - 1], missing
        self._accesses.append(access)
        if access.kind == "write":
            written[...], read[...] = len(self._accesses), 0
        else:
            self._add(read)
        return None

    def _add(self, read: NDArray[Any]) -> None:
        """Let the latest access be among the reads of a box."""
        new, before = len(self._accesses), _values(read)
        known = np.zeros(len(self._sets), np.int32)
        for number in before:
            known[number] = self._number(self._sets[number], new)
        read[...] = known[read]

    def _number(self, before: frozenset[int], new: int) -> int:
        """Return the number of a set of reads with one more, without those it makes needless."""
        latest = self._accesses[new - 1]
        kept = (n for n in before if not self._replaces(latest, self._accesses[n - 1]))
        reads = frozenset({*kept, new})
        if reads not in self._numbers:
            self._numbers[reads] = len(self._sets)
            self._sets.append(reads)
        return self._numbers[reads]

    @staticmethod
    def _replaces(later: Access, earlier: Access) -> bool:
        return later.agent.cluster is earlier.agent.cluster and _covers(later, earlier)


def _values(numbers: NDArray[Any]) -> list[int]:
    """Return the different values in an array."""
    first = numbers.flat[0]
    return [int(first)] if (numbers == first).all() else np.unique(numbers).tolist()

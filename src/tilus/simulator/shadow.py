# SPDX-License-Identifier: Apache-2.0
"""Shadow memory: who last wrote and who has read since, for every byte of shared memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tilus.simulator.access import Access

Interval = tuple[int, int]
"""Bytes from the first up to, not including, the second."""


@dataclass(eq=False)
class _Cell:
    """Bytes with one history."""

    written: Access | None = None
    read: list[Access] = field(default_factory=list)

    def copy(self) -> _Cell:
        return _Cell(self.written, list(self.read))

    def conflict(self, access: Access) -> tuple[Access, str] | None:
        """Return the first earlier access that is not ordered before this one, and what is
        missing."""
        earlier = self.read if access.kind == "write" else []
        for other in (*earlier, *([self.written] if self.written else [])):
            missing = access.conflicts(other)
            if missing:
                return other, missing
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
        return old.mark.known(new.clock)
    return [a for a, _ in new.mark.atoms] == [a for a, _ in old.mark.atoms]


class Shadow:
    """The histories of the bytes of one block's shared memory, cut where accesses begin and end."""

    def __init__(self, nbytes: int) -> None:
        self._starts = [0, nbytes]
        self._cells = [_Cell(), _Cell()]

    def enter(self, access: Access, where: Iterable[Interval]) -> tuple[Access, str] | None:
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

# SPDX-License-Identifier: Apache-2.0
"""Which threads agree on a variable.

Every thread has its own copy of a variable. An assignment inside a thread group changes the copies
of that group, and is over with it: a later read, in this turn of a loop or the next, is right only
where none of the reading threads was in the group. Anything else would make a scalar differ within
a group, which the language does not have.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tilus import ir
from tilus.errors import LanguageError, Location
from tilus.frontend.scopes import Region

Storage = ir.Var | ir.RegisterTensor
Groups = tuple[object, ...]


@dataclass(frozen=True)
class Access:
    """One read or write of a variable; a ``certain`` write happens in every run of its scope.

    ``groups``: the thread groups around it, innermost last.
    """

    kind: Literal["read", "write"]
    storage: Storage
    region: Region
    groups: Groups
    location: Location
    certain: bool = False

    def sees(self, write: Access) -> bool:
        """Return whether a read takes place inside the group that wrote."""
        return not write.groups or write.groups[-1] in self.groups


class Divergence:
    """Watches reads and writes in source order; a loop's are replayed, as its next turn would."""

    def __init__(self) -> None:
        self._writers: dict[Storage, list[Access]] = {}
        self._log: list[Access] = []

    def record(self, access: Access) -> None:
        """Take note of an access; :class:`LanguageError` where the reading threads may disagree."""
        self._log.append(access)
        self._apply(access)

    def mark(self) -> int:
        """Return a position in the log, for :meth:`replay`."""
        return len(self._log)

    def replay(self, mark: int, groups: Groups) -> None:
        """Go through the accesses since ``mark`` once more, as the next turn of a loop does.

        ``groups`` are around the loop; those inside it are other ones in every turn.
        """
        for writers in self._writers.values():
            writers[:] = [_past(w, groups) for w in writers]
        for access in self._log[mark:]:
            self._apply(access)

    def _apply(self, access: Access) -> None:
        writers = self._writers.setdefault(access.storage, [])
        if access.kind == "read":
            self._check(access, writers)
            return
        if access.certain:
            writers[:] = [w for w in writers if not access.region.contains(w.region)]
        writers.append(access)

    @staticmethod
    def _check(read: Access, writers: list[Access]) -> None:
        for write in writers:
            if write.region.overlaps(read.region) and not read.sees(write):
                raise LanguageError(
                    f"'{read.storage.name}' differs between the threads that read it here "
                    f"({read.region.threads.role}): only the group of {name(write.region)} "
                    f"assigned it at line {write.location.line}; assign it where it is read, or "
                    "use another variable",
                    read.location,
                )


def _past(write: Access, open_groups: Groups) -> Access:
    """Return a write as the next turn sees it: by a group that is over."""
    outer, inner = write.groups[: len(open_groups)], write.groups[len(open_groups) :]
    return replace(write, groups=(*outer, object())) if inner and outer == open_groups else write


def name(region: Region) -> str:
    """Name the threads of a region in a message."""
    return f"one thread of {region.reach.role}" if region.elected_from else region.threads.role

# SPDX-License-Identifier: Apache-2.0
"""Which threads agree on a variable.

Every thread has its own copy of a variable. An assignment inside a thread group changes the copies
of that group only; a later read is right where all reading threads took part, or none of them did.
Anything else would make a scalar differ within a group, which the language does not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilus import ir
from tilus.errors import LanguageError, Location
from tilus.frontend.scopes import Region

Storage = ir.Var | ir.RegisterTensor


@dataclass(frozen=True)
class Access:
    """One read or write of a variable; a ``certain`` write happens in every run of its scope."""

    kind: Literal["read", "write"]
    storage: Storage
    region: Region
    location: Location
    certain: bool = False


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

    def replay(self, mark: int) -> None:
        """Go through the accesses since ``mark`` once more, as the next turn of a loop does."""
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
            if write.region.overlaps(read.region) and not write.region.contains(read.region):
                raise LanguageError(
                    f"'{read.storage.name}' differs between the threads that read it here "
                    f"({read.region.threads.role}): only {name(write.region)} assigned it at line "
                    f"{write.location.line}; assign it where it is read, or use another variable",
                    read.location,
                )


def name(region: Region) -> str:
    """Name the threads of a region in a message."""
    return f"one thread of {region.reach.role}" if region.elected_from else region.threads.role

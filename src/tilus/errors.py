# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, and how it is said.

::

    TilusError
    ├── LanguageError     the kernel's source breaks a rule of the language (place and caret)
    ├── ArgumentError     a value given by the caller breaks a rule (dtype, pitch, ...)
    ├── CompileError      NVRTC or ptxas refused the kernel, or made code we refuse
    ├── DeviceError       GPU, driver or a CUDA library missing, too old, or failing
    └── SimulationError   the simulator's verdict: deadlock, race, protocol, not modelled

Every message says what was found, which rule it breaks and what to do instead.
"""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Location:
    """A place in a kernel's source: 1-based ``line``, 0-based ``column`` as in :mod:`ast`."""

    file: str
    line: int
    column: int = 0
    end_column: int | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def excerpt(self) -> str:
        """Return the source line with carets below the marked columns, or '' if there is no
        source."""
        text = linecache.getline(self.file, self.line).rstrip("\n")
        if not text:
            return ""
        end = self.end_column if self.end_column and self.end_column > self.column else None
        width = (end or self.column + 1) - self.column
        return f"    {text}\n    {' ' * self.column}{'^' * max(1, width)}"


class TilusError(Exception):
    """Base of every error this package raises on purpose."""


def told(error: BaseException) -> str:
    """Return what an error says, and its notes: from where an inlined method was called."""
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


class LanguageError(TilusError):
    """The kernel's source breaks a rule of the language.

    ``LanguageError("num_threads must be a multiple of 32, got 48", location)``
    """

    def __init__(self, message: str, location: Location | None = None) -> None:
        self.message, self.location = message, location
        if location is None:
            super().__init__(message)
        else:
            excerpt = location.excerpt()
            super().__init__(f"{location}: {message}" + (f"\n{excerpt}" if excerpt else ""))


class ArgumentError(TilusError, ValueError):
    """A value given by the caller breaks a rule; nothing was launched, changed or cached."""

    def __init__(self, argument: str, rule: str, value: object, remedy: str) -> None:
        self.argument, self.rule, self.value, self.remedy = argument, rule, value, remedy
        super().__init__(f"{argument} must be {rule}, got {value}. {remedy}")


class CompileError(TilusError):
    """NVRTC or ptxas refused the kernel, or produced code that we refuse (spills, serialised
    WGMMA)."""


class DeviceError(TilusError):
    """The GPU, the driver or a CUDA library is missing, too old, or reports a failure.

    ``found``, ``needed`` and ``mend``, where known, are lines of the message below its first.
    ``absent``: there is no driver or no GPU at all, rather than one that fails. ``hangs``: what the
    waits of a kernel said that the watchdog stopped.
    """

    def __init__(
        self,
        message: str,
        found: str = "",
        needed: str = "",
        mend: str = "",
        absent: bool = False,
        hangs: Sequence[object] = (),
    ) -> None:
        self.hangs = tuple(hangs)
        self.found, self.needed, self.mend, self.absent = found, needed, mend, absent
        rows = {"found": found, "needed": needed, "mend": mend}
        super().__init__("\n".join([message, *(f"{k}: {v}" for k, v in rows.items() if v)]))


class SimulationError(TilusError):
    """The simulator's verdict on a kernel.

    ``verdict`` is ``"deadlock"``, ``"race"``, ``"protocol"`` or ``"not modelled"``; ``facts`` holds
    what the message says in a form that tests and pages can use (role, block, barrier, stage,
    phase, ...).
    """

    def __init__(self, verdict: str, message: str, **facts: object) -> None:
        self.verdict, self.facts = verdict, facts
        super().__init__(f"{verdict}: {message}")

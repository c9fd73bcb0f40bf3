# SPDX-License-Identifier: Apache-2.0
"""What a simulated kernel did when: events and barrier states that the simulator records and the
timeline shows."""

from __future__ import annotations

from dataclasses import dataclass

from tilus.errors import Location

Block = tuple[int, int, int]


@dataclass(frozen=True)
class Region:
    """Bytes ``begin`` up to ``end`` of a shared buffer."""

    buffer: str
    begin: int
    end: int

    def overlaps(self, other: Region) -> bool:
        """Return whether one byte is in both."""
        same = self.buffer == other.buffer
        return same and self.begin < other.end and other.begin < self.end


@dataclass(frozen=True)
class Event:
    """One thing that took from ``start`` to ``end``, in cycles since its block began.

    ``lane`` is the role of the threads (``warps 0-3``) or the engine (``TMA engine``, ``tensor
    cores``, ``bulk stores``). ``kind`` is ``"issue"``, ``"wait"``, ``"sync"``, ``"copy"``,
    ``"compute"``, ``"load"`` or ``"store"``. What an engine does was asked for at ``issued`` by
    ``issuer``, and starts when the engine is free. ``amount`` is the FLOP of a product, else bytes.

    ``barrier`` names the mbarrier that takes part (``full[2]``) and ``phase`` the phase of it that
    the event belongs to: the one that an arrival or a copy counts in, the one whose end a wait
    waits for (-1 is the phase before the first). ``reads`` and ``writes`` are parts of shared
    memory.

    ``stage`` is the barrier's index. ``tile`` counts the fills of shared memory through barriers:
    the fill that a copy belongs to, or whose data an event reads. In a matmul it is the number of
    the K tile. An event that reads a fill has the fill's stage.
    """

    lane: str
    kind: str
    start: float
    end: float
    what: str
    location: Location
    block: Block
    barrier: str | None = None
    stage: int | None = None
    phase: int | None = None
    tile: int | None = None
    amount: float = 0
    issued: float | None = None
    issuer: str | None = None
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()


@dataclass(frozen=True)
class BarrierState:
    """What an mbarrier holds from ``time`` on: its phase, and what the phase still lacks.

    ``cause`` is ``"init"``, ``"arrive"``, ``"expect"`` (an arrival that announces bytes) or
    ``"bytes"`` (some have come). What completes a phase gives two states: nothing pending, then the
    next phase with all its arrivals pending; ``cause`` of the second is ``"phase"``.
    """

    time: float
    array: str
    index: int
    phase: int
    arrivals: int
    bytes: int
    cause: str
    block: Block

    @property
    def label(self) -> str:
        """The barrier as a kernel names it, and as events do."""
        return f"{self.array}[{self.index}]"

# SPDX-License-Identifier: Apache-2.0
"""mbarriers, with the semantics of PTX: phases, pending arrivals, pending bytes.

The current phase is over as soon as no arrival and no byte is pending; the barrier then begins the
next phase with its full count. A wait for a parity returns when the phase of that parity is over:
on a fresh barrier parity 1 passes, 0 blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from tilus import ir

MAX_BYTES = 2**20 - 1  # range of the transaction count, PTX "mbarrier: tx-count"

Fail = Callable[..., NoReturn]
Watch = Callable[["MBarrier", str], None]
"""Is told of a barrier's new state, and by a word why it changed; see :class:`ir.BarrierState`."""


@dataclass(frozen=True)
class Signal:
    """What an event has to do with a barrier: the phase it belongs to, of one of ``length``."""

    label: str
    index: int
    phase: int
    length: int

    @property
    def tile(self) -> int | None:
        """Number of the fill of the ring that this phase is; None before the first."""
        return self.phase * self.length + self.index if self.phase >= 0 else None


@dataclass(frozen=True, eq=False)
class IssuedBarrier(ir.Barrier):
    """A barrier with its index computed, and its phase when a signal to it was issued."""

    phase: int = 0


@dataclass(eq=False)
class MBarrier:
    """The state of one mbarrier; ``fail("protocol", message, **facts)`` raises the verdict.

    ``watch`` is told of every change, the initial state included.
    """

    name: str
    index: int
    count: int
    fail: Fail
    watch: Watch = lambda barrier, cause: None
    phase: int = 0
    bytes: int = 0
    pending: int = field(init=False)

    def __post_init__(self) -> None:
        self.pending = self.count
        self.watch(self, "init")

    @property
    def label(self) -> str:
        """The barrier as a kernel names it."""
        return f"{self.name}[{self.index}]"

    def arrive(self, count: int, expect_bytes: int = 0) -> None:
        """Announce bytes, then count arrivals."""
        self.bytes += expect_bytes
        if count > self.pending:
            self._break(
                f"too many arrivals at {self.label}: {count} come, phase {self.phase} lacks "
                f"{self.pending} of {self.count}",
                arrivals=count,
            )
        if self.bytes > MAX_BYTES:
            self._break(f"{self.label} must expect at most {MAX_BYTES} bytes, got {self.bytes}")
        self.pending -= count
        self.watch(self, "expect" if expect_bytes else "arrive")
        self._advance()

    def complete(self, nbytes: int, issued_in: int) -> None:
        """Take bytes off the current phase; their copy was issued in phase ``issued_in``."""
        if self.phase != issued_in:
            self._break(
                f"bytes left over at {self.label}: {nbytes} bytes of a copy issued in phase "
                f"{issued_in} come in phase {self.phase}; phase {issued_in} expected fewer bytes "
                "than its copies carry",
                bytes=nbytes,
            )
        self.bytes -= nbytes
        self.watch(self, "bytes")
        self._advance()

    def over(self, parity: int) -> bool:
        """Say whether the phase of ``parity`` is over."""
        return self.phase % 2 != parity

    def awaited(self, parity: int) -> int:
        """Return the phase that a wait for ``parity`` waits for: this one, or the last one."""
        return self.phase if self.phase % 2 == parity else self.phase - 1

    def facts(self) -> dict[str, object]:
        """Return the state in a form that tests and pages can use."""
        return {
            "barrier": self.name,
            "index": self.index,
            "phase": self.phase,
            "arrivals_pending": self.pending,
            "arrivals_expected": self.count,
            "bytes_pending": self.bytes,
        }

    def lacks(self) -> str:
        """Say what the current phase still needs."""
        arrivals = f"{self.pending} of {self.count} arrivals"
        return f"phase {self.phase} lacks {arrivals} and {self.bytes} bytes"

    def _advance(self) -> None:
        if self.pending == 0 and self.bytes < 0:
            self._break(
                f"bytes left over at {self.label}: {-self.bytes} more have come than were expected"
            )
        if self.pending == 0 and self.bytes == 0:
            self.phase += 1
            self.pending = self.count
            self.watch(self, "phase")

    def _break(self, message: str, **facts: object) -> NoReturn:
        self.fail("protocol", message, **(self.facts() | facts))


@dataclass
class ThreadBarrier:
    """A barrier of ``count`` threads; ``generation`` counts how often all have come."""

    count: int
    come: int = 0
    generation: int = 0

    def arrive(self, count: int) -> int:
        """Let ``count`` threads come; return the generation that they wait to be over."""
        generation = self.generation
        self.come += count
        if self.come >= self.count:
            self.come -= self.count
            self.generation += 1
        return generation

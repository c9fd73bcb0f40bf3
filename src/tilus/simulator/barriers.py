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
from tilus.simulator.access import Agent
from tilus.simulator.clocks import Clock

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
    """A barrier with its index computed, and its phase when a signal to it was issued.

    ``rank``: the block of the cluster that it belongs to.
    """

    phase: int = 0
    rank: int = 0


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
    released: dict[int, Clock] = field(default_factory=dict)
    """What those who arrived in a phase knew, for the phases that a wait can still be for."""
    peers: dict[int, Agent] = field(default_factory=dict)
    """One who arrived in a phase from another block, for the same phases."""
    waits: dict[Agent, int] = field(default_factory=dict)
    """Who waits, and for the end of which phase."""

    def __post_init__(self) -> None:
        self.pending = self.count
        self.watch(self, "init")

    @property
    def label(self) -> str:
        """The barrier as a kernel names it."""
        return f"{self.name}[{self.index}]"

    def release(self, clock: Clock) -> None:
        """Let those who wait for the current phase know what ``clock`` does."""
        before = self.released.get(self.phase)
        self.released[self.phase] = before.join(clock) if before else clock

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
            "stage": self.index,
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
            self.released.pop(self.phase - 3, None)
            self.peers.pop(self.phase - 3, None)
            self.watch(self, "phase")
            self._check_waits()

    def _check_waits(self) -> None:
        """Refuse to go on where somebody has not yet seen the phase before the last one end."""
        for agent, awaited in self.waits.items():
            if self.phase - awaited > 1:
                self._break(
                    f"the wait at {agent.location} by {agent.role} lapses: it is for phase "
                    f"{awaited} of {self.label}, and phase {awaited + 1} ends before it passes",
                    waits={"file": agent.location.file, "line": agent.location.line,
                           "role": agent.role, "phase": awaited},
                )  # fmt: skip

    def _break(self, message: str, **facts: object) -> NoReturn:
        self.fail("protocol", message, **(self.facts() | facts))


@dataclass
class ThreadBarrier:
    """A barrier of ``count`` threads; ``generation`` counts how often all have come.

    Threads that have ended count no more (PTX ISA, "barrier.cluster": all non-exited threads), and
    let nobody know anything. ``released`` is what those who came knew together, by generation;
    dropped once all have left.
    """

    count: int
    come: int = 0
    generation: int = 0
    released: dict[int, Clock] = field(default_factory=dict)

    def arrive(self, count: int, clock: Clock | None = None) -> int:
        """Let ``count`` threads come; return the generation that they wait to be over."""
        generation = self.generation
        if clock is not None:
            before = self.released.get(generation)
            self.released[generation] = before.join(clock) if before else clock
        self.come += count
        self._advance()
        return generation

    def leave(self, count: int) -> None:
        """Let ``count`` threads end: nobody waits for them any more."""
        self.count -= count
        self._advance()

    def _advance(self) -> None:
        if self.come and self.come >= self.count:
            self.come -= self.count
            self.generation += 1
            self.released.pop(self.generation - 2, None)

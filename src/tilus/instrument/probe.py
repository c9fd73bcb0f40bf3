# SPDX-License-Identifier: Apache-2.0
"""What an instruction would do, asked of the instruction itself.

Its ``simulate`` is run once on a machine that has no memory and only takes notes: so a build that
records needs no list of instructions.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from tilus import ir
from tilus.simulator.schedule import Work


@dataclass(eq=False)
class Task:
    """What an engine is asked for: its bytes or FLOP, and the tiles it reads and writes."""

    engine: str
    amount: float
    what: str
    reads: list[ir.SharedTensor] = field(default_factory=list)
    writes: list[ir.SharedTensor] = field(default_factory=list)


@dataclass(eq=False)
class Facts:
    """What one instruction does, where that does not depend on run-time values.

    ``kind`` and ``amount`` are those of its event. ``arrivals`` and ``announced`` (bytes, None
    where a run-time value) count at ``barrier``; ``commits`` names the engine whose tasks it closes
    into a group, ``awaits`` one and how many groups may go on. ``remote``: other blocks of the
    cluster are signalled.
    """

    kind: str = "issue"
    amount: float = 0
    barrier: ir.Barrier | None = None
    arrivals: int = 0
    announced: int | None = 0
    tasks: list[Task] = field(default_factory=list)
    commits: str | None = None
    awaits: tuple[str, int] | None = None
    remote: bool = False
    reads: list[ir.SharedTensor] = field(default_factory=list)
    writes: list[ir.SharedTensor] = field(default_factory=list)

    @property
    def tiles(self) -> list[ir.SharedTensor]:
        """All tiles of shared memory that it, or what it asks for, reads or writes; each once."""
        parts: list[Facts | Task] = [self, *self.tasks]
        return list(dict.fromkeys(t for part in parts for t in (*part.reads, *part.writes)))


class _Unknown(Exception):
    """The instruction is not modelled."""


def ask(stmt: ir.Instruction) -> Facts:
    """Return the facts of an instruction; those of one that is not modelled say nothing."""
    probe = Probe(stmt.threads)
    try:
        with contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
            wait = stmt.simulate(probe)
            for task, land in probe.landing:
                probe.note = task
                land()
    except _Unknown:
        return Facts()
    facts, work = probe.facts, probe.work
    facts.kind, facts.amount = wait.kind if wait else work.kind, work.amount
    return facts


class Probe:
    """Implements :class:`tilus.ir.Machine`: tiles are zeros, run-time numbers are ones."""

    rank = -1  # no number of another block

    def __init__(self, threads: ir.Threads) -> None:
        self.threads = threads
        self.facts, self.work = Facts(), Work()
        self.landing: list[tuple[Task, Callable[[], None]]] = []
        self.note: Facts | Task = self.facts
        self._constant = True  # all numbers asked for so far are compile-time values

    def __getattr__(self, name: str) -> Any:
        """Let what the simulator's machine is told besides pass unnoted."""
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None

    def value(self, x: ir.ExprLike) -> ir.Scalar:
        if isinstance(x, ir.Const):
            return x.value
        if not isinstance(x, ir.Expr):
            return x
        self._constant = False
        return 1

    def fail(self, verdict: str, message: str, **facts: object) -> NoReturn:
        raise _Unknown

    def registers(self, tensor: ir.RegisterTensor) -> Any:
        return np.zeros(tensor.shape, tensor.dtype.numpy)

    def multiply(self, flop: float) -> None:
        self.work.flop += flop

    def load_shared(
        self, tensor: ir.SharedTensor, proxy: str = "generic", **options: object
    ) -> Any:
        self._touch(self.note.reads, self.work.reads, tensor)
        return np.zeros(tensor.shape, tensor.dtype.numpy)

    def store_shared(
        self, tensor: ir.SharedTensor, values: Any, proxy: str = "generic", **options: object
    ) -> None:
        self._touch(self.note.writes, self.work.writes, tensor)

    def _touch(
        self, noted: list[ir.SharedTensor], done: list[ir.Region], tensor: ir.SharedTensor
    ) -> None:
        noted.append(tensor)
        if self.note is self.facts:
            self.work.shared += tensor.nbytes
            done.append(ir.Region(tensor.name, 0, tensor.nbytes))

    def load_global(
        self, view: ir.GlobalTensor, offsets: Any, shape: tuple[int, ...], **options: object
    ) -> Any:
        values = np.zeros(shape, view.dtype.numpy)
        if self.note is self.facts:
            self.work.loaded += values.nbytes
        return values

    def store_global(
        self, view: ir.GlobalTensor, offsets: Any, values: Any, **options: object
    ) -> None:
        if self.note is self.facts:
            self.work.stored += values.nbytes

    def freeze(self, tensor: ir.SharedTensor, kind: str, **options: object) -> ir.SharedTensor:
        return tensor

    def freeze_barrier(self, barrier: ir.Barrier, *, rank: int | None = None) -> ir.Barrier:
        self._at(barrier, rank)
        return barrier

    def arrive(
        self,
        barrier: ir.Barrier,
        count: int,
        expect_bytes: int = 0,
        *,
        rank: int | None = None,
        **options: object,
    ) -> None:
        self._at(barrier, rank)
        self.facts.arrivals = count
        self.facts.announced = expect_bytes if self._constant else None

    def _at(self, barrier: ir.Barrier, rank: int | None) -> None:
        self.facts.barrier = barrier
        self.facts.remote |= rank not in (None, self.rank)

    def wait_barrier(self, barrier: ir.Barrier, parity: int, *, cluster: bool = False) -> ir.Wait:
        self.facts.barrier = barrier
        return _wait("wait")

    def wait_threads(self, threads: ir.Threads) -> ir.Wait:
        return _wait("sync")

    def wait_cluster(self) -> ir.Wait:
        return _wait("sync")

    def launch(
        self,
        engine: str,
        land: Callable[[], None],
        *,
        amount: float,
        what: str,
        then: Callable[[], None] | None = None,
    ) -> None:
        task = Task(engine, amount, what)
        self.facts.tasks.append(task)
        self.landing.append((task, land))

    def commit(self, engine: str) -> None:
        self.facts.commits = engine

    def wait_commits(self, engine: str, pending: int, *, read: bool = False) -> ir.Wait:
        self.facts.awaits = None if read else (engine, pending)  # read: the store itself goes on
        return _wait("wait")


def _wait(kind: str) -> ir.Wait:
    return ir.Wait(lambda: True, str, kind)

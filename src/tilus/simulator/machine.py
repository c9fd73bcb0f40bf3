# SPDX-License-Identifier: Apache-2.0
"""The machine that instructions speak to: a thread block with its memory, barriers and engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from tilus import ir
from tilus.errors import Location, SimulationError
from tilus.simulator.barriers import IssuedBarrier, MBarrier, Signal, ThreadBarrier
from tilus.simulator.engines import Effect, EffectWait, Engines
from tilus.simulator.group import Block, ThreadGroup
from tilus.simulator.memory import Geometry, GlobalMemory, SharedMemory
from tilus.simulator.schedule import Schedule, Work

Array = NDArray[Any]
WatchAt = Callable[[float, MBarrier, str], None]
"""Is told when, which and why a barrier changed."""


class BlockMachine:
    """Implements :class:`tilus.ir.Machine` for one block, on behalf of ``group``."""

    def __init__(
        self,
        plan: ir.Plan,
        memory: GlobalMemory,
        schedule: Schedule,
        block: Block,
        watch: WatchAt,
    ) -> None:
        self.block = block
        self.work = Work()
        self.signal: Signal | None = None
        self.engines = Engines()
        self.barriers: dict[ir.BarrierArray, list[MBarrier]] = {}
        self.threads: ir.Threads
        self.group: ThreadGroup
        self.location: Location
        self._schedule, self._watch, self._now = schedule, watch, 0.0
        self._shared = SharedMemory(plan)
        self._global = memory
        self._thread_barriers: dict[ir.Threads, ThreadBarrier] = {}
        self._issued: list[IssuedBarrier] = []
        self._launched = 0

    def enter(self, group: ThreadGroup, location: Location, now: float | None = None) -> None:
        """Act for ``group`` from here on, with nothing charged yet; by default, at its time."""
        self.group, self.threads, self.location = group, group.threads, location
        self.work, self.signal, self._issued = Work(), None, []
        self._now = group.time if now is None else now

    def fail(self, verdict: str, message: str, **facts: object) -> NoReturn:
        """Raise the verdict with the place, the role and the block."""
        raise SimulationError(
            verdict,
            f"{self.location}: {self.threads.role} of block {self.block}: {message}",
            **(self.context() | facts),
        )

    def context(self) -> dict[str, object]:
        """Return who acts and where, for the facts of a verdict."""
        place = self.location
        role, file, line = self.threads.role, place.file, place.line
        return {"role": role, "file": file, "line": line, "block": self.block}

    # Scalars and registers

    def value(self, x: ir.ExprLike) -> ir.Scalar:
        return self.group.value(x)

    def registers(self, tensor: ir.RegisterTensor) -> Array:
        return self.group.tile(tensor)

    def define(self, tensor: ir.RegisterTensor, values: Array) -> None:
        with np.errstate(over="ignore"):  # a conversion that overflows gives infinity, as cvt does
            self.group.tile(tensor)[...] = values

    def multiply(self, flop: float) -> None:
        self.work.flop += flop

    # Memory

    def load_shared(self, tensor: ir.SharedTensor, proxy: str = "generic") -> Array:
        offset = self._offset(tensor)
        self.work.shared += tensor.nbytes
        self.work.reads.append(_region(tensor, offset))
        return self._shared.read(tensor, offset)

    def store_shared(self, tensor: ir.SharedTensor, values: Array, proxy: str = "generic") -> None:
        offset = self._offset(tensor)
        self.work.shared += tensor.nbytes
        self.work.writes.append(_region(tensor, offset))
        self._shared.write(tensor, offset, values)

    def load_global(
        self, view: ir.GlobalTensor, offsets: list[int], shape: tuple[int, ...]
    ) -> Array:
        values = self._global.read(view, self._geometry(view, offsets), shape)
        self.work.loaded += values.nbytes
        return values

    def store_global(self, view: ir.GlobalTensor, offsets: list[int], values: Array) -> None:
        self.work.stored += values.nbytes
        self._global.write(view, self._geometry(view, offsets), values)

    def freeze(self, tensor: ir.SharedTensor) -> ir.SharedTensor:
        return replace(tensor, offset=ir.as_expr(self._offset(tensor)))

    def _offset(self, tensor: ir.SharedTensor) -> int:
        offset, size = int(self.value(tensor.offset)), tensor.nbytes // tensor.dtype.nbytes
        room = tensor.buffer.nbytes // tensor.dtype.nbytes
        if not 0 <= offset <= room - size:
            self.fail("protocol", f"index of {tensor.name} out of range", name=tensor.name)
        return offset

    def _geometry(self, view: ir.GlobalTensor, offsets: Sequence[int]) -> Geometry:
        shape = [int(self.value(n)) for n in view.shape]
        return Geometry(shape, [int(self.value(s)) for s in view.strides], offsets)

    # Barriers

    def init_barriers(self, barrier: ir.Barrier) -> None:
        array = barrier.array
        self.barriers[array] = [
            MBarrier(array.name, i, count, self.fail, self._changed)
            for i, count in enumerate(array.counts)
        ]

    def arrive(self, barrier: ir.Barrier, count: int, expect_bytes: int = 0) -> None:
        target = self._barrier(barrier)
        self._signal(barrier, target, target.phase)
        target.arrive(count, expect_bytes)

    def complete_bytes(self, barrier: ir.Barrier, nbytes: int) -> None:
        target = self._barrier(barrier)
        issued_in = barrier.phase if isinstance(barrier, IssuedBarrier) else target.phase
        self._signal(barrier, target, issued_in)
        target.complete(nbytes, issued_in)

    def freeze_barrier(self, barrier: ir.Barrier) -> ir.Barrier:
        target = self._barrier(barrier)
        frozen = IssuedBarrier(barrier.array, ir.as_expr(target.index), target.phase)
        self._issued.append(frozen)
        return frozen

    def wait_barrier(self, barrier: ir.Barrier, parity: int) -> ir.Wait:
        target = self._barrier(barrier)
        if parity not in (0, 1):
            self.fail("protocol", f"parity of {target.label} must be 0 or 1, got {parity}")
        self._signal(barrier, target, target.awaited(parity))
        return EffectWait(
            ready=lambda: target.over(parity),
            describe=lambda: f"{target.label}, parity {parity}: {target.lacks()}",
            facts=lambda: {**target.facts(), "parity": parity},
            needs=lambda effect: any(self._is(b, target) for b in effect.barriers),
        )

    def wait_threads(self, threads: ir.Threads) -> ir.Wait:
        barrier = self._thread_barriers.setdefault(threads, ThreadBarrier(threads.count))
        generation = barrier.arrive(self.threads.count)
        return ir.Wait(
            ready=lambda: barrier.generation > generation,
            describe=lambda: (
                f"the barrier of {threads.role}: {barrier.count - barrier.come} threads missing"
            ),
            kind="sync",
            facts=lambda: {"threads_missing": barrier.count - barrier.come},
        )

    def _barrier(self, barrier: ir.Barrier) -> MBarrier:
        array, index = barrier.array, int(self.value(barrier.index))
        if array not in self.barriers:
            self.fail("protocol", f"{array.name} is used before it is initialised")
        if not 0 <= index < len(array):
            rule = f"must be in 0..{len(array) - 1}, got {index}"
            self.fail("protocol", f"index of {array.name} {rule}", barrier=array.name, index=index)
        return self.barriers[array][index]

    def _signal(self, barrier: ir.Barrier, target: MBarrier, phase: int) -> None:
        self.signal = Signal(target.label, target.index, phase, len(barrier.array))

    def _changed(self, barrier: MBarrier, cause: str) -> None:
        self._watch(self._now, barrier, cause)

    def _is(self, barrier: IssuedBarrier, target: MBarrier) -> bool:
        return self.barriers[barrier.array][cast(ir.Const, barrier.index).value] is target  # type: ignore[index]

    # Engines

    def launch(
        self,
        engine: Literal["tma", "wgmma", "store"],
        land: Callable[[], None],
        *,
        amount: float,
        what: str,
    ) -> None:
        start, time = self._schedule.flight(engine, self.group.time, amount)
        self._launched += 1
        barriers, now = tuple(self._issued), self.group.time
        order = self._launched
        self.engines.launch(
            Effect(
                engine,
                self.group,
                self.location,
                land,
                what,
                start,
                time,
                order,
                barriers,
                now,
                amount,
            )
        )

    def commit(self, engine: Literal["wgmma", "store"]) -> None:
        self.engines.commit((engine, self.threads.begin))

    def wait_commits(self, engine: Literal["wgmma", "store"], pending: int) -> ir.Wait:
        return self.engines.wait((engine, self.threads.begin), pending)


def _region(tensor: ir.SharedTensor, offset: int) -> ir.Region:
    begin = offset * tensor.dtype.nbytes
    return ir.Region(tensor.name, begin, begin + tensor.nbytes)

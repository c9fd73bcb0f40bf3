# SPDX-License-Identifier: Apache-2.0
"""Mbarriers: barriers in shared memory that count arrivals and bytes (PTX ISA, "mbarrier")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilus.dtypes import uint32
from tilus.errors import LanguageError
from tilus.ir import (
    Barrier,
    BarrierArray,
    Emitter,
    ExprLike,
    Instruction,
    Machine,
    Site,
    Wait,
    cast,
    describe,
)

MAX_ARRIVALS = (1 << 20) - 1  # PTX ISA, "Contents of the mbarrier object"
MAX_TRANSACTION = (1 << 20) - 1

producer_initial_phase = 1
"""Parity a producer waits for first: a fresh barrier lets it pass, since the stage is empty."""

consumer_initial_phase = 0
"""Parity a consumer waits for first: it blocks until the stage has been filled."""

INIT = """\
__device__ __forceinline__ void mbarrier_init(unsigned barrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(count) : "memory");
}"""

ARRIVE = """\
__device__ __forceinline__ void mbarrier_arrive(unsigned barrier, unsigned count) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;"
               :: "r"(barrier), "r"(count) : "memory");
}"""

ARRIVE_EXPECT_TX = """\
__device__ __forceinline__ void mbarrier_arrive_expect_tx(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(barrier), "r"(bytes) : "memory");
}"""

WAIT = """\
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
  asm volatile("{\\n"
               ".reg .pred done;\\n"
               "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\\n"
               "@!done bra again;\\n"
               "}" :: "r"(barrier), "r"(parity) : "memory");
}"""


@dataclass(frozen=True, eq=False, kw_only=True)
class alloc(Instruction):
    """Allocate one mbarrier, or a list of them; ``counts`` arrivals complete a phase.

    The barriers are initialised, and all threads and the async proxy see them, when the call
    returns; it stands outside of thread groups.

    NumPy: out = phase 0 with counts arrivals pending
    PTX:   mbarrier.init, fence.mbarrier_init, barrier
    """

    issuer = "block"
    counts: int | Sequence[int]
    out: Barrier | BarrierArray

    @classmethod
    def result(cls, site: Site, /, **arguments: Any) -> Barrier | BarrierArray:
        counts = arguments["counts"]
        many = [counts] if isinstance(counts, int) else counts
        good = isinstance(many, Sequence) and many
        if not good or not all(isinstance(n, int) and 1 <= n <= MAX_ARRIVALS for n in many):
            rule = f"a compile-time integer from 1 to {MAX_ARRIVALS}, or a list of them"
            raise LanguageError(
                f"alloc: counts must be {rule}, got {describe(counts)}", site.location
            )
        array = BarrierArray(site.name, tuple(many), site.location)
        return array[0] if isinstance(counts, int) else array

    @property
    def array(self) -> BarrierArray:
        """Return the barriers as an array, also where there is only one."""
        return self.out.array if isinstance(self.out, Barrier) else self.out

    def emit(self, e: Emitter) -> None:
        e.helper(INIT)
        with e.block("if (threadIdx.x == 0)"):
            for i, count in enumerate(self.array.counts):
                e.line(f"mbarrier_init({e.barrier(self.array[i])}, {count});")
            e.line('asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");')
            e.line('asm volatile("fence.proxy.async.shared::cta;" ::: "memory");')
        e.line("__syncthreads();")

    def simulate(self, m: Machine) -> Wait:
        m.init_barriers(self.array[0])
        return m.wait_threads(self.threads)


@dataclass(frozen=True, eq=False, kw_only=True)
class arrive(Instruction):
    """Let every thread of the current group arrive ``count`` times.

    The arrival releases what the thread did before.

    NumPy: barrier.pending_arrivals -= count * threads
    PTX:   mbarrier.arrive
    """

    barrier: Barrier
    count: int = 1

    def verify(self) -> None:
        self.require(isinstance(self.barrier, Barrier), "barrier", "one mbarrier", self.barrier)
        good = isinstance(self.count, int) and 1 <= self.count <= MAX_ARRIVALS
        self.require(good, "count", f"a compile-time integer from 1 to {MAX_ARRIVALS}", self.count)

    def emit(self, e: Emitter) -> None:
        e.helper(ARRIVE)
        e.line(f"mbarrier_arrive({e.barrier(self.barrier)}, {self.count});")

    def simulate(self, m: Machine) -> None:
        m.arrive(self.barrier, self.count * m.threads.count)


@dataclass(frozen=True, eq=False, kw_only=True)
class arrive_and_expect_tx(Instruction):
    """Announce bytes that the current phase must still receive, then arrive once per thread.

    NumPy: barrier.pending_bytes += transaction_bytes, then as arrive
    PTX:   mbarrier.arrive.expect_tx
    """

    barrier: Barrier
    transaction_bytes: ExprLike

    def verify(self) -> None:
        self.require(isinstance(self.barrier, Barrier), "barrier", "one mbarrier", self.barrier)
        n = self.transaction_bytes
        rule = f"from 0 to {MAX_TRANSACTION}"
        self.require(
            not isinstance(n, int) or 0 <= n <= MAX_TRANSACTION, "transaction_bytes", rule, n
        )

    def emit(self, e: Emitter) -> None:
        e.helper(ARRIVE_EXPECT_TX)
        nbytes = e.expr(cast(self.transaction_bytes, uint32))
        e.line(f"mbarrier_arrive_expect_tx({e.barrier(self.barrier)}, {nbytes});")

    def simulate(self, m: Machine) -> None:
        n = m.threads.count
        m.arrive(self.barrier, n, expect_bytes=n * int(m.value(self.transaction_bytes)))


@dataclass(frozen=True, eq=False, kw_only=True)
class wait(Instruction):
    """Wait until the phase of parity ``phase`` has completed, and see what its arrivals released.

    A fresh barrier is in phase 0: a wait for parity 1 passes at once, a wait for parity 0 blocks.

    NumPy: block until barrier.phase % 2 != phase
    PTX:   mbarrier.try_wait.parity
    """

    barrier: Barrier
    phase: ExprLike
    sem: str = "acquire"
    scope: str = "cta"

    def verify(self) -> None:
        self.require(isinstance(self.barrier, Barrier), "barrier", "one mbarrier", self.barrier)
        self.require(self.sem == "acquire", "sem", "'acquire'", repr(self.sem))
        self.require(self.scope == "cta", "scope", "'cta'", repr(self.scope))
        known = not isinstance(self.phase, int) or self.phase in (0, 1)
        self.require(known, "phase", "the parity 0 or 1", self.phase)

    def emit(self, e: Emitter) -> None:
        e.helper(WAIT)
        e.line(f"mbarrier_wait({e.barrier(self.barrier)}, {e.expr(cast(self.phase, uint32))});")

    def simulate(self, m: Machine) -> Wait:
        return m.wait_barrier(self.barrier, int(m.value(self.phase)))

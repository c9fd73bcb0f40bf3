# SPDX-License-Identifier: Apache-2.0
"""Mbarriers: barriers in shared memory that count arrivals and bytes (PTX ISA, "mbarrier")."""

from __future__ import annotations

import re
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
    Function,
    Instruction,
    Machine,
    Site,
    Wait,
    as_integer,
    cast,
    describe,
    walk,
)
from tilus.ops.cluster import blocks_in, require_mask, require_rank, require_sync

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

ARRIVE_REMOTE = """\
/* Arrives at the barrier that block `rank` of the cluster has where this block has `barrier`. */
__device__ __forceinline__ void mbarrier_arrive_remote(unsigned barrier, unsigned rank,
                                                       unsigned count) {
  asm volatile("{\\n"
               ".reg .b32 there;\\n"
               "mapa.shared::cluster.u32 there, %0, %1;\\n"
               "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there], %2;\\n"
               "}" :: "r"(barrier), "r"(rank), "r"(count) : "memory");
}"""

ARRIVE_EXPECT_TX_REMOTE = """\
/* Does so at the barrier that block `rank` of the cluster has where this block has `barrier`. */
__device__ __forceinline__ void mbarrier_arrive_expect_tx_remote(unsigned barrier, unsigned rank,
                                                                 unsigned bytes) {
  asm volatile("{\\n"
               ".reg .b32 there;\\n"
               "mapa.shared::cluster.u32 there, %0, %1;\\n"
               "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [there], %2;\\n"
               "}" :: "r"(barrier), "r"(rank), "r"(bytes) : "memory");
}"""

ARRIVE_EXPECT_TX_MULTICAST = """\
__device__ __forceinline__ void mbarrier_arrive_expect_tx_multicast(unsigned barrier, unsigned mask,
                                                                    unsigned bytes) {
  #pragma unroll
  for (unsigned rank = 0; rank < 8; ++rank)
    if (mask >> rank & 1) mbarrier_arrive_expect_tx_remote(barrier, rank, bytes);
}"""

WAIT = """\
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
  asm volatile("{\\n"
               ".reg .pred done;\\n"
               "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\\n"
               "@!done bra again;\\n"
               "}" :: "r"(barrier), "r"(parity) : "memory");
}"""

WATCHED_WAIT = """\
/* Polls, so that a phase that does not end is reported; the watchdog's build alone has it. */
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity, unsigned index,
                                              unsigned site, unsigned *hangs) {
  const unsigned long long begin = global_timer();
  while (!mbarrier_try_wait(barrier, parity))
    if (global_timer() - begin > HANG_NS) hang(hangs, site, index, parity);
}"""

TRY_WAIT = """\
__device__ __forceinline__ bool mbarrier_try_wait(unsigned barrier, unsigned parity) {
  unsigned done;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\\n"
               "selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done;
}"""


def of_cluster(helper: str) -> str:
    """Return a device function that waits as one that acquires what the whole cluster released."""
    text = re.sub(r"\bmbarrier_(try_)?wait\b", r"mbarrier_\1wait_cluster", helper)
    return text.replace("try_wait.parity", "try_wait.parity.acquire.cluster")


def relaxing(helper: str) -> str:
    """Return a device function that arrives as one that releases nothing."""
    text = helper.replace("mbarrier_arrive_remote", "mbarrier_arrive_remote_relaxed")
    return text.replace("arrive.release", "arrive.relaxed")


@dataclass(frozen=True, eq=False, kw_only=True)
class alloc(Instruction):
    """Allocate one mbarrier, or a list of them; ``counts`` arrivals complete a phase.

    The barriers are initialised, and all threads of the block and the async proxy see them, when
    the call returns; it stands outside of thread groups. Other blocks of a cluster see them after
    :class:`~tilus.ops.cluster.sync`: say it once behind the last ``alloc``.

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
        require_bytes(self, self.transaction_bytes)

    def emit(self, e: Emitter) -> None:
        e.helper(ARRIVE_EXPECT_TX)
        nbytes = e.expr(cast(self.transaction_bytes, uint32))
        e.line(f"mbarrier_arrive_expect_tx({e.barrier(self.barrier)}, {nbytes});")

    def simulate(self, m: Machine) -> None:
        n = m.threads.count
        m.arrive(self.barrier, n, expect_bytes=n * int(m.value(self.transaction_bytes)))


def require_bytes(op: Instruction, n: ExprLike) -> None:
    """Refuse a number of bytes that a barrier cannot count, where it is known."""
    as_integer(n, "transaction_bytes")
    good = not isinstance(n, int) or 0 <= n <= MAX_TRANSACTION
    op.require(good, "transaction_bytes", f"from 0 to {MAX_TRANSACTION}", n)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Remote(Instruction):
    """What arrivals at a barrier of another block share: it must be initialised."""

    barrier: Barrier

    @property
    def relaxed(self) -> bool:
        """Say whether it releases nothing, so that who waits need not acquire from the cluster."""
        return False

    def verify(self) -> None:
        self.require(isinstance(self.barrier, Barrier), "barrier", "one mbarrier", self.barrier)

    def verify_within(self, function: Function) -> None:
        require_sync(self, function)


@dataclass(frozen=True, eq=False, kw_only=True)
class arrive_remote(_Remote):
    """Let every thread of the current group arrive ``count`` times at block ``rank``'s ``barrier``.

    ``barrier`` names it as this block would its own; ``rank`` counts the blocks of the cluster, and
    may be this one. The arrival releases to the whole cluster what the thread did before; who waits
    there does so with ``scope="cluster"``.

    ``sem="relaxed"`` costs no fence, and releases no write. It says that reads are over: those of
    engines that the thread has waited for, and those of threads behind which lies a ``sync()``. It
    is enough where tensor cores have read a stage that copies fill again. A plain wait sees it.

    NumPy: barrier[rank].pending_arrivals -= count * threads
    PTX:   mapa, mbarrier.arrive.release.cluster or mbarrier.arrive.relaxed.cluster
    """

    rank: ExprLike
    count: int = 1
    sem: str = "release"

    @property
    def relaxed(self) -> bool:
        return self.sem == "relaxed"

    def verify(self) -> None:
        super().verify()
        as_integer(self.rank, "a rank")
        sems = ("release", "relaxed")
        self.require(self.sem in sems, "sem", "'release' or 'relaxed'", repr(self.sem))
        good = isinstance(self.count, int) and 1 <= self.count <= MAX_ARRIVALS
        self.require(good, "count", f"a compile-time integer from 1 to {MAX_ARRIVALS}", self.count)

    def verify_within(self, function: Function) -> None:
        super().verify_within(function)
        require_rank(self, self.rank, function)

    def emit(self, e: Emitter) -> None:
        e.helper(relaxing(ARRIVE_REMOTE) if self.relaxed else ARRIVE_REMOTE)
        name = "mbarrier_arrive_remote_relaxed" if self.relaxed else "mbarrier_arrive_remote"
        barrier, rank = e.barrier(self.barrier), e.expr(cast(self.rank, uint32))
        e.line(f"{name}({barrier}, {rank}, {self.count});")

    def simulate(self, m: Machine) -> None:
        n, rank = self.count * m.threads.count, int(m.value(self.rank))
        m.arrive(self.barrier, n, rank=rank, relaxed=self.relaxed)


@dataclass(frozen=True, eq=False, kw_only=True)
class arrive_and_expect_tx_remote(_Remote):
    """Announce bytes to block ``rank``'s ``barrier``, then arrive there once per thread.

    NumPy: barrier[rank].pending_bytes += transaction_bytes, then as arrive_remote
    PTX:   mapa, mbarrier.arrive.expect_tx.release.cluster
    """

    transaction_bytes: ExprLike
    rank: ExprLike

    def verify(self) -> None:
        super().verify()
        as_integer(self.rank, "a rank")
        require_bytes(self, self.transaction_bytes)

    def verify_within(self, function: Function) -> None:
        super().verify_within(function)
        require_rank(self, self.rank, function)

    def emit(self, e: Emitter) -> None:
        e.helper(ARRIVE_EXPECT_TX_REMOTE)
        barrier, rank = e.barrier(self.barrier), e.expr(cast(self.rank, uint32))
        nbytes = e.expr(cast(self.transaction_bytes, uint32))
        e.line(f"mbarrier_arrive_expect_tx_remote({barrier}, {rank}, {nbytes});")

    def simulate(self, m: Machine) -> None:
        n, rank = m.threads.count, int(m.value(self.rank))
        m.arrive(self.barrier, n, n * int(m.value(self.transaction_bytes)), rank=rank)


@dataclass(frozen=True, eq=False, kw_only=True)
class arrive_and_expect_tx_multicast(_Remote):
    """Announce bytes to the ``barrier`` of every block in ``multicast_mask``, then arrive there.

    Bit ``r`` of the mask stands for block ``r`` of the cluster: the ``multicast_mask`` of the copy
    whose bytes they are.

    NumPy: for rank in multicast_mask: as arrive_and_expect_tx_remote
    PTX:   mapa, mbarrier.arrive.expect_tx.release.cluster
    """

    transaction_bytes: ExprLike
    multicast_mask: ExprLike

    def verify(self) -> None:
        super().verify()
        as_integer(self.multicast_mask, "a mask")
        require_bytes(self, self.transaction_bytes)

    def verify_within(self, function: Function) -> None:
        super().verify_within(function)
        require_mask(self, self.multicast_mask, function)

    def emit(self, e: Emitter) -> None:
        e.helper(ARRIVE_EXPECT_TX_REMOTE)
        e.helper(ARRIVE_EXPECT_TX_MULTICAST)
        barrier, mask = e.barrier(self.barrier), e.expr(cast(self.multicast_mask, uint32))
        nbytes = e.expr(cast(self.transaction_bytes, uint32))
        e.line(f"mbarrier_arrive_expect_tx_multicast({barrier}, {mask}, {nbytes});")

    def simulate(self, m: Machine) -> None:
        n, nbytes = m.threads.count, int(m.value(self.transaction_bytes))
        for rank in blocks_in(m, self.multicast_mask):
            m.arrive(self.barrier, n, n * nbytes, rank=rank)


@dataclass(frozen=True, eq=False, kw_only=True)
class wait(Instruction):
    """Wait until the phase of parity ``phase`` has completed, and see what its arrivals released.

    A fresh barrier is in phase 0: a wait for parity 1 passes at once, a wait for parity 0 blocks.
    ``scope="cluster"`` sees what threads of other blocks released, too, and is needed where they
    arrive, unless all their arrivals are relaxed. What a copy has written is seen in either scope,
    whichever block has issued it.

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
        scopes = ("cta", "cluster")
        self.require(self.scope in scopes, "scope", "'cta' or 'cluster'", repr(self.scope))
        as_integer(self.phase, "phase")
        known = not isinstance(self.phase, int) or self.phase in (0, 1)
        self.require(known, "phase", "the parity 0 or 1", self.phase)

    def verify_within(self, function: Function) -> None:
        if self.scope == "cluster":
            return
        for stmt in walk(function.body):
            if isinstance(stmt, _Remote) and not stmt.relaxed:
                remote = stmt.barrier.array is self.barrier.array
                rule = f"'cluster', since other blocks arrive there (line {stmt.location.line})"
                self.require(not remote, "scope", rule, repr(self.scope))

    def emit(self, e: Emitter) -> None:
        watched = e.watch(self.barrier, self.phase)
        cluster = self.scope == "cluster"
        for helper in (TRY_WAIT, WATCHED_WAIT) if watched else (WAIT,):
            e.helper(of_cluster(helper) if cluster else helper)
        name = "mbarrier_wait_cluster" if cluster else "mbarrier_wait"
        parity = e.expr(cast(self.phase, uint32))
        e.line(f"{name}({', '.join([e.barrier(self.barrier), parity, *watched])});")

    def simulate(self, m: Machine) -> Wait:
        cluster = self.scope == "cluster"
        return m.wait_barrier(self.barrier, int(m.value(self.phase)), cluster=cluster)

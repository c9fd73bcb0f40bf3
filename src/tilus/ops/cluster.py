# SPDX-License-Identifier: Apache-2.0
"""Clusters: blocks on neighbouring multiprocessors that run at the same time.

They reach each other's mbarriers, and one copy can serve several of them. ``self.cluster.blockIdx``
and ``.clusterDim`` say where a block stands among ``self.attrs.cluster_blocks``;
``self.cluster.blockRank`` numbers the blocks, x fastest. PTX ISA, "Cluster of Cooperative Thread
Arrays".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tilus.errors import LanguageError
from tilus.ir import (
    Barrier,
    Builtin,
    Dim3,
    Emitter,
    ExprLike,
    Function,
    Instruction,
    Machine,
    SharedTensor,
    Site,
    Wait,
    as_integer,
    walk,
)

blockIdx = Dim3.builtin("clusterBlockIdx")
"""Place of the block in its cluster, in blocks along ``.x``, ``.y`` and ``.z``."""

clusterDim = Dim3.builtin("clusterDim")
"""Blocks of a cluster along ``.x``, ``.y`` and ``.z``."""

blockRank = Builtin("clusterRank")
"""Number of the block in its cluster; what ``rank`` of an instruction and bits of a mask mean."""

SYNC = """\
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\\n"
               "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}"""

MAP = """\
/* The address, in the cluster's window of shared memory, that block `rank` has for `address`. */
__device__ __forceinline__ unsigned map_shared(unsigned address, unsigned rank) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}"""


@dataclass(frozen=True, eq=False, kw_only=True)
class sync(Instruction):
    """Wait for all threads of all blocks of the cluster, and see what they have written.

    It stands outside of thread groups. A kernel needs it twice: before a block uses a barrier of
    another one, which may not have initialised it yet, and before a block leaves that others still
    signal or copy to, since its shared memory is gone with it.

    NumPy: none
    PTX:   barrier.cluster.arrive, barrier.cluster.wait
    """

    issuer = "block"

    def emit(self, e: Emitter) -> None:
        e.helper(SYNC)
        e.line("cluster_sync();")

    def simulate(self, m: Machine) -> Wait:
        return m.wait_cluster()


@dataclass(frozen=True, eq=False, kw_only=True)
class map_shared_addr(Instruction):
    """View the shared tensor ``x`` as block ``rank`` of the cluster has it; no data moves.

    :class:`~tilus.ops.shared.load_shared` and :class:`~tilus.ops.shared.store_shared` take the
    view, or parts of it. The other block is there between two calls of :class:`sync`. That it has
    written what is read, or will not read what is written, is told by
    :class:`~tilus.ops.mbarrier.arrive_remote` or :class:`sync`. What one block writes to another,
    no engine may read: :class:`~tilus.ops.fence.proxy_async` does not speak for it. Mbarriers of
    other blocks have instructions of their own.

    NumPy: out = x of block rank
    PTX:   mapa.shared::cluster
    """

    peers = True
    x: SharedTensor
    rank: ExprLike
    out: SharedTensor

    @classmethod
    def result(cls, site: Site, /, **arguments: Any) -> SharedTensor:
        x, rank = arguments["x"], arguments["rank"]
        if not isinstance(x, SharedTensor) or x.rank is not None:
            found = "that of another block" if isinstance(x, SharedTensor) else type(x).__name__
            rule = "a tensor in the block's own shared memory"
            message = f"map_shared_addr: x must be {rule}, got {found}"
            remedy = "; arrive_remote reaches a barrier" if isinstance(x, Barrier) else ""
            raise LanguageError(message + remedy, site.location)
        return replace(x, rank=as_integer(rank, "a rank"))

    def verify_within(self, function: Function) -> None:
        require_rank(self, self.rank, function)
        require_sync(self, function)

    def emit(self, e: Emitter) -> None:
        """Nothing to do: uses of the view compute their own addresses."""

    def simulate(self, m: Machine) -> None:
        """Nothing to do: uses of the view compute their own addresses."""


def require_rank(op: Instruction, rank: ExprLike, function: Function) -> None:
    """Refuse the number of a block that the cluster does not have, where it is known."""
    size = math.prod(function.cluster)
    known = not isinstance(rank, int) or 0 <= rank < size
    op.require(known, "rank", f"from 0 to {size - 1}, as the cluster has {size} blocks", rank)


def require_mask(op: Instruction, mask: ExprLike, function: Function) -> None:
    """Refuse a set of blocks, one bit each, that the cluster does not have, where it is known."""
    size = math.prod(function.cluster)
    known = not isinstance(mask, int) or 0 < mask < 1 << size
    rule = f"from 1 to {(1 << size) - 1}, a bit for each of the cluster's {size} blocks"
    op.require(known, "multicast_mask", rule, mask)


def blocks_in(m: Machine, mask: ExprLike) -> list[int]:
    """Return the ranks whose bits are set in a mask, of which there must be one."""
    bits = int(m.value(mask))
    if bits <= 0:
        m.fail("protocol", f"multicast_mask must have a bit for a block, got {bits}", mask=bits)
    return [rank for rank in range(bits.bit_length()) if bits >> rank & 1]


def require_sync(op: Instruction, function: Function) -> None:
    """Refuse to use barriers of other blocks that nobody has waited for."""
    alone = math.prod(function.cluster) == 1
    met = alone or any(isinstance(stmt, sync) for stmt in walk(function.body))
    rule = "synchronised (self.cluster.sync()) before a block uses what another one has"
    op.require(met, "the cluster", rule, "no such call in the kernel")

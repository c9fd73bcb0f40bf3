# SPDX-License-Identifier: Apache-2.0
"""TMA, the tensor memory accelerator: copies of boxes between device and shared memory.

PTX ISA, "cp.async.bulk.tensor".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilus.dtypes import int32
from tilus.ir import (
    Barrier,
    Constraints,
    Emitter,
    ExprLike,
    GlobalTensor,
    Instruction,
    Machine,
    SharedTensor,
    as_integer,
    cast,
    reads,
    writes,
)

MAX_BOX = 256  # elements along one dimension of a box, CUDA driver API, cuTensorMapEncodeTiled

LOAD = """\
__device__ __forceinline__ void tma_load_2d(unsigned dst, const CUtensorMap *map, int column,
                                            int row, unsigned barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%2, %3}], [%4];"
               :: "r"(dst), "l"(map), "r"(column), "r"(row), "r"(barrier) : "memory");
}"""


@dataclass(frozen=True, eq=False, kw_only=True)
class global_to_shared(Instruction):
    """Start copying a box of ``src`` at ``offsets`` into ``dst``; ``mbarrier`` counts its bytes.

    ``offsets`` count elements, one per dimension. One thread issues the copy; in a whole warp the
    instruction elects it. Elements outside of ``src`` arrive as zeros and count as bytes. The
    tensor map of ``src`` is made by the host, so the view depends on kernel parameters only; its
    rows and its base lie at multiples of 16 bytes.

    NumPy: dst[...] = src[box at offsets], zero outside of src
    PTX:   cp.async.bulk.tensor
    """

    issuer, proxy = "thread", "async"
    effects = (reads("src"), writes("dst", done="mbarrier"))
    src: GlobalTensor
    dst: SharedTensor
    offsets: Sequence[ExprLike]
    mbarrier: Barrier

    def verify(self) -> None:
        self.require(
            len(self.src.shape) == 2, "src", "a 2-D view", f"{len(self.src.shape)} dimensions"
        )
        self.require(
            len(self.dst.shape) == 2, "dst", "a 2-D tile", f"{len(self.dst.shape)} dimensions"
        )
        self.require(
            not self.dst.transposed, "dst", "a tile that is not transposed", "a transposed view"
        )
        self.require(len(self.offsets) == 2, "offsets", "a list of 2", len(self.offsets))
        for x in self.offsets:
            as_integer(x, "an offset")
        self.require(
            self.src.dtype == self.dst.dtype, "dst", f"of type {self.src.dtype}", self.dst.dtype
        )
        self.require(
            self.dst.shape[0] <= MAX_BOX, "dst", f"at most {MAX_BOX} rows", self.dst.shape[0]
        )
        self.require(isinstance(self.mbarrier, Barrier), "mbarrier", "one mbarrier", self.mbarrier)
        count = self.threads.count
        self.require(
            count in (1, 32), "the current group", "one thread or one warp", f"{count} threads"
        )

    def constrain(self, c: Constraints) -> None:
        c.swizzled(self.dst)
        c.tensor_map(self.src, self.dst)

    def emit(self, e: Emitter) -> None:
        e.helper(LOAD)
        layout, row, column = e.shared_layout(self.dst), *(cast(x, int32) for x in self.offsets)
        tensor_map, barrier = e.tensor_map(self.src, self.dst), e.barrier(self.mbarrier)
        with e.one_thread():
            for panel in range(layout.panels):
                dst = e.shared(self.dst, panel * layout.panel_bytes)
                x = e.expr(column + panel * layout.panel_columns)
                e.line(f"tma_load_2d({dst}, {tensor_map}, {x}, {e.expr(row)}, {barrier});")

    def simulate(self, m: Machine) -> None:
        offsets = [int(m.value(x)) for x in self.offsets]
        dst, barrier = m.freeze(self.dst), m.freeze_barrier(self.mbarrier)

        def land() -> None:
            m.store_shared(dst, m.load_global(self.src, offsets, dst.shape), proxy="async")
            m.complete_bytes(barrier, dst.nbytes)

        m.launch("tma", land, amount=dst.nbytes, what=f"{self.src.name} -> {dst.name}")

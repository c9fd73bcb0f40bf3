# SPDX-License-Identifier: Apache-2.0
"""Copies between device memory and registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilus.dtypes import int32, int64
from tilus.ir import (
    Emitter,
    ExprLike,
    GlobalTensor,
    Instruction,
    Machine,
    RegisterTensor,
    cast,
    reads,
    writes,
)

STORE_PAIR = """\
/* Two 16-bit elements in one 4-byte store; p is 4-byte aligned. */
__device__ __forceinline__ void store_pair(half_t *p, half_t lo, half_t hi) {
  asm volatile("{ .reg .b32 pair; mov.b32 pair, {%1, %2}; st.global.b32 [%0], pair; }"
               :: "l"(p), "h"(lo), "h"(hi) : "memory");
}"""


@dataclass(frozen=True, eq=False, kw_only=True)
class store_global(Instruction):
    """Store the tile ``src`` to the box of ``dst`` that begins at ``offsets``; elements outside of the view are dropped.

    ``offsets`` count elements, one per dimension. Every thread stores the elements it holds.

    NumPy: dst[box at offsets] = src, inside of dst
    PTX:   st.global
    """

    effects = (reads("src"), writes("dst"))
    dst: GlobalTensor
    src: RegisterTensor
    offsets: Sequence[ExprLike]

    def verify(self) -> None:
        rank = len(self.dst.shape)
        self.require(
            len(self.src.shape) == rank, "src", f"a tile of {rank} dimensions", self.src.shape
        )
        self.require(len(self.offsets) == rank, "offsets", f"a list of {rank}", len(self.offsets))
        self.require(
            self.src.dtype == self.dst.dtype, "src", f"of type {self.dst.dtype}", self.src.dtype
        )

    def emit(self, e: Emitter) -> None:
        layout, rank = e.register_layout(self.src), len(self.dst.shape)
        src, p = e.registers(self.src), e.pointer(self.dst)
        first = [e.fresh("i") for _ in range(rank)]
        for d, name in enumerate(first):
            thread = layout.text(d, "thread", f"(threadIdx.x - {e.threads.begin})")
            e.line(f"const int {name} = {e.expr(cast(self.offsets[d], int32))} + {thread};")
        at = [f"{name} + {layout.text(d, 'register', 'r')}" for d, name in enumerate(first)]
        inside = [f"j{d} < {e.expr(n)}" for d, n in enumerate(self.dst.shape)]
        address = " + ".join(
            f"j{d} * {e.expr(cast(s, int64))}" for d, s in enumerate(self.dst.strides)
        )
        if layout.vector % 2 == 0 and self.src.dtype.bits == 16:
            e.helper(STORE_PAIR)
            with e.block(f"if ({self._paired(e, p)})"):
                self._loop(
                    e,
                    layout.registers,
                    2,
                    at,
                    inside,
                    f"store_pair({p} + {address}, {src}[r], {src}[r + 1]);",
                )
            e.line("else")
        with e.block(""):
            self._loop(e, layout.registers, 1, at, inside, f"{p}[{address}] = {src}[r];")

    def _paired(self, e: Emitter, pointer: str) -> str:
        """Return the condition, uniform over the block, under which pairs of columns may be stored at once."""
        even = [self.dst.shape[-1], *self.dst.strides[:-1], self.offsets[-1]]
        tests = [f"{e.expr(x)} % 2 == 0" for x in even] + [f"{e.expr(self.dst.strides[-1])} == 1"]
        return " && ".join([f"(unsigned long long){pointer} % 4 == 0", *tests])

    @staticmethod
    def _loop(
        e: Emitter, registers: int, step: int, at: list[str], inside: list[str], store: str
    ) -> None:
        e.line("#pragma unroll")
        with e.block(f"for (int r = 0; r < {registers}; r += {step})"):
            for d, text in enumerate(at):
                e.line(f"const long long j{d} = {text};")
            e.line(f"if ({' && '.join(inside)}) {store}")

    def simulate(self, m: Machine) -> None:
        m.store_global(self.dst, [int(m.value(x)) for x in self.offsets], m.registers(self.src))

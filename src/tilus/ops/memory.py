# SPDX-License-Identifier: Apache-2.0
"""Copies between device memory and registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from tilus.dtypes import int32
from tilus.ir import (
    Const,
    Emitter,
    Expr,
    ExprLike,
    GlobalTensor,
    Instruction,
    Machine,
    RegisterTensor,
    apply,
    as_expr,
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
    """Store the tile ``src`` to the box of ``dst`` that begins at ``offsets``.

    ``offsets`` count elements, one per dimension. Every thread stores the elements it holds; those
    outside of the view are dropped.

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
        layout, src, p = e.register_layout(self.src), e.registers(self.src), e.pointer(self.dst)
        first = [e.fresh(f"first_{d}") for d in range(len(self.dst.shape))]
        for d, name in enumerate(first):
            thread = layout.text(d, "thread", e.thread())
            e.line(f"const int {name} = {e.expr(cast(self.offsets[d], int32))} + {thread};")
        base = e.fresh("base")
        e.line(f"{self.dst.dtype.cpp} *const {base} = {p} + {self._distance(e, first)};")
        step = [layout.text(d, "register", "r") for d in range(len(first))]
        if layout.vector % 2 == 0 and self.src.dtype.bits == 16:
            e.helper(STORE_PAIR)
            with e.block(f"if ({e.expr(self._whole_pairs())} && (unsigned long long){p} % 4 == 0)"):
                e.line("#pragma unroll")
                e.line(f"for (int r = 0; r < {layout.registers}; r += 2)")
                at = f"{base} + {self._distance(e, step)}"
                e.line(f"  store_pair({at}, {src}[r], {src}[r + 1]);")
            e.line("else")
        with e.block(""):
            inside = [
                f"{i} + {j} < {e.expr(n)}"
                for i, j, n in zip(first, step, self.dst.shape, strict=True)
            ]
            e.line("#pragma unroll")
            e.line(f"for (int r = 0; r < {layout.registers}; ++r)")
            e.line(f"  if ({' && '.join(inside)}) {base}[{self._distance(e, step)}] = {src}[r];")

    def _distance(self, e: Emitter, index: list[str]) -> str:
        """Return how many elements ``index`` lies behind the view's pointer, as a C expression."""
        unit = [isinstance(s, Const) and s.value == 1 for s in self.dst.strides]
        steps = zip(index, self.dst.strides, unit, strict=True)
        return " + ".join(f"({i})" if one else f"({i}) * {e.expr(s)}" for i, s, one in steps)

    def _whole_pairs(self) -> Expr:
        """Return the condition, uniform over the block, for the fast way: two columns at once, no
        bounds to check."""
        even = [self.dst.shape[-1], *self.dst.strides[:-1], as_expr(self.offsets[-1])]
        pairs = reduce(lambda a, x: a & (x % 2 == 0), even, apply("==", self.dst.strides[-1], 1))
        ends = [as_expr(x) + n for x, n in zip(self.offsets, self.src.shape, strict=True)]
        return reduce(
            lambda a, x: a & (x[0] <= x[1]), zip(ends, self.dst.shape, strict=True), pairs
        )

    def simulate(self, m: Machine) -> None:
        m.store_global(self.dst, [int(m.value(x)) for x in self.offsets], m.registers(self.src))

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
        at = [f"{name} + {layout.text(d, 'register', 'r')}" for d, name in enumerate(first)]
        pairs = self._pairs_allowed()
        if layout.vector % 2 == 0 and self.src.dtype.bits == 16:
            e.helper(STORE_PAIR)
            with e.block(f"if ({e.expr(pairs)} && (unsigned long long){p} % 4 == 0)"):
                store = f"store_pair({p} + {self._address(e)}, {src}[r], {src}[r + 1]);"
                self._loop(e, layout.registers, 2, at, store)
            e.line("else")
        with e.block(""):
            self._loop(e, layout.registers, 1, at, f"{p}[{self._address(e)}] = {src}[r];")

    def _pairs_allowed(self) -> Expr:
        """Return the condition, uniform over the block, under which two columns may be stored at
        once."""
        even = [self.dst.shape[-1], *self.dst.strides[:-1], as_expr(self.offsets[-1])]
        return reduce(lambda a, x: a & (x % 2 == 0), even, apply("==", self.dst.strides[-1], 1))

    def _address(self, e: Emitter) -> str:
        """Return the element's distance from the pointer as a C expression over j0, j1, ..."""
        steps = [(d, as_expr(s)) for d, s in enumerate(self.dst.strides)]
        unit = [isinstance(s, Const) and s.value == 1 for _, s in steps]
        return " + ".join(
            f"j{d}" if one else f"j{d} * {e.expr(s)}"
            for (d, s), one in zip(steps, unit, strict=True)
        )

    def _loop(self, e: Emitter, registers: int, step: int, at: list[str], store: str) -> None:
        inside = " && ".join(f"j{d} < {e.expr(n)}" for d, n in enumerate(self.dst.shape))
        e.line("#pragma unroll")
        with e.block(f"for (int r = 0; r < {registers}; r += {step})"):
            for d, text in enumerate(at):
                e.line(f"const long long j{d} = {text};")
            e.line(f"if ({inside}) {store}")

    def simulate(self, m: Machine) -> None:
        m.store_global(self.dst, [int(m.value(x)) for x in self.offsets], m.registers(self.src))

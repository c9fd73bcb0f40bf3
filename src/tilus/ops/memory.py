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
from tilus.layout import RegisterLayout, has_quads

PACK = """\
__device__ __forceinline__ unsigned pack(half_t lo, half_t hi) {
  return lo | (unsigned)hi << 16;
}"""

TRANSPOSE_QUAD = """\
/* Thread q of four neighbours holds element q of four rows; afterwards it holds row q whole. */
__device__ __forceinline__ uint4 transpose_quad(uint4 x) {
  const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
  const unsigned a = __shfl_xor_sync(0xffffffff, odd ? x.x : x.y, 1);
  const unsigned b = __shfl_xor_sync(0xffffffff, odd ? x.z : x.w, 1);
  if (odd) { x.x = a; x.z = b; } else { x.y = a; x.w = b; }
  const unsigned c = __shfl_xor_sync(0xffffffff, upper ? x.x : x.z, 2);
  const unsigned d = __shfl_xor_sync(0xffffffff, upper ? x.y : x.w, 2);
  if (upper) { x.x = c; x.y = d; } else { x.z = c; x.w = d; }
  return x;
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
        rule = "spread over the registers of the current group"
        self.require(not self.src.replicated, "src", rule, "a tensor that each thread holds whole")
        held = self.src.threads
        self.require(held == self.threads, "src", f"held by {self.threads.role}", held.role)

    def emit(self, e: Emitter) -> None:
        layout, src = e.register_layout(self.src), e.registers(self.src)
        first = [e.fresh(f"first_{d}") for d in range(len(self.dst.shape))]
        for d, name in enumerate(first):
            thread = layout.text(d, "thread", e.thread())
            e.line(f"const int {name} = {e.expr(cast(self.offsets[d], int32))} + {thread};")
        base = e.fresh("base")
        start = f"{e.pointer(self.dst)} + {self._distance(e, first)}"
        e.line(f"{self.dst.dtype.cpp} *const {base} = {start};")
        step = [layout.text(d, "register", "r") for d in range(len(first))]
        at = self._distance(e, step)
        if self.src.dtype.bits == 16 and layout.vector % 2 == 0:
            self._fast(e, layout, src, base, at)
            e.line("else")
        places = [f"{i} + {j}" for i, j in zip(first, step, strict=True)]
        below = [f"{i} >= 0" for i, x in zip(places, self.offsets, strict=True) if e.signed(x)]
        inside = [f"{i} < {e.expr(n)}" for i, n in zip(places, self.dst.shape, strict=True)]
        with e.block(""):
            e.line("#pragma unroll")
            e.line(f"for (int r = 0; r < {layout.registers}; ++r)")
            e.line(f"  if ({' && '.join([*below, *inside])}) {base}[{at}] = {src}[r];")

    def _fast(self, e: Emitter, layout: RegisterLayout, src: str, base: str, at: str) -> None:
        """Store a tile that lies inside of the view and is aligned: 16 bytes at once where four
        threads can exchange fragments, else pairs."""
        e.helper(PACK)
        quads = has_quads(layout)
        columns = 8 if quads else 2
        aligned = f"(unsigned long long){e.pointer(self.dst)} % {2 * columns} == 0"
        with e.block(f"if ({e.expr(self._whole(e, columns))} && {aligned})"):
            e.line("#pragma unroll")
            if not quads:
                e.line(f"for (int r = 0; r < {layout.registers}; r += 2)")
                e.line(f"  *(unsigned *)({base} + {at}) = pack({src}[r], {src}[r + 1]);")
                return
            e.helper(TRANSPOSE_QUAD)
            pairs = [f"pack({src}[r + {i}], {src}[r + {i + 1}])" for i in (0, 4, 8, 12)]
            with e.block(f"for (int quad = 0; quad < {layout.registers // 8}; ++quad)"):
                e.line("const int r = quad / 2 * 16 + quad % 2 * 2;  // four blocks of 8 columns")
                e.line(f"const uint4 row = transpose_quad(make_uint4({', '.join(pairs)}));")
                e.line(f"*(uint4 *)({base} + {at} + {e.thread()} % 4 * 6) = row;")

    def _whole(self, e: Emitter, columns: int) -> Expr:
        """Return whether, uniformly over the block, the tile is inside and starts at a multiple of
        ``columns`` in every row."""
        even = [*self.dst.strides[:-1], as_expr(self.offsets[-1])]
        start = apply("==", self.dst.strides[-1], 1)
        aligned = reduce(lambda a, x: a & (x % columns == 0), even, start)
        ends = [as_expr(x) + n for x, n in zip(self.offsets, self.src.shape, strict=True)]
        pairs = zip(ends, self.dst.shape, strict=True)
        begun = reduce(lambda a, x: a & (x >= 0), filter(e.signed, self.offsets), aligned)
        return reduce(lambda a, x: a & (x[0] <= x[1]), pairs, begun)

    def _distance(self, e: Emitter, index: list[str]) -> str:
        """Return how many elements ``index`` lies behind the view's pointer, as a C expression."""
        unit = [isinstance(s, Const) and s.value == 1 for s in self.dst.strides]
        steps = zip(index, self.dst.strides, unit, strict=True)
        return " + ".join(f"({i})" if one else f"({i}) * {e.expr(s)}" for i, s, one in steps)

    def simulate(self, m: Machine) -> None:
        m.store_global(self.dst, [int(m.value(x)) for x in self.offsets], m.registers(self.src))

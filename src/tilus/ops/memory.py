# SPDX-License-Identifier: Apache-2.0
"""Copies between device memory and registers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from tilus.dtypes import int32
from tilus.errors import LanguageError
from tilus.ir import (
    Const,
    Emitter,
    Expr,
    ExprLike,
    GlobalTensor,
    Instruction,
    Machine,
    RegisterTensor,
    Scalar,
    Site,
    apply,
    as_expr,
    as_integer,
    cast,
    reads,
    writes,
)
from tilus.layout import RegisterLayout, has_quads
from tilus.ops.alloc import is_number_of, tile_shape
from tilus.ops.tile import first_holder

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

VECTOR = """\
/* Neighbours that memory gives and takes at once. */
template <class T, int n> struct alignas(n * sizeof(T)) vector { T at[n]; };"""

VECTOR_BYTES = 16  # the widest access of a thread


@dataclass(frozen=True)
class Box:
    """The code that walks a tile in registers and its box of a view together.

    A tile of fewer dimensions than the view is a box of its last ones.
    """

    e: Emitter
    view: GlobalTensor
    tile: RegisterTensor
    offsets: Sequence[ExprLike]

    @property
    def layout(self) -> RegisterLayout:
        """Where the elements of the tile live."""
        return self.e.register_layout(self.tile)

    @property
    def missing(self) -> int:
        """How many leading dimensions of the view the tile lacks."""
        return len(self.view.shape) - len(self.tile.shape)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The size of the box along each dimension of the view."""
        return (1,) * self.missing + self.tile.shape

    @property
    def vector(self) -> int:
        """How many neighbours of a row a thread may move at once: a power of two."""
        room = min(self.layout.vector, VECTOR_BYTES // self.tile.dtype.nbytes)
        return next(n for n in (16, 8, 4, 2, 1) if n <= room and self.layout.vector % n == 0)

    def begin(self) -> tuple[list[str], str]:
        """Declare this thread's first index of each dimension, and its address; return both."""
        e = self.e
        first = [e.fresh(f"first_{d}") for d in range(len(self.view.shape))]
        for d, name in enumerate(first):
            thread = self._coordinate(d, "thread", e.thread())
            e.line(f"const int {name} = {e.expr(cast(self.offsets[d], int32))} + {thread};")
        base = e.fresh("base")
        start = f"{e.pointer(self.view)} + {self._distance(first)}"
        e.line(f"{self.view.dtype.cpp} *const {base} = {start};")
        return first, base

    def at(self, number: str) -> str:
        """Return how far register ``number`` lies behind the thread's address, in C."""
        return self._distance(self._steps(number))

    def inside(self, first: list[str], number: str) -> str:
        """Return whether register ``number`` lies in the view, in C."""
        e, steps = self.e, self._steps(number)
        places = [f"{i} + {j}" for i, j in zip(first, steps, strict=True)]
        below = [f"{i} >= 0" for i, x in zip(places, self.offsets, strict=True) if e.signed(x)]
        above = [f"{i} < {e.expr(n)}" for i, n in zip(places, self.view.shape, strict=True)]
        return " && ".join([*below, *above])

    def aligned(self, columns: int) -> Expr:
        """Return whether, uniformly over the block, every row of the box begins at a multiple of
        ``columns`` and its elements are neighbours."""
        even = [*self.view.strides[:-1], as_expr(self.offsets[-1])]
        start = apply("==", self.view.strides[-1], 1)
        return reduce(lambda a, x: a & (x % columns == 0), even, start)

    def whole(self, also: Expr) -> Expr:
        """Return whether, uniformly over the block, the box lies in the view and ``also`` holds."""
        ends = [as_expr(x) + n for x, n in zip(self.offsets, self.sizes, strict=True)]
        begun = [as_expr(x) >= 0 for x in self.offsets if self.e.signed(x)]
        ended = [x <= n for x, n in zip(ends, self.view.shape, strict=True)]
        return reduce(lambda a, x: a & x, [*begun, *ended], also)

    def based(self, columns: int) -> str:
        """Return whether the view begins at a multiple of ``columns`` elements, in C."""
        nbytes = columns * self.view.dtype.nbytes
        return f"(unsigned long long){self.e.pointer(self.view)} % {nbytes} == 0"

    @contextmanager
    def vectors(self) -> Iterator[None]:
        """Open the branch in which vectors are moved: they are aligned, and each is in the view as
        a whole or not at all."""
        n, e = self.vector, self.e
        last, size = self.view.shape[-1], self.sizes[-1]
        even = (last % n == 0) | (as_expr(self.offsets[-1]) + size <= last)
        with e.block(f"if ({e.expr(self.aligned(n) & even)} && {self.based(n)})"):
            e.helper(VECTOR)
            yield

    def _coordinate(self, dim: int, source: Any, number: str) -> str:
        inner = dim - self.missing
        return self.layout.text(inner, source, number) if inner >= 0 else "0"

    def _steps(self, number: str) -> list[str]:
        return [self._coordinate(d, "register", number) for d in range(len(self.view.shape))]

    def _distance(self, index: list[str]) -> str:
        """Return how many elements ``index`` lies behind the view's pointer, as a C expression."""
        e, strides = self.e, self.view.strides
        unit = [isinstance(s, Const) and s.value == 1 for s in strides]
        steps = zip(index, strides, unit, strict=True)
        return " + ".join(f"({i})" if one else f"({i}) * {e.expr(s)}" for i, s, one in steps)


class _Global(Instruction):
    """What both directions check."""

    def check(self, view: GlobalTensor, offsets: Sequence[ExprLike], tile: RegisterTensor) -> None:
        """Refuse a box that does not fit the view's dimensions and type."""
        rank = len(view.shape)
        rule = f"a tile of {rank} dimensions or fewer"
        self.require(len(tile.shape) <= rank, "src", rule, tile.shape)
        self.require(len(offsets) == rank, "offsets", f"a list of {rank}", len(offsets))
        for x in offsets:
            as_integer(x, "an offset")


@dataclass(frozen=True, eq=False, kw_only=True)
class load_global(_Global):
    """Load the box of ``src`` that begins at ``offsets`` into registers of the current threads.

    ``offsets`` count elements, one per dimension; ``shape`` is that of the tile. With fewer
    dimensions than the view it is a box of the last ones. Elements outside of the view are 0, or
    the number ``outside``.

    NumPy: out = src[box at offsets], ``outside`` outside of src
    PTX:   ld.global, 16 bytes at once where the box is aligned
    """

    effects = (reads("src"), writes("out"))
    src: GlobalTensor
    offsets: Sequence[ExprLike]
    shape: Sequence[int]
    outside: Scalar = 0
    out: RegisterTensor

    @classmethod
    def result(cls, site: Site, /, **arguments: Any) -> RegisterTensor:
        shape, src = tile_shape("load_global", arguments["shape"], site), arguments["src"]
        if not isinstance(src, GlobalTensor):
            message = "load_global: src must be a view made by self.global_view, got "
            raise LanguageError(message + type(src).__name__, site.location)
        return RegisterTensor(site.name, src.dtype, shape, site.threads)

    def verify(self) -> None:
        self.check(self.src, self.offsets, self.out)
        dtype = self.src.dtype
        fits = is_number_of(self.outside, dtype)
        self.require(fits, "outside", f"a compile-time number of type {dtype}", self.outside)

    def emit(self, e: Emitter) -> None:
        e.declare(self.out, None)
        box, out = Box(e, self.src, self.out, self.offsets), e.registers(self.out)
        first, base = box.begin()
        if box.vector > 1:
            self._vectors(e, box, first, base)
            e.line("else")
        with e.block(""):
            e.line("#pragma unroll")
            e.line(f"for (int r = 0; r < {box.layout.registers}; ++r)")
            value = f"{box.inside(first, 'r')} ? {base}[{box.at('r')}] : {self._other(e)}"
            e.line(f"  {out}[r] = {value};")

    def _other(self, e: Emitter) -> str:
        """Return what stands outside of the view as a C expression."""
        return e.expr(cast(self.outside, self.src.dtype)) if self.outside else "0"

    def _vectors(self, e: Emitter, box: Box, first: list[str], base: str) -> None:
        n, out = box.vector, e.registers(self.out)
        kind = f"vector<{self.out.dtype.cpp}, {n}>"
        with box.vectors():
            e.line("#pragma unroll")
            with e.block(f"for (int r = 0; r < {box.layout.registers}; r += {n})"):
                e.line(f"{kind} part = {{{', '.join([self._other(e)] * n * bool(self.outside))}}};")
                where = f"*(const {kind} *)({base} + {box.at('r')})"
                e.line(f"if ({box.inside(first, 'r')}) part = {where};")
                e.line("#pragma unroll")
                e.line(f"for (int v = 0; v < {n}; ++v) {out}[r + v] = part.at[v];")

    def simulate(self, m: Machine) -> None:
        offsets = [int(m.value(x)) for x in self.offsets]
        box = (1,) * (len(offsets) - len(self.out.shape)) + self.out.shape
        values = m.load_global(self.src, offsets, box, by=self.out)
        places = [i + o for i, o in zip(np.indices(box, sparse=True), offsets, strict=True)]
        sizes = [int(m.value(n)) for n in self.src.shape]
        inside = [(i >= 0) & (i < n) for i, n in zip(places, sizes, strict=True)]
        values = np.where(reduce(np.logical_and, inside), values, self.outside)
        m.define(self.out, values.reshape(self.out.shape))


@dataclass(frozen=True, eq=False, kw_only=True)
class store_global(_Global):
    """Store the tile ``src`` to the box of ``dst`` that begins at ``offsets``.

    ``offsets`` count elements, one per dimension. A tile of fewer dimensions than the view is a box
    of the last ones. Every thread stores the elements it holds, one thread where several hold the
    same; elements outside of the view are dropped.

    NumPy: dst[box at offsets] = src, inside of dst
    PTX:   st.global
    """

    effects = (reads("src"), writes("dst"))
    dst: GlobalTensor
    src: RegisterTensor
    offsets: Sequence[ExprLike]

    def verify(self) -> None:
        self.check(self.dst, self.offsets, self.src)
        self.require(
            self.src.dtype == self.dst.dtype, "src", f"of type {self.dst.dtype}", self.src.dtype
        )
        held = self.src.threads
        self.require(held == self.threads, "src", f"held by {self.threads.role}", held.role)

    def emit(self, e: Emitter) -> None:
        box, src = Box(e, self.dst, self.src, self.offsets), e.registers(self.src)
        first, base = box.begin()
        holder = first_holder(e, box.layout)
        if holder:
            with e.block(holder):
                self._store(e, box, src, first, base)
        else:
            self._store(e, box, src, first, base)

    def _store(self, e: Emitter, box: Box, src: str, first: list[str], base: str) -> None:
        if has_quads(box.layout) and self.src.dtype.bits == 16:
            self._quads(e, box, src, base)
            e.line("else")
        elif box.vector > 1:
            self._vectors(e, box, src, first, base)
            e.line("else")
        with e.block(""):
            e.line("#pragma unroll")
            e.line(f"for (int r = 0; r < {box.layout.registers}; ++r)")
            e.line(f"  if ({box.inside(first, 'r')}) {base}[{box.at('r')}] = {src}[r];")

    def _vectors(self, e: Emitter, box: Box, src: str, first: list[str], base: str) -> None:
        n, kind = box.vector, f"vector<{self.src.dtype.cpp}, {box.vector}>"
        with box.vectors():
            e.line("#pragma unroll")
            with e.block(f"for (int r = 0; r < {box.layout.registers}; r += {n})"):
                e.line(f"{kind} part;")
                e.line("#pragma unroll")
                e.line(f"for (int v = 0; v < {n}; ++v) part.at[v] = {src}[r + v];")
                e.line(f"if ({box.inside(first, 'r')}) *({kind} *)({base} + {box.at('r')}) = part;")

    def _quads(self, e: Emitter, box: Box, src: str, base: str) -> None:
        """Store a tile that lies inside of the view and is aligned 16 bytes at once: four threads
        exchange their fragments."""
        e.helper(PACK)
        with e.block(f"if ({e.expr(box.whole(box.aligned(8)))} && {box.based(8)})"):
            e.line("#pragma unroll")
            e.helper(TRANSPOSE_QUAD)
            pairs = [f"pack({src}[r + {i}], {src}[r + {i + 1}])" for i in (0, 4, 8, 12)]
            with e.block(f"for (int quad = 0; quad < {box.layout.registers // 8}; ++quad)"):
                e.line("const int r = quad / 2 * 16 + quad % 2 * 2;  // four blocks of 8 columns")
                e.line(f"const uint4 row = transpose_quad(make_uint4({', '.join(pairs)}));")
                e.line(f"*(uint4 *)({base} + {box.at('r')} + {e.thread()} % 4 * 6) = row;")

    def simulate(self, m: Machine) -> None:
        offsets = [int(m.value(x)) for x in self.offsets]
        shape = (1,) * (len(offsets) - len(self.src.shape)) + self.src.shape
        m.store_global(self.dst, offsets, m.registers(self.src).reshape(shape), by=self.src)

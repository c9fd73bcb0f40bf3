# SPDX-License-Identifier: Apache-2.0
"""Reductions of register tiles: over a thread's registers, the lanes of a warp, and the warps.

A row that lies in one warp is reduced by shuffles; where warps share it, they exchange their parts
through shared memory. Every thread of the row then holds the result. 16-bit floats are summed in
float32. The order of a sum is not that of NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any, ClassVar

import numpy as np

from tilus import ir
from tilus.dtypes import DType, boolean, float32, int32, uint32
from tilus.errors import LanguageError
from tilus.ir import (
    Const,
    Constraints,
    Emitter,
    Instruction,
    Machine,
    RegisterTensor,
    Site,
    reads,
    writes,
)
from tilus.layout import Digit, RegisterLayout
from tilus.ops import numbers
from tilus.ops.operators import TABLE, describe
from tilus.ops.tile import place

WARP = 32


@dataclass(frozen=True)
class Exchange:
    """How the threads that share a row exchange their parts.

    ``lanes`` are lane numbers to exclusive-or with, one after another; ``parts`` are digits of a
    thread's number that tell the parts of other warps apart.
    """

    lanes: tuple[int, ...]
    parts: tuple[Digit, ...]

    @property
    def count(self) -> int:
        """How many parts there are after the shuffles."""
        return prod(d.size for d in self.parts)

    def part(self, thread: str) -> str:
        """Return the number of a thread's part as a C expression."""
        return " + ".join(d.text(thread) for d in self.parts) or "0"


def exchange(layout: RegisterLayout, dims: Sequence[int]) -> Exchange:
    """Return how the threads of a tile exchange the parts of a reduction over ``dims``."""
    lanes: list[int] = []
    parts: list[Digit] = []
    count = 1
    for d in layout.digits:
        if d.source != "thread" or d.dim not in dims:
            continue
        room = WARP // d.divisor if WARP % d.divisor == 0 else 1
        inside = gcd(d.size, room)  # a power of two: lanes that differ in one bit
        lanes += [d.divisor << i for i in range(inside.bit_length() - 1)]
        if d.size > inside:
            parts.append(Digit(d.dim, "thread", d.divisor * inside, d.size // inside, count))
            count *= d.size // inside
    return Exchange(tuple(lanes), tuple(parts))


@dataclass(frozen=True, eq=False, kw_only=True)
class _Reduction(Instruction):
    """What all of them share."""

    issuer = "group"
    effects = (reads("x"), writes("out"))
    symbol: ClassVar[str]
    x: RegisterTensor
    dim: int | Sequence[int] | None = None
    keepdim: bool = False
    out: RegisterTensor

    @classmethod
    def result(cls, site: Site, /, **arguments: Any) -> RegisterTensor:
        x, keepdim = arguments["x"], arguments.get("keepdim", False)
        if not isinstance(x, RegisterTensor):
            message = f"{cls.__name__}: takes a register tile, got {describe(x)}"
            raise LanguageError(message, site.location)
        dims = dimensions(cls.__name__, arguments.get("dim"), len(x.shape))
        sizes = [1 if d in dims else n for d, n in enumerate(x.shape)]
        shape = tuple(n for d, n in enumerate(sizes) if keepdim or d not in dims)
        return RegisterTensor(site.name, cls.type(x.dtype), shape, x.threads)

    @classmethod
    def type(cls, dtype: DType) -> DType:
        """Return the type of the result for elements of ``dtype``."""
        return dtype

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions that are reduced, as numbers from 0."""
        return dimensions(type(self).__name__, self.dim, len(self.x.shape))

    @property
    def compute(self) -> DType:
        """The type in which parts are combined."""
        wide = numbers.wide(self.out.dtype)
        return wide if wide.bits >= 32 else uint32 if wide.kind == "u" else int32

    @property
    def first(self) -> Const:
        """What changes nothing when combined."""
        raise NotImplementedError

    def verify(self) -> None:
        held, role = self.x.threads, self.threads.role
        self.require(held == self.threads, "x", f"held by {role}", held.role)
        known = self.x.dtype.name != "float64"
        self.require(known, "x", "of at most 32 bits, or integer", self.x.dtype)

    def constrain(self, c: Constraints) -> None:
        c.reduced(self.out, self.x, self.dims)

    def scratch_bytes(self, layouts: Mapping[RegisterTensor, RegisterLayout]) -> int:
        count = exchange(layouts[self.x], self.dims).count
        return count * prod(self.out.shape) * self.compute.nbytes if count > 1 else 0

    def emit(self, e: Emitter) -> None:
        layout, out = e.register_layout(self.x), e.register_layout(self.out)
        cpp, part = self.compute.cpp, e.fresh("parts")
        each = f"for (int r = 0; r < {out.registers}; ++r)"
        e.line(f"{cpp} {part}[{out.registers}];")
        self._unrolled(e, f"{each} {part}[r] = {e.expr(self.first)};")
        into = f"{part}[{layout.register_without(self.dims, 'r')}]"
        value = numbers.converted(e, f"{e.registers(self.x)}[r]", self.x.dtype, self.compute)
        count = layout.registers
        self._unrolled(
            e, f"for (int r = 0; r < {count}; ++r) {into} = {self._both(e, into, value)};"
        )
        found = exchange(layout, self.dims)
        for mask in found.lanes:
            other = f"__shfl_xor_sync(0xffffffff, {part}[r], {mask})"
            self._unrolled(e, f"{each} {part}[r] = {self._both(e, f'{part}[r]', other)};")
        if found.count > 1:
            self._across(e, found, part, out)
        e.declare(self.out, None)
        value = numbers.converted(e, f"{part}[r]", self.compute, self.out.dtype)
        self._unrolled(e, f"{each} {e.registers(self.out)}[r] = {value};")

    def _across(self, e: Emitter, found: Exchange, part: str, out: RegisterLayout) -> None:
        """Combine what warps hold of one row, through shared memory."""
        cpp, scratch = self.compute.cpp, e.fresh("scratch")
        each = f"for (int r = 0; r < {out.registers}; ++r)"
        at = f"{scratch} + ({place(e, out)}) * {found.count}"
        e.line(f"{cpp} *const {scratch} = ({cpp} *){e.scratch()};")
        e.sync_threads()
        self._unrolled(e, f"{each} *({at} + {found.part(e.thread())}) = {part}[r];")
        e.sync_threads()
        e.line("#pragma unroll")
        with e.block(each):
            e.line(f"const {cpp} *const row = {at};")
            e.line(f"{part}[r] = row[0];")
            more = f"{part}[r] = {self._both(e, f'{part}[r]', 'row[v]')};"
            self._unrolled(e, f"for (int v = 1; v < {found.count}; ++v) {more}")

    def _both(self, e: Emitter, a: str, b: str) -> str:
        row = TABLE[self.symbol]
        if row.helper:
            e.helper(row.helper)
        return row.code(self.compute, a, b)

    @staticmethod
    def _unrolled(e: Emitter, text: str) -> None:
        e.line("#pragma unroll")
        e.line(text)

    def simulate(self, m: Machine) -> None:
        values = numbers.convert(m.registers(self.x), self.compute)
        ufunc: Any = TABLE[self.symbol].numpy
        with np.errstate(all="ignore"):
            found = ufunc.reduce(values, axis=self.dims, keepdims=self.keepdim)
        m.define(self.out, numbers.convert(np.asarray(found), self.out.dtype))


def dimensions(op: str, dim: Any, rank: int) -> tuple[int, ...]:
    """Return ``dim`` (one, several, or None for all) as numbers from 0."""
    given = tuple(range(rank)) if dim is None else dim if isinstance(dim, tuple | list) else (dim,)
    good = all(isinstance(d, int) and -rank <= d < rank for d in given)
    dims = tuple(sorted({d % rank for d in given})) if good else ()
    if not good or len(dims) < len(given):
        rule = f"compile-time dimensions from {-rank} to {rank - 1}, each once"
        raise LanguageError(f"{op}: dim must be {rule}, got {ir.describe(dim)}")
    return dims


def _limit(dtype: DType, sign: int) -> Const:
    """Return the least (``sign`` -1) or largest number of a type."""
    if dtype.is_float:
        return Const(sign * float("inf"), dtype)
    least, most = numbers.bounds(dtype)
    return Const(least if sign < 0 else most, dtype)


@dataclass(frozen=True, eq=False, kw_only=True)
class sum(_Reduction):
    """Add the elements along ``dim``: a dimension, several, or all where it is None.

    The dimension is left out of the result, or has one element with ``keepdim``. Booleans and
    integers of less than 32 bits are added as integers of 32 bits, which wrap.

    NumPy: out = x.sum(axis=dim, keepdims=keepdim)
    PTX:   add, shfl.sync.bfly, and shared memory where warps share a row
    """

    symbol = "+"

    @classmethod
    def type(cls, dtype: DType) -> DType:
        if dtype == boolean or (dtype.is_integer and dtype.bits < 32):
            return uint32 if dtype.kind == "u" else int32
        return dtype

    @property
    def first(self) -> Const:
        return Const(0.0 if self.compute == float32 else 0, self.compute)


@dataclass(frozen=True, eq=False, kw_only=True)
class max(_Reduction):
    """Take the largest element along ``dim``: a dimension, several, or all where it is None.

    The dimension is left out of the result, or has one element with ``keepdim``. NaN where an
    element is NaN.

    NumPy: out = x.max(axis=dim, keepdims=keepdim)
    PTX:   max, shfl.sync.bfly, and shared memory where warps share a row
    """

    symbol = "max"

    @property
    def first(self) -> Const:
        return _limit(self.compute, -1)


@dataclass(frozen=True, eq=False, kw_only=True)
class min(_Reduction):
    """Take the smallest element along ``dim``: a dimension, several, or all where it is None.

    The dimension is left out of the result, or has one element with ``keepdim``. NaN where an
    element is NaN.

    NumPy: out = x.min(axis=dim, keepdims=keepdim)
    PTX:   min, shfl.sync.bfly, and shared memory where warps share a row
    """

    symbol = "min"

    @property
    def first(self) -> Const:
        return _limit(self.compute, 1)

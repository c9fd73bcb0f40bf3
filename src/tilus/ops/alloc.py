# SPDX-License-Identifier: Apache-2.0
"""Views of device memory and allocations in shared memory and registers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilus.dtypes import DType, int64, uint64
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
    SharedBuffer,
    SharedTensor,
    Site,
    Var,
    as_expr,
    as_integer,
    cast,
    describe,
    wrap,
    writes,
)

REPLICATED_ELEMENTS = 32


def tile_shape(op: str, shape: Any, site: Site) -> tuple[int, ...]:
    """Return ``shape`` as a tuple of positive compile-time integers."""
    if not isinstance(shape, Sequence) or not all(isinstance(n, int) and n > 0 for n in shape):
        message = (
            f"{op}: shape must be a list of positive compile-time integers, got {describe(shape)}"
        )
        raise LanguageError(message, site.location)
    return tuple(shape)


def is_number_of(value: object, dtype: DType) -> bool:
    """Say whether ``value`` is a compile-time number that a ``dtype`` holds; floats are rounded."""
    if not isinstance(value, int | float) or (isinstance(value, int) and value.bit_length() > 64):
        return False
    return dtype.is_float or (math.isfinite(value) and wrap(value, dtype) == value)


@dataclass(frozen=True, eq=False, kw_only=True)
class global_view(Instruction):
    """View the memory behind the pointer ``ptr`` as a tensor of ``shape``.

    ``shape`` and ``strides`` count elements and may use run-time parameters; without ``strides``
    the view is row-major.

    NumPy: out = np.lib.stride_tricks.as_strided(ptr, shape, strides)
    PTX:   none; an address computation
    """

    ptr: Var
    dtype: DType
    shape: Sequence[ExprLike]
    strides: Sequence[ExprLike] | None = None
    out: GlobalTensor

    @classmethod
    def result(cls, site: Site, /, **arguments: Any) -> GlobalTensor:
        ptr, shape = arguments["ptr"], arguments["shape"]
        if not isinstance(ptr, Var) or ptr.dtype != uint64:
            message = f"global_view: ptr must be a pointer parameter, got {describe(ptr)}"
            raise LanguageError(message, site.location)
        sizes = tuple(as_integer(n, "a size") for n in shape)
        strides = arguments.get("strides")
        given = None if strides is None else [as_integer(s, "a stride") for s in strides]
        steps = row_major(sizes) if given is None else tuple(cast(s, int64) for s in given)
        if len(steps) != len(sizes):
            message = f"global_view: strides must be a list of {len(sizes)}, got {len(steps)}"
            raise LanguageError(message, site.location)
        return GlobalTensor(site.name, ptr, arguments["dtype"], sizes, steps)

    def emit(self, e: Emitter) -> None:
        """Nothing to do: uses of the view compute their own addresses."""

    def simulate(self, m: Machine) -> None:
        """Nothing to do: uses of the view compute their own addresses."""


def row_major(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return the strides, in elements and 64 bits wide, of a dense row-major tensor of
    ``shape``."""
    step: Expr = Const(1, int64)
    strides = []
    for n in reversed(shape):
        strides.append(step)
        step = step * cast(n, int64)
    return tuple(reversed(strides))


@dataclass(frozen=True, eq=False, kw_only=True)
class shared_tensor(Instruction):
    """Allocate a tensor in shared memory for the whole block; its content is undefined.

    The last two dimensions are a tile, leading ones count tiles (stages). Placement and swizzle
    are the compiler's choice. Any number of columns will do for threads; rows of a tile that TMA
    fills or WGMMA reads are a multiple of 32 bytes (8 columns of float32, 16 of float16), those of
    one that TMA only stores a multiple of 16. A view need not be as wide: what TMA fills beyond
    its end is zero.

    NumPy: out = np.empty(shape, dtype)
    PTX:   .shared, dynamic
    """

    dtype: DType
    shape: Sequence[int]
    out: SharedTensor

    @classmethod
    def result(cls, site: Site, /, **arguments: Any) -> SharedTensor:
        shape = tile_shape("shared_tensor", arguments["shape"], site)
        if not shape:
            message = "shared_tensor: shape must be of one dimension or more, got []"
            raise LanguageError(message, site.location)
        buffer = SharedBuffer(site.name, arguments["dtype"], shape, site.location)
        return SharedTensor(buffer, shape, as_expr(0))

    def emit(self, e: Emitter) -> None:
        """Nothing to do: the passes have placed the buffer."""

    def simulate(self, m: Machine) -> None:
        """Nothing to do: shared memory starts out poisoned."""


@dataclass(frozen=True, eq=False, kw_only=True)
class register_tensor(Instruction):
    """Allocate a tile in the registers of the current threads.

    ``init``, where given, is the value of every element. A one-dimensional integer tensor of at
    most 32 elements is held whole by every thread and may be indexed by run-time values (phases of
    a ring, counters).

    NumPy: out = np.full(shape, init, dtype)
    PTX:   .reg
    """

    operators = ("new",)
    effects = (writes("out"),)
    dtype: DType
    shape: Sequence[int]
    init: Scalar | None = None
    out: RegisterTensor

    @classmethod
    def result(cls, site: Site, /, **arguments: Any) -> RegisterTensor:
        shape, dtype = tile_shape("register_tensor", arguments["shape"], site), arguments["dtype"]
        small = len(shape) == 1 and dtype.is_integer and shape[0] <= REPLICATED_ELEMENTS
        return RegisterTensor(site.name, dtype, shape, site.threads, replicated=small)

    def verify(self) -> None:
        good = self.init is None or is_number_of(self.init, self.dtype)
        self.require(good, "init", f"a compile-time number of type {self.dtype}", self.init)

    def split_init(self) -> tuple[Instruction, Instruction] | None:
        if self.out.replicated or self.init != 0:
            return None
        value = fill(location=self.location, threads=self.threads, tensor=self.out, value=0)
        return replace(self, init=None), value

    def emit(self, e: Emitter) -> None:
        e.declare(self.out, self.init)

    def simulate(self, m: Machine) -> None:
        poison = np.nan if self.dtype.is_float else 0
        m.define(self.out, np.full(self.out.shape, poison if self.init is None else self.init))


@dataclass(frozen=True, eq=False, kw_only=True)
class fill(Instruction):
    """Give every element of a register tile one value.

    NumPy: tensor[...] = value
    PTX:   mov
    """

    effects = (writes("tensor"),)
    tensor: RegisterTensor
    value: Scalar

    def emit(self, e: Emitter) -> None:
        name, value = e.registers(self.tensor), e.expr(cast(self.value, self.tensor.dtype))
        count = e.register_layout(self.tensor).registers
        e.line("#pragma unroll")
        e.line(f"for (int r = 0; r < {count}; ++r) {name}[r] = {value};")

    def simulate(self, m: Machine) -> None:
        m.registers(self.tensor)[...] = self.value

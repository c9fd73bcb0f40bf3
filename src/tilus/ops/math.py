# SPDX-License-Identifier: Apache-2.0
"""Conversions between the types of register tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilus import ir
from tilus.dtypes import DType
from tilus.errors import LanguageError
from tilus.ir import (
    Constraints,
    Emitter,
    Expr,
    Instruction,
    Machine,
    RegisterTensor,
    Site,
    reads,
    writes,
)
from tilus.ops import numbers


@dataclass(frozen=True, eq=False, kw_only=True)
class cast(Instruction):
    """Convert every element of ``x`` to ``dtype``; a number is converted too.

    Floats round to nearest, ties to even, and overflow to infinity. From float to integer the
    fraction is cut off, what lies out of range becomes the nearest integer there is, NaN becomes 0.
    Integers wrap. Whatever is not 0 is true.

    NumPy: out = x.astype(dtype)
    PTX:   cvt
    """

    effects = (reads("x"), writes("out"))
    x: RegisterTensor
    dtype: DType
    out: RegisterTensor

    @classmethod
    def scalar(cls, /, **arguments: Any) -> Any:
        x, dtype = arguments["x"], arguments["dtype"]
        return ir.cast(x, dtype) if isinstance(x, int | float | Expr) else None

    @classmethod
    def result(cls, site: Site, /, **arguments: Any) -> RegisterTensor:
        x, dtype = arguments["x"], arguments["dtype"]
        if not isinstance(x, RegisterTensor) or not isinstance(dtype, DType):
            found = f"{type(x).__name__} and {ir.describe(dtype)}"
            message = f"cast: takes a register tile and a type such as float16, got {found}"
            raise LanguageError(message, site.location)
        return RegisterTensor(site.name, dtype, x.shape, x.threads)

    def verify(self) -> None:
        pair = (self.x.dtype, self.dtype)
        wide = any(t.bits == 64 for t in pair) and any(t.is_float for t in pair)
        self.require(not wide or pair[0] == pair[1], "dtype", "of at most 32 bits", self.dtype)
        self.require(
            self.x.threads == self.threads, "x", f"held by {self.threads.role}", self.x.threads.role
        )

    def constrain(self, c: Constraints) -> None:
        c.same(self.x, self.out)

    def emit(self, e: Emitter) -> None:
        e.declare(self.out, None)
        out, x = e.registers(self.out), e.registers(self.x)
        count = e.register_layout(self.out).registers
        value = numbers.converted(e, f"{x}[r]", self.x.dtype, self.dtype)
        e.line("#pragma unroll")
        e.line(f"for (int r = 0; r < {count}; ++r) {out}[r] = {value};")

    def simulate(self, m: Machine) -> None:
        m.define(self.out, numbers.convert(m.registers(self.x), self.dtype))

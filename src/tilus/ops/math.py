# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on register tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilus.dtypes import DType, float16, float32
from tilus.ir import Constraints, Emitter, Instruction, Machine, RegisterTensor, Site, reads, writes

TO_HALF = """\
__device__ __forceinline__ half_t to_half(float x) {
  half_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}"""

FROM_HALF = """\
__device__ __forceinline__ float from_half(half_t h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}"""


@dataclass(frozen=True, eq=False, kw_only=True)
class cast(Instruction):
    """Convert every element of ``x`` to ``dtype``.

    Floats round to nearest, ties to even, and overflow to infinity.

    NumPy: out = x.astype(dtype)
    PTX:   cvt
    """

    effects = (reads("x"), writes("out"))
    x: RegisterTensor
    dtype: DType
    out: RegisterTensor

    @classmethod
    def result(cls, site: Site, /, **arguments: Any) -> RegisterTensor:
        x, dtype = arguments["x"], arguments["dtype"]
        return RegisterTensor(site.name, dtype, x.shape, x.threads, x.replicated)

    def verify(self) -> None:
        pair = (self.x.dtype, self.dtype)
        known = pair in ((float32, float16), (float16, float32))
        self.require(known, "dtype", "float16 for float32 values or the reverse", self.dtype)
        self.require(
            self.x.threads == self.threads, "x", f"held by {self.threads.role}", self.x.threads.role
        )

    def constrain(self, c: Constraints) -> None:
        c.same(self.x, self.out)

    def emit(self, e: Emitter) -> None:
        e.declare(self.out, None)
        convert, helper = (
            ("to_half", TO_HALF) if self.dtype == float16 else ("from_half", FROM_HALF)
        )
        e.helper(helper)
        out, x, count = (
            e.registers(self.out),
            e.registers(self.x),
            e.register_layout(self.x).registers,
        )
        e.line("#pragma unroll")
        e.line(f"for (int r = 0; r < {count}; ++r) {out}[r] = {convert}({x}[r]);")

    def simulate(self, m: Machine) -> None:
        m.define(self.out, m.registers(self.x))

# SPDX-License-Identifier: Apache-2.0
"""Matrix products on register tiles: ``mma.sync``, the tensor cores of every GPU since Ampere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilus.dtypes import DType, bfloat16, float16, float32
from tilus.ir import (
    Constraints,
    Emitter,
    Instruction,
    Machine,
    RegisterTensor,
    Site,
    reads,
    writes,
)
from tilus.layout import accumulator, mma_left, mma_right, warp_grid

M, N, K = 16, 8, 16  # one instruction's product, for 16-bit types

MMA = """\
/* d[16][8] += a[16][16] * b[16][8], spread over a warp. */
__device__ __forceinline__ void {name}({type} *d, const half_t *a, const half_t *b) {{
  unsigned x[4], y[2];
  memcpy(x, a, 16);
  memcpy(y, b, 8);
  {before}asm volatile("mma.sync.aligned.m16n8k16.row.col.{kind}.{ab}.{ab}.{kind} {d}, "
               "{{{a}}}, {{{b}}}, {d};"
               : {operands}
               : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));{behind}
}}"""


def helper(operands: DType, acc: DType) -> str:
    """Return the device function for one product; PTX ISA, "mma"."""
    half = acc == float16  # two to a register
    count, register = (2, '"+r"(z[{}])') if half else (4, '"+f"(d[{}])')
    places = [f"%{i}" for i in range(count + 6)]
    return MMA.format(
        name=name(operands, acc),
        type=acc.cpp,
        kind=acc.ptx,
        ab=operands.ptx,
        d=f"{{{', '.join(places[:count])}}}",
        a=", ".join(places[count : count + 4]),
        b=", ".join(places[count + 4 :]),
        operands=", ".join(register.format(i) for i in range(count)),
        before="unsigned z[2];\n  memcpy(z, d, 8);\n  " if half else "",
        behind="\n  memcpy(d, z, 8);" if half else "",
    )


def name(operands: DType, acc: DType) -> str:
    """Return the name of :func:`helper`'s function."""
    return f"mma_m16n8k16_{acc.ptx}_{operands.ptx}"


@dataclass(frozen=True, eq=False, kw_only=True)
class dot(Instruction):
    """Multiply the register tiles ``a`` [m, k] and ``b`` [k, n] and add ``acc`` [m, n].

    ``a`` and ``b`` are float16 or bfloat16. The sum is float32, or float16 where ``acc`` or ``out``
    is and the operands are float16. It is written to ``out``, which may be ``acc`` itself; without
    ``out`` a new tile is returned. m and k are multiples of 16, n of 8. The warps of the current
    group share the product in a grid, each as square a part as can be.

    NumPy: out = a.astype(out.dtype) @ b + (acc or 0)
    PTX:   mma.sync.m16n8k16
    """

    issuer = "warp"
    effects = (reads("a"), reads("b"), reads("acc"), writes("out"))
    a: RegisterTensor
    b: RegisterTensor
    acc: RegisterTensor | None = None
    out: RegisterTensor

    @classmethod
    def parameters(cls) -> tuple[str, ...]:
        return (*super().parameters(), "out")

    @classmethod
    def result(cls, site: Site, /, **arguments: Any) -> RegisterTensor:
        a, b, acc, out = (arguments.get(key) for key in ("a", "b", "acc", "out"))
        if isinstance(out, RegisterTensor):
            return out
        dtype = acc.dtype if isinstance(acc, RegisterTensor) else float32
        shape = (a.shape[0], b.shape[-1])  # type: ignore[union-attr]
        return RegisterTensor(site.name, dtype, shape, site.threads)

    def verify(self) -> None:
        self._verify_operands()
        self._verify_sums()
        threads = self.threads
        good = threads.count % 32 == 0 and threads.begin % 32 == 0
        self.require(good, "the current group", "whole warps", threads.role)

    def _verify_operands(self) -> None:
        for key, tile in (("a", self.a), ("b", self.b)):
            self._held(key, tile)
            types = (float16, bfloat16)
            self.require(tile.dtype in types, key, "of type float16 or bfloat16", tile.dtype)
        self.require(self.b.dtype == self.a.dtype, "b", f"of type {self.a.dtype}", self.b.dtype)
        (m, k), (depth, n) = self.a.shape, self.b.shape
        self.require(depth == k, "b", f"of shape [{k}, n]", list(self.b.shape))
        for key, size, unit in (("m", m, M), ("n", n, N), ("k", k, K)):
            self.require(size % unit == 0, key, f"a multiple of {unit}", size)

    def _verify_sums(self) -> None:
        shape = (self.a.shape[0], self.b.shape[1])
        types = (float32, float16) if self.a.dtype == float16 else (float32,)
        for key, tile in (("acc", self.acc), ("out", self.out)):
            if tile is None:
                continue
            self._held(key, tile)
            self.require(tile.shape == shape, key, f"of shape {list(shape)}", list(tile.shape))
            rule = "of type " + " or ".join(map(str, types))
            self.require(tile.dtype in types, key, rule, tile.dtype)
            self.require(
                tile.dtype == self.out.dtype, "out", f"of type {tile.dtype}", self.out.dtype
            )

    def _held(self, key: str, tile: object) -> None:
        rule = f"a two-dimensional register tile held by {self.threads.role}"
        good = isinstance(tile, RegisterTensor) and len(tile.shape) == 2
        self.require(good, key, rule, tile)
        held = getattr(tile, "threads", None)
        self.require(held == self.threads, key, rule, f"one of {getattr(held, 'role', held)}")

    def constrain(self, c: Constraints) -> None:
        (m, k), n, threads = self.a.shape, self.b.shape[1], self.threads.count
        grid = warp_grid(m, n, threads // 32)
        c.register(self.a, mma_left(m, k, grid, threads))
        c.register(self.b, mma_right(k, n, grid, threads))
        for tile in (self.acc, self.out):
            if tile is not None:
                c.register(tile, accumulator(m, n, grid, threads))

    def emit(self, e: Emitter) -> None:
        e.helper(helper(self.a.dtype, self.out.dtype))
        e.declare(self.out, None)
        a, b, out = (e.registers(t) for t in (self.a, self.b, self.out))
        sizes = [e.register_layout(t).registers for t in (self.a, self.b, self.out)]
        if self.acc is not self.out:
            start = f"{e.registers(self.acc)}[r]" if self.acc is not None else "0"
            e.line("#pragma unroll")
            e.line(f"for (int r = 0; r < {sizes[2]}; ++r) {out}[r] = {start};")
        steps = self.a.shape[1] // K
        rows, columns = sizes[0] // (8 * steps), sizes[1] // (4 * steps)
        k, i, j = (e.fresh(stem) for stem in "kij")
        for index, count in ((k, steps), (i, rows), (j, columns)):
            e.line("#pragma unroll")
            e.line(f"for (int {index} = 0; {index} < {count}; ++{index})")
        at_a, at_b = f"{a} + {i} * {8 * steps} + {k} * 8", f"{b} + {k} * {4 * columns} + {j} * 4"
        at_out = f"{out} + {i} * {4 * columns} + {j} * 4"
        e.line(f"  {name(self.a.dtype, self.out.dtype)}({at_out}, {at_a}, {at_b});")

    def simulate(self, m: Machine) -> None:
        a, b = (m.registers(t).astype(np.float32) for t in (self.a, self.b))
        m.define(self.out, a @ b + (m.registers(self.acc) if self.acc is not None else 0))
        m.multiply(2.0 * self.a.shape[0] * self.b.shape[1] * self.a.shape[1])

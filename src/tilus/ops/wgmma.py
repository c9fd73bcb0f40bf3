# SPDX-License-Identifier: Apache-2.0
"""WGMMA: asynchronous matrix products of a warp group on the tensor cores (PTX ISA, "wgmma")."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilus.dtypes import float16, float32
from tilus.ir import (
    Constraints,
    Emitter,
    Expr,
    ExprLike,
    Instruction,
    Machine,
    RegisterTensor,
    SharedTensor,
    Wait,
    accumulates,
    reads,
)
from tilus.layout import Swizzle, wgmma_accumulator

M, K = 64, 16  # rows of one instruction; depth of one instruction for 16-bit types
K_BYTES = 32
LAYOUT_TYPE = {Swizzle.B128: 1, Swizzle.B64: 2, Swizzle.B32: 3}
"""PTX ISA, "Matrix descriptor", bits 62-63."""

DESCRIPTOR = """\
/* A K-major operand: `stride` bytes lead from one group of eight rows to the next; `type` names
   the swizzle. */
__device__ __forceinline__ unsigned long long wgmma_descriptor(unsigned address, unsigned stride,
                                                              unsigned type) {
  return (unsigned long long)((address & 0x3ffff) >> 4) | 1ull << 16
       | (unsigned long long)(stride >> 4) << 32 | (unsigned long long)type << 62;
}"""


NEVER = """\
/* False, which ptxas cannot tell: where it sees that all products overwrite, it injects waits. */
__device__ __forceinline__ bool never() {
  unsigned nbytes;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(nbytes));
  return nbytes == 0;
}"""


def mma_helper(n: int) -> str:
    """Return the device function for one m64 n``n`` k16 product with float32 accumulators."""
    count = n // 2
    d = ", ".join(f"%{i}" for i in range(count))
    operands = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    return f"""\
/* d[64][{n}] = a[64][16] * b[16][{n}] (+ d where scale_d). */
__device__ __forceinline__ void wgmma_m64n{n}k16(float *d, unsigned long long a,
                                               unsigned long long b, int scale_d) {{
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{count + 2}, 0;\\n"
               "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16 "
               "{{{d}}}, "
               "%{count}, %{count + 1}, p, 1, 1, 0, 0; }}"
               : {operands}
               : "l"(a), "l"(b), "r"(scale_d));
}}"""


def _warpgroup(op: Instruction) -> None:
    """Refuse a group that is not four consecutive warps starting at a multiple of four."""
    threads = op.threads
    good = threads.count == 128 and threads.begin % 128 == 0
    rule = "128 threads that begin at a multiple of 128"
    op.require(good, "the current group", rule, f"threads {threads.begin}-{threads.end - 1}")


class _WarpGroup(Instruction):
    """What all WGMMA instructions share: four consecutive warps issue them together."""

    issuer, proxy = "warpgroup", "async"

    def verify(self) -> None:
        _warpgroup(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class fence(_WarpGroup):
    """Order earlier accesses of the accumulator registers before the products that follow.

    Needed before the first product, and after ordinary code has touched the accumulator.

    NumPy: none
    PTX:   wgmma.fence
    """

    def emit(self, e: Emitter) -> None:
        e.line('asm volatile("wgmma.fence.sync.aligned;" ::: "memory");')

    def simulate(self, m: Machine) -> None:
        """Nothing to do: the first form of the simulator does not track register ordering."""


@dataclass(frozen=True, eq=False, kw_only=True)
class mma(_WarpGroup):
    """Start adding the product of ``a`` [m, k] and ``b`` [k, n] to ``acc`` [m, n].

    Both operands lie in shared memory, ``acc`` in registers. ``b`` is stored K-major and passed as
    ``tile.transpose()``. Where ``scale_d`` is false the product overwrites ``acc``. The operands
    are read, and ``acc`` is written, until :class:`wait_group` says that the group has finished.
    m is a multiple of 64, n a multiple of 8 up to 256, k a multiple of 16.

    NumPy: acc[...] = a.astype(acc.dtype) @ b + (acc if scale_d else 0)
    PTX:   wgmma.mma_async
    """

    effects = (reads("a", done="group"), reads("b", done="group"), accumulates("acc", done="group"))
    a: SharedTensor
    b: SharedTensor
    acc: RegisterTensor
    scale_d: ExprLike = True

    def verify(self) -> None:
        super().verify()
        for name, operand, k_major in (
            ("a", self.a, not self.a.transposed),
            ("b", self.b, self.b.transposed),
        ):
            self.require(operand.dtype == float16, name, "of type float16", operand.dtype)
            self.require(
                len(operand.shape) == 2, name, "a 2-D tile", f"{len(operand.shape)} dimensions"
            )
            self.require(
                k_major, name, "stored K-major (b as tile.transpose())", "an MN-major tile"
            )
        self.require(self.acc.dtype == float32, "acc", "of type float32", self.acc.dtype)
        self.require(
            self.acc.threads == self.threads,
            "acc",
            "held by the current group",
            self.acc.threads.role,
        )
        (m, k), n = self.a.shape, self.b.shape[1]
        self.require(self.b.shape[0] == k, "b", f"of shape [{k}, n]", list(self.b.shape))
        self.require(self.acc.shape == (m, n), "acc", f"of shape [{m}, {n}]", list(self.acc.shape))
        self.require(m % M == 0, "m", f"a multiple of {M}", m)
        self.require(n % 8 == 0 and n <= 256, "n", "a multiple of 8 up to 256", n)
        self.require(k % K == 0, "k", f"a multiple of {K}", k)

    def constrain(self, c: Constraints) -> None:
        c.swizzled(self.a)
        c.swizzled(self.b)
        c.register(self.acc, wgmma_accumulator(*self.acc.shape))

    def emit(self, e: Emitter) -> None:
        (m, k), n = self.a.shape, self.b.shape[1]
        e.helper(DESCRIPTOR)
        e.helper(mma_helper(n))
        acc = e.registers(self.acc)
        first = e.expr(self.scale_d if isinstance(self.scale_d, Expr) else int(self.scale_d))
        if k == K and self.scale_d is not True:
            e.helper(NEVER)
            first = f"{first} || never()"
        a, b = (self._descriptor(e, name, x) for name, x in (("a", self.a), ("b", self.b)))
        for i in range(m // M):
            for j in range(k // K):
                at_a = self._step(e, self.a, j, i * M)
                at_b = self._step(e, self.b, j, 0)
                d = f"{acc} + {i * n // 2}" if i else acc
                scale_d = "1" if j else first
                e.line(f"wgmma_m64n{n}k16({d}, {a} + {at_a}, {b} + {at_b}, {scale_d});")

    @staticmethod
    def _descriptor(e: Emitter, name: str, operand: SharedTensor) -> str:
        """Declare the descriptor of the operand's first row and column; return its name."""
        layout, desc = e.shared_layout(operand), e.fresh(f"{name}_desc")
        stride, kind = 8 * layout.swizzle, LAYOUT_TYPE[layout.swizzle]
        e.line(
            f"const unsigned long long {desc} = "
            f"wgmma_descriptor({e.shared(operand)}, {stride}, {kind});"
        )
        return desc

    @staticmethod
    def _step(e: Emitter, operand: SharedTensor, k_step: int, row: int) -> int:
        """Return what moves a descriptor to depth ``16 * k_step`` and ``row``: 16-byte units,
        before swizzling."""
        layout = e.shared_layout(operand)
        panel, inner = divmod(k_step * K_BYTES, layout.swizzle)
        return (panel * layout.panel_bytes + row * layout.swizzle + inner) // 16

    def simulate(self, m: Machine) -> None:
        a, b = m.freeze(self.a), m.freeze(self.b)
        acc, add = m.registers(self.acc), bool(m.value(self.scale_d))

        def land() -> None:
            x, y = (m.load_shared(t, proxy="async").astype(np.float32) for t in (a, b))
            acc[...] = x @ y + (acc if add else 0)

        (rows, k), n = self.a.shape, self.b.shape[1]
        m.launch("wgmma", land, amount=2.0 * rows * n * k, what=f"{a.name} x {b.name}")


@dataclass(frozen=True, eq=False, kw_only=True)
class commit_group(_WarpGroup):
    """Close the products started so far into one group, for :class:`wait_group` to count.

    NumPy: none
    PTX:   wgmma.commit_group
    """

    def emit(self, e: Emitter) -> None:
        e.line('asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");')

    def simulate(self, m: Machine) -> None:
        m.commit("wgmma")


@dataclass(frozen=True, eq=False, kw_only=True)
class wait_group(_WarpGroup):
    """Wait until at most ``n`` of the committed groups are still unfinished (0 to 7).

    NumPy: none
    PTX:   wgmma.wait_group
    """

    n: int

    def verify(self) -> None:
        super().verify()
        good = isinstance(self.n, int) and 0 <= self.n <= 7
        self.require(good, "n", "a compile-time integer from 0 to 7", self.n)

    def emit(self, e: Emitter) -> None:
        e.line(f'asm volatile("wgmma.wait_group.sync.aligned {self.n};" ::: "memory");')

    def simulate(self, m: Machine) -> Wait:
        return m.wait_commits("wgmma", self.n)

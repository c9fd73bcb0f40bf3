# SPDX-License-Identifier: Apache-2.0
"""WGMMA: asynchronous matrix products of a warp group on the tensor cores (PTX ISA, "wgmma")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilus.dtypes import DType, bfloat16, float16, float32
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

MN_DESCRIPTOR = """\
/* An operand whose rows run along m or n: `panel` bytes lead from one panel of columns to the next,
   `stride` bytes from one group of eight rows to the next. */
__device__ __forceinline__ unsigned long long wgmma_mn_descriptor(unsigned address, unsigned panel,
                                                                 unsigned stride, unsigned type) {
  return (unsigned long long)((address & 0x3ffff) >> 4) | (unsigned long long)(panel >> 4) << 16
       | (unsigned long long)(stride >> 4) << 32 | (unsigned long long)type << 62;
}"""


NEVER = """\
/* False, which ptxas cannot tell: where it sees that all products overwrite, it injects waits. */
__device__ __forceinline__ bool never() {
  unsigned nbytes;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(nbytes));
  return nbytes == 0;
}"""


@dataclass(frozen=True)
class Form:
    """One form of the instruction: its width, its types, and how the operands lie."""

    n: int
    operand: DType = float16
    acc: DType = float32
    a_registers: bool = False
    a_mn: bool = False
    b_mn: bool = False

    @property
    def name(self) -> str:
        """Name of its device function."""
        words = [f"wgmma_m64n{self.n}k16"]
        words += ["bf16"] if self.operand == bfloat16 else []
        words += ["f16"] if self.acc == float16 else []
        words += ["ra"] if self.a_registers else []
        words += ["ta"] if self.a_mn else []
        words += ["tb"] if self.b_mn else []
        return "_".join(words)

    @property
    def helper(self) -> str:
        """The device function for one product of depth 16."""
        half = self.acc == float16
        count = self.n // 4 if half else self.n // 2  # registers of d
        next_ = count + (4 if self.a_registers else 1)  # number of b's operand
        d = ", ".join(f"%{i}" for i in range(count))
        kind = "r" if half else "f"
        operands = ", ".join(f'"+{kind}"(d[{i}])' for i in range(count))
        a = f"%{count}"
        if self.a_registers:
            a = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}"
        inputs = ", ".join(f'"r"(a[{i}])' for i in range(4)) if self.a_registers else '"l"(a)'
        flags = f"{int(self.b_mn)}" if self.a_registers else f"{int(self.a_mn)}, {int(self.b_mn)}"
        types = f"{self.acc.ptx}.{self.operand.ptx}.{self.operand.ptx}"
        pad = " " * (len(f"void {self.name}(") + 27)
        return f"""\
/* d[64][{self.n}] = a[64][16] * b[16][{self.n}] (+ d where scale_d). */
__device__ __forceinline__ void {self.name}({"unsigned" if half else "float"} *d, \
{"const unsigned *" if self.a_registers else "unsigned long long "}a,
{pad}unsigned long long b, int scale_d) {{
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{next_ + 1}, 0;\\n"
               "wgmma.mma_async.sync.aligned.m64n{self.n}k16.{types} "
               "{{{d}}}, "
               "{a}, %{next_}, p, 1, 1, {flags}; }}"
               : {operands}
               : {inputs}, "l"(b), "r"(scale_d));
}}"""


def describe(tile: object) -> str:
    """Name what was passed for a tile."""
    kinds = {SharedTensor: "one in shared memory", RegisterTensor: "one in registers"}
    return kinds.get(type(tile), repr(tile))


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
        m.fence_registers()


@dataclass(frozen=True, eq=False, kw_only=True)
class mma(_WarpGroup):
    """Start adding the product of ``a`` [m, k] and ``b`` [k, n] to ``acc`` [m, n].

    ``a`` lies in shared memory or in the registers of the group, ``b`` in shared memory, ``acc`` in
    registers. A tile stored K-major, [n, k], is passed as ``b=tile.transpose()``; one stored
    [k, n] as it is. Operands are float16 or bfloat16, ``acc`` is float32, or float16 for float16
    operands. Where ``scale_d`` is false the product overwrites ``acc``. The operands are read, and
    ``acc`` is written, until :class:`wait_group` says that the group has finished. m is a multiple
    of 64, n a multiple of 8 up to 256, k a multiple of 16.

    NumPy: acc[...] = a.astype(acc.dtype) @ b + (acc if scale_d else 0)
    PTX:   wgmma.mma_async
    """

    effects = (reads("a", done="group"), reads("b", done="group"), accumulates("acc", done="group"))
    a: SharedTensor | RegisterTensor
    b: SharedTensor
    acc: RegisterTensor
    scale_d: ExprLike = True

    def verify(self) -> None:
        super().verify()
        in_registers = isinstance(self.a, RegisterTensor)
        self.require(
            in_registers or isinstance(self.a, SharedTensor), "a", "a tile", describe(self.a)
        )
        self.require(
            isinstance(self.b, SharedTensor), "b", "a tile in shared memory", describe(self.b)
        )
        self.require(
            isinstance(self.acc, RegisterTensor), "acc", "a tile in registers", describe(self.acc)
        )
        for name, operand in (("a", self.a), ("b", self.b)):
            good = operand.dtype in (float16, bfloat16)
            self.require(good, name, "of type float16 or bfloat16", operand.dtype)
            rank = len(operand.shape)
            self.require(rank == 2, name, "a 2-D tile", f"{rank} dimensions")
        self.require(self.b.dtype == self.a.dtype, "b", f"of type {self.a.dtype}", self.b.dtype)
        narrow = self.acc.dtype == float16 and self.a.dtype == float16
        rule = "of type float32 (or float16, for float16 operands)"
        self.require(self.acc.dtype == float32 or narrow, "acc", rule, self.acc.dtype)
        for name, tile in (("acc", self.acc), ("a", self.a)):
            if isinstance(tile, RegisterTensor):
                held = tile.threads
                self.require(held == self.threads, name, "held by the current group", held.role)
        self._verify_shape()
        x = self.scale_d
        known = isinstance(x, int) and x in (0, 1)
        good = known or (isinstance(x, Expr) and not x.dtype.is_float and x.dtype.bits <= 32)
        self.require(good, "scale_d", "True or False, also at run time", x)

    def _verify_shape(self) -> None:
        (m, k), n = self.a.shape, self.b.shape[1]
        self.require(self.b.shape[0] == k, "b", f"of shape [{k}, n]", list(self.b.shape))
        self.require(self.acc.shape == (m, n), "acc", f"of shape [{m}, {n}]", list(self.acc.shape))
        self.require(m % M == 0, "m", f"a multiple of {M}", m)
        self.require(n % 8 == 0 and n <= 256, "n", "a multiple of 8 up to 256", n)
        self.require(k % K == 0, "k", f"a multiple of {K}", k)

    def constrain(self, c: Constraints) -> None:
        if isinstance(self.a, RegisterTensor):  # its fragment is that of an accumulator
            c.register(self.a, wgmma_accumulator(*self.a.shape))
        else:
            c.swizzled(self.a)
        c.swizzled(self.b)
        c.register(self.acc, wgmma_accumulator(*self.acc.shape))

    def emit(self, e: Emitter) -> None:
        (m, k), n = self.a.shape, self.b.shape[1]
        in_registers = isinstance(self.a, RegisterTensor)
        a_mn = isinstance(self.a, SharedTensor) and self.a.transposed
        b_mn = not self.b.transposed
        form = Form(n, self.a.dtype, self.acc.dtype, in_registers, a_mn, b_mn)
        first = e.expr(self.scale_d if isinstance(self.scale_d, Expr) else int(self.scale_d))
        d, step_d = self._accumulator(e, n)
        a = self._fragment(e, self.a) if in_registers else self._descriptor(e, "a", self.a, a_mn)
        b = self._descriptor(e, "b", self.b, b_mn)
        e.helper(form.helper)
        if k == K and self.scale_d is not True:
            e.helper(NEVER)
            first = f"{first} || never()"
        for i in range(m // M):
            for j in range(k // K):
                at_a = (i * k // K + j) * 4 if in_registers else self._step(e, self.a, j, i, a_mn)
                at_b = self._step(e, self.b, j, 0, b_mn)
                at_d = f"{d} + {i * step_d}" if i else d
                scale_d = "1" if j else first
                e.line(f"{form.name}({at_d}, {a} + {at_a}, {b} + {at_b}, {scale_d});")

    def _accumulator(self, e: Emitter, n: int) -> tuple[str, int]:
        """Return the registers of ``acc`` as C, and how many of them 64 rows take."""
        acc = e.registers(self.acc)
        return (f"(unsigned *){acc}", n // 4) if self.acc.dtype == float16 else (acc, n // 2)

    @staticmethod
    def _fragment(e: Emitter, operand: SharedTensor | RegisterTensor) -> str:
        assert isinstance(operand, RegisterTensor)
        return f"(const unsigned *){e.registers(operand)}"

    @staticmethod
    def _descriptor(
        e: Emitter, name: str, operand: SharedTensor | RegisterTensor, mn_major: bool
    ) -> str:
        """Declare the descriptor of the operand's first row and column; return its name."""
        assert isinstance(operand, SharedTensor)
        layout, desc = e.shared_layout(operand), e.fresh(f"{name}_desc")
        stride, kind = 8 * layout.swizzle, LAYOUT_TYPE[layout.swizzle]
        e.helper(MN_DESCRIPTOR if mn_major else DESCRIPTOR)
        call = (
            f"wgmma_mn_descriptor({e.shared(operand)}, {layout.panel_bytes}, {stride}, {kind})"
            if mn_major
            else f"wgmma_descriptor({e.shared(operand)}, {stride}, {kind})"
        )
        e.line(f"const unsigned long long {desc} = {call};")
        return desc

    @staticmethod
    def _step(
        e: Emitter,
        operand: SharedTensor | RegisterTensor,
        k_step: int,
        m_step: int,
        mn_major: bool,
    ) -> int:
        """Return what moves a descriptor to depth ``16 * k_step`` and row ``64 * m_step``: 16-byte
        units, before swizzling."""
        assert isinstance(operand, SharedTensor)
        layout = e.shared_layout(operand)
        if mn_major:
            panels = m_step * M // layout.panel_columns
            return (panels * layout.panel_bytes + k_step * K * layout.swizzle) // 16
        panel, inner = divmod(k_step * K_BYTES, layout.swizzle)
        return (panel * layout.panel_bytes + m_step * M * layout.swizzle + inner) // 16

    def simulate(self, m: Machine) -> None:
        a = m.freeze(self.a, "read") if isinstance(self.a, SharedTensor) else self.a
        b = m.freeze(self.b, "read")
        acc, add = m.registers(self.acc), bool(m.value(self.scale_d))

        def operand(x: SharedTensor | RegisterTensor) -> Any:
            found = (
                m.load_shared(x, proxy="async") if isinstance(x, SharedTensor) else m.registers(x)
            )
            return found.astype(np.float32)

        def land() -> None:
            acc[...] = operand(a) @ operand(b) + (acc if add else 0)

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

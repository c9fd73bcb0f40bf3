# SPDX-License-Identifier: Apache-2.0
"""Moves of register tiles, and of parts of them: between registers, most of which costs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

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
from tilus.layout import RegisterLayout


@dataclass(frozen=True, eq=False, kw_only=True)
class assign(Instruction):
    """Give the tile ``dst`` the values of ``src``.

    An assignment to a name that held a tile before a run-time loop or ``if`` becomes one, and so
    does ``tile += x``.

    NumPy: dst[...] = src
    PTX:   mov, most of which the compiler leaves out
    """

    operators = ("=",)
    effects = (writes("dst"), reads("src"))
    dst: RegisterTensor
    src: RegisterTensor

    def verify(self) -> None:
        dst, src = ((t.dtype.name, list(t.shape), t.threads.role) for t in (self.dst, self.src))
        self.require(dst == src, "the new value", f"{dst} as the tile is", src)
        held = self.dst.threads
        self.require(held == self.threads, "dst", f"held by {self.threads.role}", held.role)

    def constrain(self, c: Constraints) -> None:
        c.like(self.src, self.dst)

    def emit(self, e: Emitter) -> None:
        dst, src = e.registers(self.dst), e.registers(self.src)
        count = e.register_layout(self.dst).registers
        e.line("#pragma unroll")
        e.line(f"for (int r = 0; r < {count}; ++r) {dst}[r] = {src}[r];")

    def simulate(self, m: Machine) -> None:
        m.define(self.dst, m.registers(self.src))


@dataclass(frozen=True, eq=False, kw_only=True)
class slice(Instruction):
    """Take the box of ``shape`` at ``offsets`` out of the register tile ``x``.

    Both are compile-time integers. Each thread takes registers of its own, so that a box may only
    be cut where the layout goes from register to register: for an accumulator of WGMMA, columns at
    multiples of 8 and rows at multiples of 64.

    NumPy: out = x[box at offsets].copy()
    PTX:   none: registers get another name
    """

    effects = (reads("x"), writes("out"))
    x: RegisterTensor
    offsets: Sequence[int]
    shape: Sequence[int]
    out: RegisterTensor

    @classmethod
    def result(cls, site: Site, /, **arguments: Any) -> RegisterTensor:
        x, shape = arguments["x"], tuple(arguments["shape"])
        return RegisterTensor(site.name, x.dtype, shape, x.threads)

    def verify(self) -> None:
        held, has = self.x.threads, self.x.shape
        self.require(held == self.threads, "x", f"held by {self.threads.role}", held.role)
        self.require(not self.x.replicated, "x", "spread over threads", "one that each holds whole")
        for name, box in (("offsets", self.offsets), ("shape", self.shape)):
            good = len(box) == len(has) and all(type(n) is int and n >= 0 for n in box)
            self.require(good, name, f"{len(has)} compile-time integers", list(box))
        ends = zip(self.offsets, self.shape, has, strict=True)
        inside = all(n > 0 and first + n <= size for first, n, size in ends)
        rule = f"that of a box inside of {list(has)}"
        self.require(inside, "shape", rule, f"{list(self.shape)} at {list(self.offsets)}")

    def constrain(self, c: Constraints) -> None:
        c.part(self.out, self.x, self.offsets)

    def emit(self, e: Emitter) -> None:
        part = e.register_layout(self.x).part(self.offsets, self.shape)
        assert part, "the layout pass has refused it"
        e.declare(self.out, None)
        e.line("#pragma unroll")
        out, x = e.registers(self.out), e.registers(self.x)
        e.line(
            f"for (int r = 0; r < {part.layout.registers}; ++r) {out}[r] = {x}[{part.register}];"
        )

    def simulate(self, m: Machine) -> None:
        box = tuple(
            np.s_[first : first + n] for first, n in zip(self.offsets, self.shape, strict=True)
        )
        m.define(self.out, m.registers(self.x)[box].copy())


@dataclass(frozen=True, eq=False, kw_only=True)
class move(Instruction):
    """Bring the tile ``x`` into another register layout, through shared memory.

    Put in front of an instruction that needs ``x`` to lie otherwise than it does.

    NumPy: out = x
    PTX:   st.shared, bar.sync, ld.shared
    """

    issuer = "group"
    operators = ("move",)
    effects = (reads("x"), writes("out"))
    x: RegisterTensor
    out: RegisterTensor

    def scratch_bytes(self, layouts: Mapping[RegisterTensor, RegisterLayout]) -> int:
        return prod(self.x.shape) * self.x.dtype.nbytes

    def emit(self, e: Emitter) -> None:
        x, out = e.register_layout(self.x), e.register_layout(self.out)
        e.declare(self.out, None)
        scratch, cpp = e.fresh("scratch"), self.x.dtype.cpp
        e.line(f"{cpp} *const {scratch} = ({cpp} *){e.scratch()};")
        e.sync_threads()
        with e.block(first_holder(e, x)):
            e.line("#pragma unroll")
            e.line(
                f"for (int r = 0; r < {x.registers}; ++r) "
                f"{scratch}[{place(e, x)}] = {e.registers(self.x)}[r];"
            )
        e.sync_threads()
        e.line("#pragma unroll")
        e.line(
            f"for (int r = 0; r < {out.registers}; ++r) "
            f"{e.registers(self.out)}[r] = {scratch}[{place(e, out)}];"
        )

    def simulate(self, m: Machine) -> None:
        m.define(self.out, m.registers(self.x))


def place(e: Emitter, layout: RegisterLayout) -> str:
    """Return the row-major index of the element in register ``r`` as a C expression."""
    return f"{layout.row_major('thread', e.thread())} + {layout.row_major('register', 'r')}"


def first_holder(e: Emitter, layout: RegisterLayout) -> str:
    """Return the head of a block that one thread of those that hold the same elements runs."""
    conditions = [
        f"{e.thread()} / {divisor} % {size} == 0" if divisor > 1 else f"{e.thread()} % {size} == 0"
        for divisor, size in layout.copies()
    ]
    return f"if ({' && '.join(conditions)})" if conditions else ""

# SPDX-License-Identifier: Apache-2.0
"""How an allocation is seen: in another shape, in a layout of the author's, not any more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilus.errors import LanguageError
from tilus.ir import (
    Constraints,
    Emitter,
    Instruction,
    Machine,
    RegisterTensor,
    SharedBuffer,
    SharedTensor,
    Site,
    frees,
)
from tilus.layout import RegisterLayout, SharedLayout


@dataclass(frozen=True, eq=False, kw_only=True)
class reshape_shared(Instruction):
    """View a tensor in shared memory in another shape of as many elements; no data moves.

    Elements keep their row-major order. Where the last two dimensions stay as they are, only tiles
    are counted in another way. Where the last one does, rows are dealt to other tiles: TMA and
    WGMMA use both tensors if a row is at most 128 bytes, one row of a swizzle, and tiles that
    follow one another have a multiple of eight rows. Else rows must follow one another in memory,
    so that neither of them can use the tensor.

    NumPy: out = tensor.reshape(shape)
    PTX:   none
    """

    tensor: SharedTensor
    shape: Sequence[int]
    out: SharedTensor

    @classmethod
    def result(cls, site: Site, /, **arguments: Any) -> SharedTensor:
        t, shape = arguments["tensor"], tuple(arguments["shape"])
        _require(isinstance(t, SharedTensor), "tensor", "in shared memory", type(t).__name__, site)
        _require(not t.transposed, "tensor", "as it lies in memory", "a transposed view", site)
        good = all(isinstance(n, int) and n > 0 for n in shape)
        size, rule = math.prod(t.shape), f"positive integers, {math.prod(t.shape)} elements in all"
        _require(bool(good and math.prod(shape) == size), "shape", rule, list(shape), site)
        if shape[-2:] == t.buffer.shape[-2:]:
            return SharedTensor(t.buffer, shape, t.offset)
        memory, parts = t.buffer.memory, math.prod(t.buffer.shape) // size
        rule = "a whole allocation, or one of equal parts of it"
        _require(parts * size == math.prod(t.buffer.shape), "tensor", rule, list(t.shape), site)
        whole = (parts, *shape) if parts > 1 else shape
        alias = SharedBuffer(site.name, t.dtype, whole, site.location, memory)
        return SharedTensor(alias, shape, t.offset)

    def constrain(self, c: Constraints) -> None:
        old, new = self.tensor.buffer, self.out.buffer
        if old is not new and old.shape[-1] == new.shape[-1]:
            c.same_rows(self.tensor, self.out)
        elif old is not new:
            for tensor in (self.tensor, self.out):
                c.laid_out(tensor, SharedLayout(tensor.buffer.shape[-2:], tensor.dtype.nbytes))

    def emit(self, e: Emitter) -> None:
        """Nothing to do: uses of the view compute their own addresses."""

    def simulate(self, m: Machine) -> None:
        """Nothing to do: uses of the view compute their own addresses."""


@dataclass(frozen=True, eq=False, kw_only=True)
class free_shared(Instruction):
    """End the use of a tensor in shared memory: later allocations may lie where it was.

    Nothing waits. Between the last use of the tensor and the first of what comes after lies a
    barrier of all threads, as between any two uses of the same memory.

    NumPy: del tensor
    PTX:   none
    """

    issuer = "block"
    effects = (frees("tensor"),)
    tensor: SharedTensor

    def verify(self) -> None:
        t = self.tensor
        whole = isinstance(t, SharedTensor) and math.prod(t.shape) == math.prod(t.buffer.shape)
        self.require(whole, "tensor", "a whole allocation in shared memory", "something else")

    def emit(self, e: Emitter) -> None:
        """Nothing to do: the passes have placed what comes after."""

    def simulate(self, m: Machine) -> None:
        """Nothing to do: the passes have placed what comes after."""


@dataclass(frozen=True, eq=False, kw_only=True)
class annotate_layout(Instruction):
    """Have a tensor lie as ``layout`` says, where otherwise the compiler chooses.

    A register tile takes a :class:`tilus.layout.RegisterLayout`, a tensor in shared memory a
    :class:`tilus.layout.SharedLayout` of its tiles (the last two dimensions). What an instruction
    cannot use is refused.

    NumPy: none
    PTX:   none
    """

    tensor: RegisterTensor | SharedTensor
    layout: RegisterLayout | SharedLayout

    def verify(self) -> None:
        match self.tensor, self.layout:
            case RegisterTensor() as t, RegisterLayout() as layout:
                fits = (layout.shape, layout.threads) == (t.shape, t.threads.count)
                found = f"{list(layout.shape)} over {layout.threads} threads"
                rule = f"of {list(t.shape)} over {t.threads.count} threads"
                self.require(fits, "layout", rule, found)
            case SharedTensor(buffer=b), SharedLayout() as layout:
                fits = (layout.shape, layout.element_bytes) == (b.shape[-2:], b.dtype.nbytes)
                found = f"{list(layout.shape)} of {layout.element_bytes} bytes"
                rule = f"of {list(b.shape[-2:])} elements of {b.dtype.nbytes} bytes"
                self.require(fits, "layout", rule, found)
            case tensor, layout:
                rule = "a RegisterLayout for a register tile, a SharedLayout for shared memory"
                found = f"a {type(layout).__name__} for a {type(tensor).__name__}"
                self.require(False, "layout", rule, found)

    def constrain(self, c: Constraints) -> None:
        match self.tensor, self.layout:
            case RegisterTensor() as tile, RegisterLayout() as layout:
                c.register(tile, layout)
            case SharedTensor() as tensor, SharedLayout() as layout:
                c.laid_out(tensor, layout)

    def emit(self, e: Emitter) -> None:
        """Nothing to do: the passes have followed it."""

    def simulate(self, m: Machine) -> None:
        """Nothing to do: the passes have followed it."""


def _require(condition: bool, what: str, rule: str, value: object, site: Site) -> None:
    if not condition:
        message = f"reshape_shared: {what} must be {rule}, got {value}"
        raise LanguageError(message, site.location)

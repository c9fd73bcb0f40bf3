# SPDX-License-Identifier: Apache-2.0
"""Choose the layout of every tile: what instructions ask for first, a simple default for the
rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tilus.banks import Use, least_turns
from tilus.errors import LanguageError
from tilus.ir import (
    Function,
    GlobalTensor,
    Instruction,
    RegisterTensor,
    SharedBuffer,
    SharedTensor,
    TensorMap,
    walk,
)
from tilus.layout import RegisterLayout, SharedLayout, Swizzle, swizzle_for
from tilus.passes.tiles import Tiles


@dataclass
class Layouts:
    """The choices so far; implements :class:`tilus.ir.Constraints` for ``instruction``."""

    instruction: Instruction = field(init=False)
    tiles: Tiles = field(default_factory=Tiles)
    shared: dict[SharedBuffer, SharedLayout] = field(default_factory=dict)
    tensor_maps: tuple[TensorMap, ...] = ()
    _mapped: list[tuple[GlobalTensor, SharedTensor]] = field(default_factory=list)
    _same_rows: list[tuple[Instruction, SharedTensor, SharedTensor]] = field(default_factory=list)
    _touched: list[tuple[SharedTensor, RegisterTensor]] = field(default_factory=list)

    @property
    def registers(self) -> dict[RegisterTensor, RegisterLayout]:
        """The layouts of register tiles."""
        return self.tiles.layouts

    def register(self, tensor: RegisterTensor, layout: RegisterLayout) -> None:
        self.tiles.demand(self.instruction, tensor, layout)

    def same(self, a: RegisterTensor, b: RegisterTensor) -> None:
        self.tiles.like(self.instruction, a, b)

    def like(self, operand: RegisterTensor, tile: RegisterTensor) -> None:
        self.tiles.like(self.instruction, operand, tile)

    def reduced(self, out: RegisterTensor, x: RegisterTensor, dims: tuple[int, ...]) -> None:
        self.tiles.reduced(out, x, dims)

    def part(self, out: RegisterTensor, x: RegisterTensor, offsets: Sequence[int]) -> None:
        self.tiles.part(self.instruction, out, x, offsets)

    def laid_out(self, tensor: SharedTensor, layout: SharedLayout) -> None:
        buffer = tensor.buffer
        known = self.shared.setdefault(buffer, layout)
        if known != layout:
            message = (
                f"{buffer.name} must have one layout in shared memory, but its uses need "
                f"{_named(known)} and {_named(layout)}; use another tensor"
            )
            raise LanguageError(message, self.instruction.location)

    def same_rows(self, tensor: SharedTensor, other: SharedTensor) -> None:
        self._same_rows.append((self.instruction, tensor, other))

    def swizzled(self, tensor: SharedTensor, *, needed: bool = True) -> None:
        buffer = tensor.buffer
        row_bytes = buffer.shape[-1] * buffer.dtype.nbytes
        tile_bytes = math.prod(buffer.shape[-2:]) * buffer.dtype.nbytes
        swizzle = swizzle_for(row_bytes, tile_bytes if buffer.nbytes > tile_bytes else 0)
        apart = tensor.nbytes if tensor.nbytes < buffer.nbytes else 0  # TMA starts at each of them
        if swizzle is None and not needed and row_bytes % 16 == apart % 128 == 0:
            swizzle = Swizzle.NONE
        if swizzle is None:
            what, unit, found = ("rows", 32 if needed else 16, row_bytes)
            if row_bytes % unit == 0:
                what, unit, found = ("tiles behind each other", 256 if needed else 128, tile_bytes)
            message = f"{buffer.name}: {what} must be a multiple of {unit} bytes, got {found} bytes"
            raise LanguageError(message, buffer.location)
        layout = SharedLayout(buffer.shape[-2:], buffer.dtype.nbytes, swizzle)
        self.laid_out(tensor, layout)

    def touched(self, tensor: SharedTensor, registers: RegisterTensor) -> None:
        self._touched.append((tensor, registers))

    def tensor_map(self, view: GlobalTensor, tile: SharedTensor) -> None:
        self._mapped.append((view, tile))

    def finish(self, function: Function) -> Function:
        """Choose what is still open and make the tensor maps; return ``function`` with the moves
        between layouts that it needs."""
        function = self.tiles.solve(function)
        self._share_rows()
        for stmt in walk(function.body):
            match getattr(stmt, "out", None):
                case SharedTensor(buffer=buffer) if buffer not in self.shared:
                    self.shared[buffer] = self._plain(buffer)
        for view, tile in self._mapped:
            self._add_map(view, tile)
        return function

    def _share_rows(self) -> None:
        """Give buffers that are made of the same rows the same swizzle: that of the one whose
        layout an instruction demands, or none."""
        known = self.shared
        # Views of views: what is demanded of the last one goes up to the first, then to all.
        for instruction, a, b in reversed(self._same_rows):
            if b.buffer in known and a.buffer not in known:
                self._lay_rows(instruction, a, known[b.buffer])
        for instruction, a, b in self._same_rows:
            demanded = known.get(a.buffer) or known.get(b.buffer)
            for tensor in (a, b):
                self._lay_rows(instruction, tensor, demanded)

    def _lay_rows(
        self, instruction: Instruction, tensor: SharedTensor, demanded: SharedLayout | None
    ) -> None:
        """Give a buffer's tiles rows like those of a layout; the pattern of a swizzle begins anew
        with each tile, so that it must end there."""
        self.instruction, buffer = instruction, tensor.buffer
        swizzle = demanded.swizzle if demanded and demanded.panels == 1 else Swizzle.NONE
        layout = SharedLayout(buffer.shape[-2:], buffer.dtype.nbytes, swizzle)
        if swizzle and buffer.nbytes > layout.panel_bytes and layout.panel_bytes % (8 * swizzle):
            rule = f"{buffer.name}: tiles swizzled by {int(swizzle)} bytes must have"
            message = f"{rule} a multiple of {8 * swizzle} bytes, got {layout.panel_bytes} bytes"
            raise LanguageError(message, instruction.location)
        self.laid_out(tensor, layout)

    def _plain(self, buffer: SharedBuffer) -> SharedLayout:
        """Return the layout of a buffer that only threads touch."""
        shape = buffer.shape[-2:]
        touched = [(t, r) for t, r in self._touched if t.buffer is buffer]
        uses = [
            Use(self.registers[r], t.transposed) for t, r in touched if len(t.shape) == len(shape)
        ]
        return least_turns(shape, buffer.dtype.nbytes, uses)

    def _add_map(self, view: GlobalTensor, tile: SharedTensor) -> None:
        layout = self.shared[tile.buffer]
        box = layout.box(len(view.shape), tile.tiles)
        if not any(m.view is view and m.box == box for m in self.tensor_maps):
            count = sum(m.view is view for m in self.tensor_maps)
            name = f"{view.name}_map{count or ''}"
            self.tensor_maps += (TensorMap(name, view, box, layout.swizzle),)


def _named(layout: SharedLayout) -> str:
    """Name a layout in a message."""
    rows = f"rows of {layout.shape[-1]} elements"
    return f"{rows} swizzled by {layout.swizzle:d} bytes" if layout.swizzle else f"plain {rows}"


def choose_layouts(function: Function) -> tuple[Function, Layouts]:
    """Return layouts for every register tile and shared buffer of ``function``, and its tensor
    maps; ``function`` moves tiles between layouts where it must."""
    layouts = Layouts()
    for stmt in walk(function.body):
        if isinstance(stmt, Instruction):
            layouts.instruction = stmt
            stmt.constrain(layouts)
    return layouts.finish(function), layouts

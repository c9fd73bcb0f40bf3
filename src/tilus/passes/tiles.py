# SPDX-License-Identifier: Apache-2.0
"""Choose the layout of every register tile.

What instructions demand comes first, then spreads to the tiles that meet there. What is still open
gets a row-major layout, the largest tile first: it decides how smaller ones are repeated along it.
Where an instruction reads a tile that lies otherwise than it needs, a move through shared memory is
put in front of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from math import prod
from typing import Any

from tilus.errors import LanguageError
from tilus.ir import (
    Element,
    Expr,
    Function,
    Instruction,
    RegisterTensor,
    SetElement,
    Stmt,
    bodies,
    children,
    implementing,
    rewrite,
    walk,
)
from tilus.layout import RegisterLayout, blocked, repeated, whole

Derive = Callable[[RegisterLayout], RegisterLayout | None]


@dataclass(frozen=True)
class _Tie:
    """``tile`` lies as ``derive`` makes of the layout of ``source``, where it can."""

    source: RegisterTensor
    tile: RegisterTensor
    derive: Derive


@dataclass(frozen=True)
class _Want:
    """``instruction`` needs ``tile`` to lie as ``layout()`` says."""

    instruction: Instruction
    tile: RegisterTensor
    layout: Callable[[], RegisterLayout | None]


@dataclass
class Tiles:
    """The layouts so far; the register side of :class:`tilus.ir.Constraints`."""

    layouts: dict[RegisterTensor, RegisterLayout] = field(default_factory=dict)
    _ties: dict[RegisterTensor, list[_Tie]] = field(default_factory=lambda: defaultdict(list))
    _wants: list[_Want] = field(default_factory=list)
    _soft: list[tuple[RegisterTensor, RegisterLayout]] = field(default_factory=list)
    _made: dict[RegisterTensor, RegisterTensor] = field(default_factory=dict)

    def demand(self, stmt: Instruction, tile: RegisterTensor, layout: RegisterLayout) -> None:
        """Let ``stmt`` have ``tile`` in ``layout``."""
        self._wants.append(_Want(stmt, tile, lambda: layout))
        if _only_read(stmt, tile):
            self._soft.append((tile, layout))
        else:
            self.layouts.setdefault(tile, layout)

    def like(self, stmt: Instruction, operand: RegisterTensor, tile: RegisterTensor) -> None:
        """Let ``operand`` lie as ``tile`` does where its elements meet those of ``tile``."""

        def part(layout: RegisterLayout) -> RegisterLayout | None:
            return part_of(layout, operand.shape)

        self._wants.append(_Want(stmt, operand, lambda: part(self.layouts[tile])))
        self._ties[tile].append(_Tie(tile, operand, part))
        if prod(operand.shape) == prod(tile.shape):
            grow = _Tie(operand, tile, lambda layout: layout.reshaped(tile.shape))
            self._ties[operand].append(grow)

    def reduced(self, out: RegisterTensor, x: RegisterTensor, dims: tuple[int, ...]) -> None:
        """Let ``out`` lie as ``x`` does without ``dims``, and nothing else decide about it."""
        self._made[out] = x
        derive = _Tie(x, out, lambda layout: layout.without(dims).reshaped(out.shape))
        self._ties[x].append(derive)

    def part(
        self, stmt: Stmt, out: RegisterTensor, x: RegisterTensor, offsets: Sequence[int]
    ) -> None:
        """Let ``out`` lie as a box of ``x`` does, and nothing else decide about it."""

        def box(layout: RegisterLayout) -> RegisterLayout:
            part = layout.part(offsets, out.shape)
            if part is None:
                found = f"{list(out.shape)} at {list(offsets)} of {list(x.shape)}"
                message = f"slice: a box must be cut between registers of a thread, got {found}"
                raise LanguageError(message, stmt.location)
            return part.layout

        self._made[out] = x
        self._ties[x].append(_Tie(x, out, box))

    def solve(self, function: Function) -> Function:
        """Choose all layouts; return ``function`` with the moves between layouts that it needs."""
        tiles = dict(_tiles(function))
        for tile in _indexed(function):
            self.layouts.setdefault(tile, whole(tile.shape, tile.threads.count))
        for tile in list(self.layouts):
            self._spread(tile)
        for tile, layout in self._soft:
            self._give(tile, layout)
        for tile in sorted(tiles, key=lambda t: -prod(t.shape)):
            self._give(tile, blocked(tile.shape, tile.threads.count, tile.dtype.nbytes))
        moves = self._moves()
        return replace(function, body=rewrite(function.body, moves)) if moves else function

    def _give(self, tile: RegisterTensor, layout: RegisterLayout) -> None:
        if tile not in self.layouts and tile not in self._made:
            self.layouts[tile] = layout
            self._spread(tile)

    def _spread(self, first: RegisterTensor) -> None:
        """Follow the ties of a tile whose layout is known, the nearest tiles first."""
        known = [first]
        for source in known:
            for tie in self._ties[source]:
                made_elsewhere = self._made.get(tie.tile, source) is not source
                if tie.tile in self.layouts or made_elsewhere:
                    continue
                layout = tie.derive(self.layouts[source])
                if layout is not None:
                    self.layouts[tie.tile] = layout
                    known.append(tie.tile)

    def _moves(self) -> Callable[[Stmt], tuple[Stmt, ...]] | None:
        """Return what puts a move in front of each instruction that needs one."""
        moved: dict[int, list[tuple[RegisterTensor, RegisterLayout]]] = defaultdict(list)
        for want in self._wants:
            layout = want.layout()
            if layout is not None and not self.layouts[want.tile].same(layout):
                if not _only_read(want.instruction, want.tile):
                    raise _conflict(want)
                moved[id(want.instruction)].append((want.tile, layout))
        if not moved:
            return None
        originals = {id(want.instruction): want.instruction for want in self._wants}
        return lambda stmt: self._move(stmt, moved[id(stmt)]) if id(stmt) in originals else (stmt,)

    def _move(
        self, stmt: Stmt, moved: list[tuple[RegisterTensor, RegisterLayout]]
    ) -> tuple[Stmt, ...]:
        moves: dict[RegisterTensor, Any] = {}
        for tile, layout in dict(moved).items():
            if (tile, layout) != next(m for m in moved if m[0] is tile):
                message = f"{tile.name} is needed in two layouts at once; load it twice"
                raise LanguageError(message, stmt.location)
            copy = replace(tile, name=f"{tile.name}_moved", replicated=False)
            self.layouts[copy] = layout
            move: Any = implementing("move")
            moves[tile] = move(location=stmt.location, threads=tile.threads, x=tile, out=copy)
        changes = {f: moves[t].out for f, t in _fields(stmt) if t in moves}
        return (*moves.values(), replace(stmt, **changes))


def part_of(layout: RegisterLayout, shape: tuple[int, ...]) -> RegisterLayout | None:
    """Return the layout of a tile of ``shape`` that is repeated along a tile with ``layout``; None
    where NumPy does not broadcast so."""
    dims = repeated(shape, layout.shape)
    return None if dims is None else layout.without(dims).reshaped(shape)


def _only_read(stmt: Instruction, tile: RegisterTensor) -> bool:
    return all(e.kind == "read" for e in stmt.effects if getattr(stmt, e.field) is tile)


def _conflict(want: _Want) -> LanguageError:
    message = (
        f"{want.tile.name} must have one register layout, but its uses need two different ones; "
        "pass it on through shared memory (self.store_shared, self.sync, self.load_shared)"
    )
    return LanguageError(message, want.instruction.location)


def _fields(stmt: Stmt) -> Iterator[tuple[str, RegisterTensor]]:
    for f in fields(stmt):
        value = getattr(stmt, f.name)
        if isinstance(value, RegisterTensor):
            yield f.name, value


def _tiles(function: Function) -> Iterator[tuple[RegisterTensor, None]]:
    for stmt in walk(function.body):
        if isinstance(stmt, Instruction):
            yield from ((tile, None) for _, tile in _fields(stmt))


def _indexed(function: Function) -> Iterator[RegisterTensor]:
    """Yield the tensors that are indexed: any element must be at hand in every thread."""
    if not any(tile.replicated for tile, _ in _tiles(function)):
        return
    for stmt in walk(function.body):
        if isinstance(stmt, SetElement):
            yield stmt.tensor
        inside = {id(body) for body in bodies(stmt)}
        for f in fields(stmt):
            if id(getattr(stmt, f.name)) not in inside:
                yield from _elements(getattr(stmt, f.name))


def _elements(value: Any) -> Iterator[RegisterTensor]:
    """Yield the tensors whose elements are read in ``value``: an expression or what holds some."""
    if isinstance(value, Element):
        yield value.tensor
    if isinstance(value, Expr):
        parts: Any = children(value)
    elif is_dataclass(value) and not isinstance(value, RegisterTensor | type):
        parts = (getattr(value, f.name) for f in fields(value))
    else:
        parts = value if isinstance(value, tuple | list) else ()
    for part in parts:
        yield from _elements(part)

# SPDX-License-Identifier: Apache-2.0
"""How tiles lie in registers and in shared memory: index arithmetic, once for both backends.

A register layout writes each coordinate of an element as a sum of digits of the thread number and
of the register number, so that the same object yields NumPy index arrays and C expressions. A
shared layout is a row-major tile, cut into panels as wide as a swizzle row, with the 16-byte chunks
of a row exchanged as TMA does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache
from typing import Any, Literal

import numpy as np


class Swizzle(IntEnum):
    """Width in bytes of the rows in which 16-byte chunks change places (PTX ISA, "Swizzling
    modes").
    """

    NONE = 0
    B32 = 32
    B64 = 64
    B128 = 128

    def apply(self, offset: Any) -> Any:
        """Return byte offsets with bits 4 and up xor-ed with bits 7 and up, as the width needs."""
        return Spread(4, 7, (self // 16).bit_length() - 1).apply(offset) if self else offset


@dataclass(frozen=True)
class Spread:
    """Exclusive or of ``bits`` bits of a byte offset, from bit ``to`` on, with those from bit
    ``source`` on."""

    to: int
    source: int
    bits: int

    def apply(self, offset: Any) -> Any:
        """Return the offsets with their bits exchanged; takes arrays, and expressions."""
        return offset ^ (((offset >> self.source) & (1 << self.bits) - 1) << self.to)


@dataclass(frozen=True)
class SharedLayout:
    """A tile of ``shape`` elements of ``element_bytes``; with a swizzle, panels of ``swizzle``
    bytes a row stand side by side.

    A tile that only threads touch may have a ``spread`` instead, which keeps them from asking one
    bank for several words. The tile's first byte must be aligned to :attr:`alignment`.
    """

    shape: tuple[int, ...]
    element_bytes: int
    swizzle: Swizzle = Swizzle.NONE
    spread: Spread | None = None

    @property
    def panel_columns(self) -> int:
        """Number of elements in one row of a panel."""
        return self.swizzle // self.element_bytes if self.swizzle else self.shape[-1]

    @property
    def panels(self) -> int:
        """Number of panels side by side."""
        return self.shape[-1] // self.panel_columns

    @property
    def rows(self) -> int:
        """Number of rows, all dimensions but the last taken together."""
        return math.prod(self.shape[:-1])

    @property
    def panel_bytes(self) -> int:
        """Size of one panel in bytes."""
        return self.rows * self.panel_columns * self.element_bytes

    def box(self, rank: int, tiles: int = 1) -> tuple[int, ...]:
        """Return the elements that one copy moves in a view of ``rank`` dimensions, of which they
        are a slice of the last two: a panel, or the only one of each of some ``tiles`` that follow
        one another."""
        rows = self.rows * (tiles if self.panels == 1 else 1)
        return (1,) * (rank - 2) + (rows, self.panel_columns)

    @property
    def alignment(self) -> int:
        """Alignment of the tile in bytes: eight swizzle rows, so that the pattern starts at its
        beginning; else what TMA asks for, and a turn of all banks."""
        return max(8 * self.swizzle, 128)

    def offset(self, row: Any, column: Any) -> Any:
        """Return where an element lies, in bytes from the start of the tile.

        Takes numbers, arrays of them, and expressions of the kernel.
        """
        return self.exchanged(self.linear(row, column))

    def linear(self, row: Any, column: Any) -> Any:
        """Return :meth:`offset` as it is before chunks change places."""
        panel, inner = 0, column
        if self.panels > 1:
            panel, inner = column // self.panel_columns, column % self.panel_columns
        return ((row + panel * self.rows) * self.panel_columns + inner) * self.element_bytes

    def exchanged(self, offset: Any) -> Any:
        """Return where what lies at ``offset`` goes."""
        offset = self.swizzle.apply(offset)
        return self.spread.apply(offset) if self.spread else offset

    def offsets(self) -> np.ndarray:
        """Return an int array of ``shape``: where each element lies, in elements from the start of
        the tile."""
        return _shared_offsets(self)


@cache
def _shared_offsets(layout: SharedLayout) -> np.ndarray:
    row, col = np.indices((layout.rows, layout.shape[-1]))
    offsets: np.ndarray = layout.offset(row, col) // layout.element_bytes
    offsets = offsets.reshape(layout.shape)
    offsets.setflags(write=False)
    return offsets


def swizzle_for(row_bytes: int, step: int = 0) -> Swizzle | None:
    """Return the widest swizzle whose rows tile a row of ``row_bytes``, or None where there is
    none.

    Hardware swizzles addresses: tiles that follow each other ``step`` bytes apart are whole
    patterns of eight swizzle rows.
    """
    widths = (Swizzle.B128, Swizzle.B64, Swizzle.B32)
    return next((s for s in widths if row_bytes % s == step % (8 * s) == 0), None)


Source = Literal["thread", "register"]


@dataclass(frozen=True)
class Digit:
    """``(number // divisor) % size * stride`` of the thread or register number, added to coordinate
    ``dim``."""

    dim: int
    source: Source
    divisor: int
    size: int
    stride: int

    def of(self, number: np.ndarray) -> np.ndarray:
        """Return the digit of every thread or register number."""
        return number // self.divisor % self.size * self.stride

    def text(self, number: str) -> str:
        """Return the digit as a C expression over ``number``."""
        quotient = f"{number} / {self.divisor}" if self.divisor > 1 else number
        return (
            f"{quotient} % {self.size} * {self.stride}"
            if self.stride > 1
            else f"{quotient} % {self.size}"
        )


@dataclass(frozen=True)
class RegisterLayout:
    """Where the elements of a tile of ``shape`` live: ``registers`` of each of ``threads``
    (numbered within their group)."""

    shape: tuple[int, ...]
    threads: int
    registers: int
    digits: tuple[Digit, ...]

    def coordinates(self) -> np.ndarray:
        """Return an int array ``[threads, registers, dimensions]``: the element each register
        holds."""
        thread, register = np.indices((self.threads, self.registers))
        result = np.zeros((self.threads, self.registers, len(self.shape)), dtype=int)
        for digit in self.digits:
            result[..., digit.dim] += digit.of(thread if digit.source == "thread" else register)
        return result

    def text(self, dim: int, source: Source, number: str) -> str:
        """Return one coordinate's share of the thread or register ``number`` as a C expression."""
        parts = [d.text(number) for d in self.digits if (d.dim, d.source) == (dim, source)]
        return " + ".join(parts) or "0"

    def row_major(self, source: Source, number: str) -> str:
        """Return the share of the thread or register ``number`` in an element's row-major index."""
        step = [math.prod(self.shape[d + 1 :]) for d in range(len(self.shape))]
        parts = [replace(d, stride=d.stride * step[d.dim]) for d in self.digits]
        return " + ".join(d.text(number) for d in parts if d.source == source) or "0"

    def same(self, other: RegisterLayout) -> bool:
        """Say whether both put the same elements into the same registers, however it is written."""
        size = (self.shape, self.threads, self.registers)
        if self == other or size != (other.shape, other.threads, other.registers):
            return self == other
        return np.array_equal(self.coordinates(), other.coordinates())

    def copies(self) -> tuple[tuple[int, int], ...]:
        """Return (divisor, size) of the digits of a thread's number that select no element.

        Threads that differ only in them hold the same elements.
        """
        result, position = [], 1
        sizes = {d.divisor: d.size for d in self.digits if d.source == "thread" and d.size > 1}
        for divisor, size in [*sorted(sizes.items()), (self.threads, 1)]:
            assert divisor % position == 0, "digits of the thread number overlap"
            if divisor > position:
                result.append((position, divisor // position))
            position = divisor * size
        return tuple(result)

    def without(self, dims: Collection[int]) -> RegisterLayout:
        """Return the layout of a tile with one element along ``dims``, its registers closed up."""
        if not dims:
            return self
        shape = tuple(1 if d in dims else n for d, n in enumerate(self.shape))
        places = {d: p.stride for d, p in self._closed(dims)}
        kept = [replace(d, divisor=places.get(d, d.divisor)) for d in self.digits]
        digits = [d for d in kept if d.dim not in dims]
        registers = math.prod(d.size for d in places)
        return RegisterLayout(shape, self.threads, registers, _long(digits))

    def register_without(self, dims: Collection[int], number: str) -> str:
        """Return which register of ``without(dims)`` belongs to register ``number``, in C."""
        return " + ".join(p.text(number) for _, p in self._closed(dims) if p.size > 1) or "0"

    def part(self, offsets: Sequence[int], shape: Sequence[int]) -> Part | None:
        """Return where the box of ``shape`` at ``offsets`` lies; None where it is no matter of
        registers only, so that a thread would need elements of others."""
        cuts: list[tuple[Digit, Digit, int]] = []  # a digit, what is left of it, where that begins
        for dim, (offset, size) in enumerate(zip(offsets, shape, strict=True)):
            own = [d for d in self.digits if d.dim == dim]
            for d in sorted(own, key=lambda d: -d.stride):
                begin, offset = divmod(offset, d.stride)
                whole, rest = divmod(size, d.stride)
                kept = max(1, whole)
                cuts.append((d, replace(d, size=kept), begin))
                if begin + kept > d.size or (whole and (rest or offset)):
                    return None
                if kept != d.size and d.source == "thread":
                    return None
                size = min(size, d.stride)
        return _part(tuple(shape), self.threads, sorted(cuts, key=lambda cut: cut[0].divisor))

    def _closed(self, dims: Collection[int]) -> Iterator[tuple[Digit, Digit]]:
        """Yield the register digits of the other dimensions, and what each adds to the number of
        the register where only those count."""
        step = 1
        registers = [d for d in self.digits if d.source == "register" and d.dim not in dims]
        for d in sorted(registers, key=lambda d: d.divisor):
            yield d, replace(d, stride=step)
            step *= d.size

    def reshaped(self, shape: tuple[int, ...]) -> RegisterLayout:
        """Return the layout of the tile with dimensions of one element added or left out."""
        if shape == self.shape:
            return self
        old = [d for d, n in enumerate(self.shape) if n > 1]
        new = dict(zip(old, (d for d, n in enumerate(shape) if n > 1), strict=True))
        digits = (replace(d, dim=new[d.dim]) for d in self.digits if d.size > 1)
        return replace(self, shape=shape, digits=tuple(digits))

    @property
    def vector(self) -> int:
        """How many successive registers hold successive elements of a row."""
        return math.prod(d.size for d in self._contiguous())

    def _contiguous(self) -> Iterator[Digit]:
        run, last = 1, len(self.shape) - 1
        for d in self.digits:
            if (d.dim, d.source, d.divisor, d.stride) == (last, "register", run, run):
                run *= d.size
                yield d


@dataclass(frozen=True)
class Part:
    """A box of a tile: its ``layout``, and ``register``, the number in the tile of the register
    that is ``r`` in the box, as a C expression."""

    layout: RegisterLayout
    register: str


def _part(shape: tuple[int, ...], threads: int, cuts: Sequence[tuple[Digit, Digit, int]]) -> Part:
    """Number the registers of a box anew; ``cuts`` has its digits, the fastest first."""
    digits, terms, first, step = [], [], 0, 1
    for old, left, begin in cuts:
        if old.source == "register":
            left = replace(left, divisor=step)
            step *= left.size
            terms.append(replace(left, stride=old.divisor))
            first += begin * old.divisor
        digits.append(left)
    terms = [d for d in terms if d.size > 1]
    together = all(d.divisor == d.stride for d in terms)
    text = "r" if together else " + ".join(d.text("r") for d in terms)
    layout = RegisterLayout(shape, threads, step, _long(digits))
    return Part(layout, f"{text} + {first}" if first else text)


@dataclass(frozen=True)
class WarpGrid:
    """How warps share a matrix product [m, n]: ``rows`` of them along m, ``columns`` along n.

    Warp w takes row w % rows of the grid; warps beyond ``rows * columns`` do what others do too.
    """

    rows: int
    columns: int


def warp_grid(m: int, n: int, warps: int) -> WarpGrid:
    """Return the grid whose warps read least: each takes 16 x 8 blocks, as square as can be.

    As many warps as possible have work of their own; of equals, the grid with wider tiles wins.
    """
    grids = [
        WarpGrid(rows, columns)
        for rows in range(1, warps + 1)
        for columns in range(1, warps // rows + 1)
        if warps % (rows * columns) == m % (16 * rows) == n % (8 * columns) == 0
    ]
    return min(grids, key=lambda g: (-g.rows * g.columns, m / g.rows + n / g.columns, g.columns))


def accumulator(m: int, n: int, grid: WarpGrid, threads: int) -> RegisterLayout:
    """Return the layout of a matrix [m, n] whose 16 x 8 blocks lie as tensor cores keep sums.

    PTX ISA, "Matrix fragments for mma.m16n8k16": C and D; two blocks side by side are its A of
    16-bit type. Blocks of 16 rows go round the warps, columns are cut into one piece for each.
    """
    columns = n // grid.columns
    digits = (
        Digit(1, "register", 1, 2, 1),
        Digit(0, "register", 2, 2, 8),
        Digit(1, "register", 4, columns // 8, 8),
        Digit(0, "register", columns // 2, m // (16 * grid.rows), 16 * grid.rows),
        Digit(1, "thread", 1, 4, 2),
        Digit(0, "thread", 4, 8, 1),
        Digit(0, "thread", 32, grid.rows, 16),
        Digit(1, "thread", 32 * grid.rows, grid.columns, columns),
    )
    return RegisterLayout((m, n), threads, m * columns // (32 * grid.rows), _long(digits))


def wgmma_accumulator(m: int, n: int) -> RegisterLayout:
    """Return the layout of a WGMMA accumulator of ``m`` (a multiple of 64) by ``n`` over 128
    threads.

    PTX ISA, "Register fragments for wgmma.mma_async.m64nNk16": matrix D. Blocks of 64 rows follow
    each other.
    """
    return accumulator(m, n, WarpGrid(4, 1), 128)


def mma_left(m: int, k: int, grid: WarpGrid, threads: int) -> RegisterLayout:
    """Return the layout of the left operand [m, k] of ``mma.m16n8k16``: warps of one row of the
    grid hold the same."""
    return accumulator(m, k, WarpGrid(grid.rows, 1), threads)


def mma_right(k: int, n: int, grid: WarpGrid, threads: int) -> RegisterLayout:
    """Return the layout of the right operand [k, n] of ``mma.m16n8k16``: warps of one column of the
    grid hold the same.

    PTX ISA, "Matrix fragments for mma.m16n8k16": B of 16-bit type.
    """
    columns = n // grid.columns
    digits = (
        Digit(0, "register", 1, 2, 1),
        Digit(0, "register", 2, 2, 8),
        Digit(1, "register", 4, columns // 8, 8),
        Digit(0, "register", columns // 2, k // 16, 16),
        Digit(0, "thread", 1, 4, 2),
        Digit(1, "thread", 4, 8, 1),
        Digit(1, "thread", 32 * grid.rows, grid.columns, columns),
    )
    return RegisterLayout((k, n), threads, k * columns // 32, _long(digits))


def has_quads(layout: RegisterLayout) -> bool:
    """Say whether four neighbouring threads hold 32 columns of a row among them, in pairs.

    So do those of an accumulator where a warp has a multiple of 32 columns: registers r, r + 4,
    r + 8 and r + 12 of thread q begin 8 columns apart, 2 * q behind the first thread's.
    """
    if len(layout.shape) != 2 or layout.threads % 4 or layout.registers % 16:
        return False
    quads = layout.coordinates().reshape(-1, 4, layout.registers // 16, 4, 2, 2, 2)
    thread, block, column = np.ogrid[:4, :4, :2]
    step = np.zeros((4, 1, 4, 1, 2, 2), int)
    step[:, 0, :, 0, :, 1] = 2 * thread + 8 * block + column
    return np.array_equal(quads, quads[:, :1, :, :1, :, :1] + step)


def whole(shape: tuple[int, ...], threads: int) -> RegisterLayout:
    """Return the layout in which each thread holds the whole tile, row-major."""
    digits, step = [], 1
    for dim in reversed(range(len(shape))):
        digits.append(Digit(dim, "register", step, shape[dim], 1))
        step *= shape[dim]
    return RegisterLayout(shape, threads, step, _long(digits))


def blocked(shape: tuple[int, ...], threads: int, element_bytes: int) -> RegisterLayout:
    """Return a row-major layout with 16-byte vectors where they fit: neighbouring threads hold
    neighbouring vectors.

    A row stays inside of a warp where there are rows enough for all warps, so that reducing it
    takes no shared memory. Threads that do not divide the tile hold copies.
    """
    if not shape:
        return RegisterLayout((), threads, 1, ())
    *rows, columns = shape
    share = math.prod(shape) // math.gcd(math.prod(shape), threads)  # elements a thread holds
    vector = math.gcd(columns, share, 16 // element_bytes)
    across = math.gcd(columns // vector, threads, 32)  # threads that share a row
    left = math.prod(_split(rows, threads // across)) * across
    across = math.gcd(columns // vector, across * (threads // left))
    last, wide = len(rows), columns // (vector * across)  # turns a thread takes along a row
    digits = [
        Digit(last, "register", 1, vector, 1),
        Digit(last, "register", vector, wide, vector * across),
        Digit(last, "thread", 1, across, vector),
    ]
    register, thread = vector * wide, across
    for dim, down in reversed([*enumerate(_split(rows, threads // across))]):
        digits.append(Digit(dim, "register", register, rows[dim] // down, down))
        digits.append(Digit(dim, "thread", thread, down, 1))
        register, thread = register * (rows[dim] // down), thread * down
    return RegisterLayout(shape, threads, register, _long(digits))


def _split(rows: list[int], threads: int) -> list[int]:
    """Return how many of ``threads`` each dimension is split over, the last ones first."""
    parts = []
    for n in reversed(rows):
        parts.append(math.gcd(n, threads))
        threads //= parts[-1]
    return parts[::-1]


def _long(digits: Iterable[Digit]) -> tuple[Digit, ...]:
    """Leave out the digits that are always 0."""
    return tuple(d for d in digits if d.size > 1)


def repeated(shape: tuple[int, ...], wide: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the dimensions of ``wide`` along which NumPy repeats a tile of ``shape``; None where
    it does not broadcast so."""
    missing = len(wide) - len(shape)
    sizes = (1,) * missing + shape
    if missing < 0 or any(n not in (1, w) for n, w in zip(sizes, wide, strict=True)):
        return None
    return tuple(d for d, (n, w) in enumerate(zip(sizes, wide, strict=True)) if n != w)

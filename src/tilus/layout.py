# SPDX-License-Identifier: Apache-2.0
"""How tiles lie in registers and in shared memory: index arithmetic, once for both backends.

A register layout writes each coordinate of an element as a sum of digits of the thread number and
of the register number, so that the same object yields NumPy index arrays and C expressions. A
shared layout is a row-major tile, cut into panels as wide as a swizzle row, with the 16-byte chunks
of a row exchanged as TMA does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
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

    @property
    def alignment(self) -> int:
        """Alignment of the tile in bytes: eight swizzle rows, so that the pattern starts at its
        beginning; a turn of all banks for a spread; else 16."""
        return max(8 * self.swizzle, 128 if self.spread else 16)

    def offset(self, row: Any, column: Any) -> Any:
        """Return where an element lies, in bytes from the start of the tile.

        Takes numbers, arrays of them, and expressions of the kernel.
        """
        panel, inner = 0, column
        if self.panels > 1:
            panel, inner = column // self.panel_columns, column % self.panel_columns
        flat = (row + panel * self.rows) * self.panel_columns + inner
        offset = self.swizzle.apply(flat * self.element_bytes)
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
    across = [Digit(1, "thread", 32 * grid.rows, grid.columns, columns)] if grid.columns > 1 else []
    return RegisterLayout(
        shape=(m, n),
        threads=threads,
        registers=m * columns // (32 * grid.rows),
        digits=(
            Digit(1, "register", 1, 2, 1),
            Digit(0, "register", 2, 2, 8),
            Digit(1, "register", 4, columns // 8, 8),
            Digit(0, "register", columns // 2, m // (16 * grid.rows), 16 * grid.rows),
            Digit(1, "thread", 1, 4, 2),
            Digit(0, "thread", 4, 8, 1),
            Digit(0, "thread", 32, grid.rows, 16),
            *across,
        ),
    )


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
    return RegisterLayout(
        shape=(k, n),
        threads=threads,
        registers=k * columns // 32,
        digits=(
            Digit(0, "register", 1, 2, 1),
            Digit(0, "register", 2, 2, 8),
            Digit(1, "register", 4, columns // 8, 8),
            Digit(0, "register", columns // 2, k // 16, 16),
            Digit(0, "thread", 1, 4, 2),
            Digit(1, "thread", 4, 8, 1),
            Digit(1, "thread", 32 * grid.rows, grid.columns, columns),
        ),
    )


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


def blocked(shape: tuple[int, ...], threads: int, element_bytes: int) -> RegisterLayout | None:
    """Return a row-major layout with 16-byte vectors where they fit: neighbouring threads hold
    neighbouring vectors.

    None where ``threads`` do not divide the tile evenly.
    """
    columns, rows = shape[-1], math.prod(shape[:-1])
    if len(shape) > 2 or rows * columns % threads:
        return None
    registers = rows * columns // threads
    vector = math.gcd(columns, registers, 16 // element_bytes)
    across = math.gcd(columns // vector, threads)  # threads that share a row
    wide = columns // (vector * across)  # turns a thread takes along a row
    down = threads // across
    if rows % down:
        return None
    last = len(shape) - 1
    digits = [
        Digit(last, "register", 1, vector, 1),
        Digit(last, "register", vector, wide, vector * across),
        Digit(last, "thread", 1, across, vector),
    ]
    if last:
        digits += [
            Digit(0, "register", vector * wide, rows // down, down),
            Digit(0, "thread", across, down, 1),
        ]
    return RegisterLayout(shape, threads, registers, tuple(digits))

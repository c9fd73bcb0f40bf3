# SPDX-License-Identifier: Apache-2.0
"""The layouts there are: those that tensor cores ask for, and those that the compiler chooses."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilus.layout.registers import Digit, RegisterLayout, long_digits


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
    return RegisterLayout((m, n), threads, m * columns // (32 * grid.rows), long_digits(digits))


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
    return RegisterLayout((k, n), threads, k * columns // 32, long_digits(digits))


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
    return RegisterLayout(shape, threads, step, long_digits(digits))


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
    return RegisterLayout(shape, threads, register, long_digits(digits))


def _split(rows: list[int], threads: int) -> list[int]:
    """Return how many of ``threads`` each dimension is split over, the last ones first."""
    parts = []
    for n in reversed(rows):
        parts.append(math.gcd(n, threads))
        threads //= parts[-1]
    return parts[::-1]

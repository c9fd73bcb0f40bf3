# SPDX-License-Identifier: Apache-2.0
"""Tiles in shared memory: row-major, cut into panels as wide as a swizzle row, with the 16-byte
chunks of a row exchanged as TMA does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any

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

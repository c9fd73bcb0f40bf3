# SPDX-License-Identifier: Apache-2.0
"""Bulk stores write device memory in whole pieces.

PTX does not say so. An H200 wrote the tile's elements behind the edge of a view up to the end of
the piece that the edge cuts, whatever the swizzle, and met a box whose first column is no piece's
first, or negative, with an illegal instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from tilus import ir
from tilus.simulator.memory import Geometry

PIECE = 16
"""Bytes that an engine moves together."""


def check_begin(fail: Callable[..., NoReturn], view: ir.GlobalTensor, at: Geometry) -> None:
    """Refuse a box that no engine can fetch; it may begin before the view, but at a piece."""
    column, size = at.offsets[-1], view.dtype.nbytes
    if column * size % PIECE:
        fail(
            "protocol",
            f"the first column of a copy must be at a multiple of {PIECE} bytes, "
            f"got column {column} of {view.name}, {column * size} bytes",
            column=column,
        )


def check_pieces(
    fail: Callable[..., NoReturn], view: ir.GlobalTensor, at: Geometry, width: int
) -> None:
    """Refuse a box of ``width`` columns that no bulk store can write, or none without what lies
    beside the view."""
    (*rows, column), size, extent = at.offsets, view.dtype.nbytes, at.shape[-1]
    if min(rows) < 0:
        fail("not modelled", f"a bulk store before the first row of {view.name}: {at.offsets}")
    if column < 0 or column * size % PIECE:
        fail(
            "protocol",
            f"the first column of a bulk store must be at a multiple of {PIECE} bytes from 0 on, "
            f"got column {column} of {view.name}, {column * size} bytes",
            column=column,
        )
    beyond = -extent * size % PIECE // size
    if beyond and column < extent < column + width:
        fail(
            "protocol",
            f"a bulk store writes pieces of {PIECE} bytes: the last one of a row of {view.name} "
            f"has {beyond} elements behind column {extent - 1}, outside of the view",
            column=extent,
            elements=beyond,
        )

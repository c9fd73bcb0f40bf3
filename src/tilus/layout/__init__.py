# SPDX-License-Identifier: Apache-2.0
"""How tiles lie in registers and in shared memory: index arithmetic, once for both backends."""

from tilus.layout.kinds import (
    WarpGrid,
    accumulator,
    blocked,
    has_quads,
    mma_left,
    mma_right,
    warp_grid,
    wgmma_accumulator,
    whole,
)
from tilus.layout.registers import Digit, Part, RegisterLayout, Source, repeated
from tilus.layout.shared import SharedLayout, Spread, Swizzle, swizzle_for

__all__ = [
    "Digit",
    "Part",
    "RegisterLayout",
    "SharedLayout",
    "Source",
    "Spread",
    "Swizzle",
    "WarpGrid",
    "accumulator",
    "blocked",
    "has_quads",
    "mma_left",
    "mma_right",
    "repeated",
    "swizzle_for",
    "warp_grid",
    "wgmma_accumulator",
    "whole",
]

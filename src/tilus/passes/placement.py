# SPDX-License-Identifier: Apache-2.0
"""Give every shared buffer and mbarrier its place in shared memory."""

from __future__ import annotations

from collections.abc import Mapping

from tilus.errors import LanguageError
from tilus.ir import Barrier, BarrierArray, Function, SharedBuffer, walk
from tilus.layout import SharedLayout

MAX_SHARED_BYTES = 227 * 1024  # a block's opt-in limit at compute capability 9.0
BARRIER_BYTES = 8


def place(
    function: Function, layouts: Mapping[SharedBuffer, SharedLayout]
) -> tuple[dict[SharedBuffer | BarrierArray, int], int]:
    """Return byte offsets from the start of shared memory, and the total; buffers first, mbarriers
    behind them."""
    places: dict[SharedBuffer | BarrierArray, int] = {}
    end = 0
    for buffer in sorted(layouts, key=lambda b: -layouts[b].alignment):
        begin = -(-end // layouts[buffer].alignment) * layouts[buffer].alignment
        places[buffer], end = begin, begin + buffer.nbytes
    end = -(-end // BARRIER_BYTES) * BARRIER_BYTES
    for stmt in walk(function.body):
        out = getattr(stmt, "out", None)
        array = out.array if isinstance(out, Barrier) else out
        if isinstance(array, BarrierArray):
            places[array], end = end, end + BARRIER_BYTES * len(array)
    if end > MAX_SHARED_BYTES:
        parts = ", ".join(f"{b.name} {_size(b)}" for b in places)
        message = (
            f"shared memory must be at most {MAX_SHARED_BYTES} bytes a block, got {end} ({parts})"
        )
        raise LanguageError(message, next(iter(places)).location)
    return places, end


def _size(part: SharedBuffer | BarrierArray) -> int:
    return part.nbytes if isinstance(part, SharedBuffer) else BARRIER_BYTES * len(part)

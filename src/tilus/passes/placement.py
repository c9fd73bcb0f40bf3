# SPDX-License-Identifier: Apache-2.0
"""Give every shared buffer and mbarrier its place in shared memory."""

from __future__ import annotations

from collections.abc import Mapping

from tilus.errors import LanguageError
from tilus.ir import (
    Barrier,
    BarrierArray,
    Function,
    Instruction,
    RegisterTensor,
    SharedBuffer,
    Threads,
    walk,
)
from tilus.layout import RegisterLayout, SharedLayout

MAX_SHARED_BYTES = 227 * 1024  # a block's opt-in limit at compute capability 9.0
BARRIER_BYTES = 8
SCRATCH_ALIGNMENT = 16


def scratch_bytes(
    function: Function, layouts: Mapping[RegisterTensor, RegisterLayout]
) -> dict[Threads, int]:
    """Return how much shared memory the instructions of each group need while they run."""
    needs: dict[Threads, int] = {}
    for stmt in walk(function.body):
        n = stmt.scratch_bytes(layouts) if isinstance(stmt, Instruction) else 0
        if n:
            needs[stmt.threads] = max(n, needs.get(stmt.threads, 0))  # type: ignore[attr-defined]
    return needs


def place(
    function: Function,
    layouts: Mapping[SharedBuffer, SharedLayout],
    scratch: Mapping[Threads, int],
) -> tuple[dict[SharedBuffer | BarrierArray, int], dict[Threads, int], int]:
    """Return byte offsets from the start of shared memory, and the total.

    Buffers come first, then the scratch memory of groups, then mbarriers.
    """
    places: dict[SharedBuffer | BarrierArray, int] = {}
    end = 0
    for buffer in sorted(layouts, key=lambda b: -layouts[b].alignment):
        begin = -(-end // layouts[buffer].alignment) * layouts[buffer].alignment
        places[buffer], end = begin, begin + buffer.nbytes
    begins: dict[Threads, int] = {}
    for threads, nbytes in scratch.items():
        begins[threads] = -(-end // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
        end = begins[threads] + nbytes
    end = -(-end // BARRIER_BYTES) * BARRIER_BYTES
    for stmt in walk(function.body):
        out = getattr(stmt, "out", None)
        array = out.array if isinstance(out, Barrier) else out
        if isinstance(array, BarrierArray):
            places[array], end = end, end + BARRIER_BYTES * len(array)
    if end > MAX_SHARED_BYTES:
        names = [f"{b.name} {_size(b)}" for b in places]
        names += [f"scratch of {t.role} {n}" for t, n in scratch.items()]
        parts = ", ".join(names)
        message = (
            f"shared memory must be at most {MAX_SHARED_BYTES} bytes a block, got {end} ({parts})"
        )
        where = next(iter(places)).location if places else function.location
        raise LanguageError(message, where)
    return places, begins, end


def _size(part: SharedBuffer | BarrierArray) -> int:
    return part.nbytes if isinstance(part, SharedBuffer) else BARRIER_BYTES * len(part)

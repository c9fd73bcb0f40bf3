# SPDX-License-Identifier: Apache-2.0
"""Give every shared buffer and mbarrier its place in shared memory."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilus.errors import LanguageError
from tilus.ir import (
    Barrier,
    BarrierArray,
    Function,
    Instruction,
    RegisterTensor,
    SharedBuffer,
    SharedTensor,
    Stmt,
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
    buffers = _place_buffers(function, layouts)
    end = max((at + buffer.nbytes for buffer, at in buffers.items()), default=0)
    places: dict[SharedBuffer | BarrierArray, int] = dict(buffers.items())
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
        rule = f"at most {MAX_SHARED_BYTES} bytes a block, got {end} ({', '.join(names)})"
        where = next(iter(places)).location if places else function.location
        raise LanguageError(f"shared memory must be {rule}", where)
    return places, begins, end


def _place_buffers(
    function: Function, layouts: Mapping[SharedBuffer, SharedLayout]
) -> dict[SharedBuffer, int]:
    """Place buffers so that those alive at the same time do not share memory."""
    lives, places = _lives(function), dict[SharedBuffer, int]()
    whole = [b for b in layouts if b.base is None]
    for buffer in sorted(whole, key=lambda b: -layouts[b].alignment):
        unit, at = layouts[buffer].alignment, 0
        for other in sorted(places, key=places.__getitem__):
            if _together(lives[buffer], lives[other]) and places[other] < at + buffer.nbytes:
                at = max(at, -(-(places[other] + other.nbytes) // unit) * unit)
        places[buffer] = at
    return places | {b: places[b.base] for b in layouts if b.base is not None}


def _lives(function: Function) -> dict[SharedBuffer, tuple[float, float]]:
    """Return between which statements of the kernel each buffer is in use: its allocation, and
    where it is freed."""
    lives: dict[SharedBuffer, tuple[float, float]] = {}
    for at, top in enumerate(function.body):
        for stmt in walk((top,)):
            out = getattr(stmt, "out", None)
            if isinstance(out, SharedTensor):
                lives.setdefault(out.buffer.memory, (at, math.inf))
            for freed in freed_by(stmt):
                lives[freed] = (lives[freed][0], at)
    return lives


def freed_by(stmt: Stmt) -> list[SharedBuffer]:
    """Return the buffers whose use ends with ``stmt``."""
    effects = stmt.effects if isinstance(stmt, Instruction) else ()
    return [getattr(stmt, e.field).buffer.memory for e in effects if e.kind == "free"]


def _together(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _size(part: SharedBuffer | BarrierArray) -> int:
    return part.nbytes if isinstance(part, SharedBuffer) else BARRIER_BYTES * len(part)

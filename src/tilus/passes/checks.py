# SPDX-License-Identifier: Apache-2.0
"""Rules that concern a kernel as a whole: warps, thread groups, register budgets."""

from __future__ import annotations

import math

from tilus.errors import LanguageError
from tilus.ir import Function, Group, Instruction, RegisterTensor, Stmt, Threads, walk_groups

MAX_WARPS = 32
REGISTER_FILE = (
    65536  # 32-bit registers of a multiprocessor, CUDA C programming guide, compute capability 9.0
)
MAX_TILE_REGISTERS = 192  # a thread has 255; addresses, descriptors and the epilogue need the rest


def check(function: Function) -> None:
    """Raise :class:`LanguageError` where the kernel as a whole breaks a rule."""
    if not 1 <= function.warps <= MAX_WARPS:
        message = f"self.attrs.warps must be from 1 to {MAX_WARPS}, got {function.warps}"
        raise LanguageError(message, function.location)
    for stmt, threads in walk_groups(function.body, function.threads):
        _check_scope(stmt, threads, function)
        _check_tile(stmt)
    _check_budgets(function)


def _check_scope(stmt: Stmt, threads: Threads, function: Function) -> None:
    if isinstance(stmt, Instruction) and stmt.issuer == "block" and threads != function.threads:
        name = type(stmt).__name__
        message = f"{name}: must stand outside of thread groups, got a group of {threads.role}"
        raise LanguageError(message, stmt.location)


def _check_tile(stmt: Stmt) -> None:
    """Refuse a register tile that cannot fit a thread's registers."""
    tile = getattr(stmt, "out", None)
    if not isinstance(stmt, Instruction) or not isinstance(tile, RegisterTensor) or tile.replicated:
        return
    words = math.prod(tile.shape) * tile.dtype.nbytes // (4 * tile.threads.count)
    if words > MAX_TILE_REGISTERS:
        message = (
            f"{type(stmt).__name__}: {tile.name} must take at most {MAX_TILE_REGISTERS} registers "
            f"a thread, got {words} "
            f"({list(tile.shape)} {tile.dtype} over {tile.threads.count} threads)"
        )
        raise LanguageError(message, stmt.location)


def _check_budgets(function: Function) -> None:
    """Check ``registers=`` of thread groups against setmaxnreg's rules and the register file."""
    groups = [s for s, _ in walk_groups(function.body, function.threads) if isinstance(s, Group)]
    budgets = [g for g in groups if g.registers is not None]
    for g in budgets:
        if g.threads.begin % 128 or g.threads.count % 128:
            message = (
                "thread_group: registers= must be given to whole, aligned warp groups (128 threads)"
            )
            raise LanguageError(f"{message}, got {g.threads.role}", g.location)
        if g.registers not in range(24, 257, 8):
            message = (
                f"thread_group: registers must be a multiple of 8 from 24 to 256, got {g.registers}"
            )
            raise LanguageError(message, g.location)
    total = sum((g.registers or 0) * g.threads.count for g in budgets)
    if total > REGISTER_FILE:
        message = (
            f"thread_group: the groups' registers must sum to at most {REGISTER_FILE}, got {total}"
        )
        raise LanguageError(message, budgets[-1].location)

# SPDX-License-Identifier: Apache-2.0
"""Rules that concern a kernel as a whole: scalars, thread groups, tiles, register budgets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tilus.errors import LanguageError, Location
from tilus.ir import (
    Declare,
    Function,
    GlobalTensor,
    Group,
    Instruction,
    RegisterTensor,
    SharedBuffer,
    SharedTensor,
    Stmt,
    Threads,
    Var,
    bodies,
    host_known,
    walk,
    walk_groups,
)
from tilus.ir.function import REGISTER_FILE
from tilus.layout import RegisterLayout
from tilus.passes.placement import freed_by

NAMED_BARRIERS = 15
"""PTX ISA, "bar": a block has sixteen; number 0 is that of the whole block."""
MAX_TILE_REGISTERS = 208  # a thread has 255; addresses, descriptors and the epilogue need the rest


def check(function: Function) -> None:
    """Raise :class:`LanguageError` where the kernel as a whole breaks a rule."""
    for p in function.params:
        _check_scalar(p.var, function.location)
    for stmt, threads in walk_groups(function.body, function.threads):
        if isinstance(stmt, Declare):
            _check_scalar(stmt.var, stmt.location)
        _check_scope(stmt, threads, function)
        _check_view(stmt, function)
        _check_peers(stmt)
        if isinstance(stmt, Instruction):
            stmt.verify_within(function)
    _check_budgets(function)
    _check_single(function)
    _check_barriers(function)
    _check_freed(function)


def _check_scalar(var: Var, location: Location) -> None:
    """Refuse 16-bit floats, which generated CUDA carries as bits and cannot compute with."""
    if var.dtype.is_float and var.dtype.bits == 16:
        rule = "of a type that scalars have"
        message = f"'{var.name}' must be {rule}, got {var.dtype}; take float32"
        raise LanguageError(message, location)


def _check_scope(stmt: Stmt, threads: Threads, function: Function) -> None:
    if isinstance(stmt, Instruction) and stmt.issuer == "block" and threads != function.threads:
        name = type(stmt).__name__
        message = f"{name}: must stand outside of thread groups, got a group of {threads.role}"
        raise LanguageError(message, stmt.location)


def check_tiles(function: Function, layouts: Mapping[RegisterTensor, RegisterLayout]) -> None:
    """Refuse register tiles that cannot fit a thread's registers."""
    for stmt in walk(function.body):
        tile = getattr(stmt, "out", None)
        if not isinstance(stmt, Instruction) or not isinstance(tile, RegisterTensor):
            continue
        held, n = layouts[tile].registers, tile.threads.count
        words = held * tile.dtype.nbytes // 4
        if words > MAX_TILE_REGISTERS:
            copies = held * n > math.prod(tile.shape)
            uneven = f"; {n} threads do not divide it, and hold copies" if copies else ""
            message = (
                f"{type(stmt).__name__}: {tile.name} must take at most {MAX_TILE_REGISTERS} "
                f"registers a thread, got {words} "
                f"({list(tile.shape)} {tile.dtype} over {n} threads{uneven})"
            )
            raise LanguageError(message, stmt.location)


def _check_view(stmt: Stmt, function: Function) -> None:
    """Refuse a view that the host cannot compute: a launch checks arrays against it."""
    view = getattr(stmt, "out", None)
    if isinstance(stmt, Instruction) and isinstance(view, GlobalTensor):
        known = {p.var for p in function.params}
        if not all(host_known(x, known) for x in (*view.shape, *view.strides)):
            rule = "made from compile-time values and kernel parameters"
            message = f"{type(stmt).__name__}: shape and strides must be {rule}"
            raise LanguageError(f"{message}, got another run-time value", stmt.location)


def _check_peers(stmt: Stmt) -> None:
    """Refuse tensors of other blocks where an instruction reaches no other block."""
    if isinstance(stmt, Instruction) and not stmt.peers:
        for tensor in (v for v in vars(stmt).values() if isinstance(v, SharedTensor)):
            rule = f"{tensor.name} must be in the block's own shared memory"
            message = f"{type(stmt).__name__}: {rule}, got that of another block"
            if tensor.rank is not None:
                raise LanguageError(f"{message}; self.load_shared copies it", stmt.location)


def _check_budgets(function: Function) -> None:
    """Check that each warp keeps one register budget, and that all fit the register file together.

    Warps without a budget keep what they have begun with.
    """
    budgets: dict[int, int] = {}
    last = function.location
    for stmt, _ in walk_groups(function.body, function.threads):
        if not isinstance(stmt, Group) or stmt.registers is None:
            continue
        last = stmt.location
        for warp in range(stmt.threads.begin // 32, stmt.threads.end // 32):
            if budgets.setdefault(warp, stmt.registers) != stmt.registers:
                rule = f"registers of warp {warp} must stay {budgets[warp]}, as set before"
                raise LanguageError(f"thread_group: {rule}, got {stmt.registers}", last)
    even = function.initial_registers
    total = sum(32 * budgets.get(warp, even) for warp in range(function.warps))
    if budgets and total > REGISTER_FILE:
        others = f"; a thread without a budget has {even}" if len(budgets) < function.warps else ""
        rule = f"the groups' registers must sum to at most {REGISTER_FILE}, got {total}{others}"
        raise LanguageError(f"thread_group: {rule}", last)


def _check_single(function: Function) -> None:
    """Check that what one thread alone may wait for comes from one thread of a warp.

    Hardware elects a thread of the warp, always the same, but does not say which: that a thread
    chosen by its number is that one, nobody knows.
    """
    first: dict[int, tuple[bool, Location]] = {}
    for stmt, group in _groups(function.body, None):
        if not isinstance(stmt, Instruction) or stmt.issuer != "single" or group is None:
            continue
        warp = group.threads.begin // 32
        elect, where = first.setdefault(warp, (group.elect, stmt.location))
        if elect != group.elect:
            found = ("chosen by its number", "elected by hardware")
            rule = f"the thread must be {found[elect]}, as in line {where.line}"
            message = f"{type(stmt).__name__}: {rule}, got one {found[group.elect]}"
            raise LanguageError(f"{message}; write self.single_thread() alike", stmt.location)


def _groups(body: tuple[Stmt, ...], group: Group | None) -> Iterator[tuple[Stmt, Group | None]]:
    """Yield every statement with the innermost group around it that chooses among threads."""
    for stmt in body:
        yield stmt, group
        alone = group is not None and group.threads.count == 1
        inside = stmt if isinstance(stmt, Group) and not alone else group
        for inner in bodies(stmt):
            yield from _groups(inner, inside)


def _check_freed(function: Function) -> None:
    """Refuse to free shared memory where that may not happen once, and to use it afterwards."""
    freed: dict[SharedBuffer, Location] = {}
    for stmt in walk(function.body):
        for tensor in (v for v in vars(stmt).values() if isinstance(v, SharedTensor)):
            if tensor.buffer.memory in freed:
                line = freed[tensor.buffer.memory].line
                message = f"'{tensor.name}' must not be used after line {line}, which frees it"
                raise LanguageError(message, stmt.location)
        for buffer in freed_by(stmt):
            if stmt not in function.body:
                rule = "must stand outside of loops and conditions, got one around it"
                raise LanguageError(f"{type(stmt).__name__}: {rule}", stmt.location)
            freed[buffer] = stmt.location


def _check_barriers(function: Function) -> None:
    """Check that the thread groups that meet at a barrier of their own are not too many."""
    groups: set[Threads] = set()
    for stmt, threads in walk_groups(function.body, function.threads):
        if isinstance(stmt, Instruction) and stmt.issuer == "group" and threads.count > 32:
            groups |= {threads} - {function.threads}
            if len(groups) > NAMED_BARRIERS:
                rule = f"at most {NAMED_BARRIERS} thread groups of several warps may meet"
                raise LanguageError(f"{type(stmt).__name__}: {rule}, got more", stmt.location)

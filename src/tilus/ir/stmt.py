# SPDX-License-Identifier: Apache-2.0
"""Statements: the small fixed set that every phase handles with ``match``.

Instructions are the open set beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tilus.errors import Location
from tilus.ir.expr import Expr, Var
from tilus.ir.tensor import RegisterTensor, Threads


@dataclass(frozen=True, eq=False, kw_only=True)
class Stmt:
    """A statement, with its place in the kernel's source."""

    location: Location


@dataclass(frozen=True, eq=False, kw_only=True)
class Declare(Stmt):
    """Declare ``var`` and give it its first value."""

    var: Var
    value: Expr


@dataclass(frozen=True, eq=False, kw_only=True)
class Assign(Stmt):
    """Give ``var`` a new value."""

    var: Var
    value: Expr


@dataclass(frozen=True, eq=False, kw_only=True)
class SetElement(Stmt):
    """Give one element of a small replicated register tensor a new value."""

    tensor: RegisterTensor
    index: Expr
    value: Expr


@dataclass(frozen=True, eq=False, kw_only=True)
class If(Stmt):
    """Run one of two bodies."""

    cond: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class For(Stmt):
    """``for var in range(start, stop, step)``; ``unroll`` is the factor asked of the compiler, 0
    for "all"."""

    var: Var
    start: Expr
    stop: Expr
    step: Expr
    body: tuple[Stmt, ...]
    unroll: int | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class While(Stmt):
    """Run ``body`` as long as ``cond`` holds."""

    cond: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Break(Stmt):
    """Leave the innermost loop."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Continue(Stmt):
    """Go on with the next turn of the innermost loop."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Return(Stmt):
    """Leave the kernel."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Group(Stmt):
    """Only ``threads`` run ``body``.

    ``elect``: any one thread of the surrounding group, chosen by hardware; ``threads`` is then the
    first of them, by convention. ``registers``: the group's register budget for ``setmaxnreg``.
    """

    threads: Threads
    body: tuple[Stmt, ...]
    elect: bool = False
    registers: int | None = None


def bodies(stmt: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """Return the statement lists nested directly in ``stmt``."""
    match stmt:
        case If(then=then, orelse=orelse):
            return (then, orelse)
        case For(body=body) | While(body=body) | Group(body=body):
            return (body,)
    return ()


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Yield every statement of ``body`` in source order, outer before inner."""
    for stmt in body:
        yield stmt
        for inner in bodies(stmt):
            yield from walk(inner)


def walk_groups(body: tuple[Stmt, ...], threads: Threads) -> Iterator[tuple[Stmt, Threads]]:
    """Yield every statement with the threads that run it; ``threads`` run ``body``."""
    for stmt in body:
        yield stmt, threads
        inside = stmt.threads if isinstance(stmt, Group) else threads
        for inner in bodies(stmt):
            yield from walk_groups(inner, inside)


Rewrite = Callable[[Stmt], "tuple[Stmt, ...]"]


def rewrite(body: tuple[Stmt, ...], change: Rewrite) -> tuple[Stmt, ...]:
    """Return ``body`` with every statement replaced by what ``change`` makes of it, inner
    statements first."""
    return tuple(new for stmt in body for new in change(_rewrite_inside(stmt, change)))


def _rewrite_inside(stmt: Stmt, change: Rewrite) -> Stmt:
    match stmt:
        case If(then=then, orelse=orelse):
            return replace(stmt, then=rewrite(then, change), orelse=rewrite(orelse, change))
        case For(body=body) | While(body=body) | Group(body=body):
            return replace(stmt, body=rewrite(body, change))
    return stmt

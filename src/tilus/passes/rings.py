# SPDX-License-Identifier: Apache-2.0
"""Make the index of a ring of stages a constant in each turn of an unrolled loop.

``stage = (stage + 1) % n`` at the end of a loop that is unrolled n times takes the same n values in
every round. CUDA's compiler does not see that, and would compute addresses and descriptors of the
stage between two products. Written as rounds of n turns, stage is the number of the turn::

    for base in range(0, k, n * step):
        for turn in range(n):                     # unrolled
            offset, stage = base + turn * step, turn
            ...

The turns that do not fill a round follow behind. Only loops with compile-time bounds are changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tilus.dtypes import int32
from tilus.ir import (
    Assign,
    Break,
    Const,
    Continue,
    Declare,
    Expr,
    For,
    Function,
    Operation,
    Stmt,
    Var,
    apply,
    as_expr,
    bodies,
    walk,
)


@dataclass(frozen=True, eq=False)
class _Ring:
    """``stage`` goes from ``first`` by ``step`` modulo ``size``, once a turn, at the end of it."""

    stage: Var
    first: int
    step: int
    size: int
    advance: Assign

    def at(self, turn: Expr | int) -> Expr:
        """Return the stage's value in a turn."""
        return (as_expr(turn) * self.step + self.first) % self.size


def unroll_rings(function: Function) -> Function:
    """Rewrite the loops of ``function`` that step through a ring."""
    return replace(function, body=_body(function.body))


def _body(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    for stmt in body:
        new = _inside(stmt)
        ring = _ring(new, result) if isinstance(new, For) else None
        result += _rounds(new, ring) if ring and isinstance(new, For) else [new]
    return tuple(result)


def _inside(stmt: Stmt) -> Stmt:
    """Return ``stmt`` with its nested statement lists rewritten."""
    names = [n for n in ("then", "orelse", "body") if hasattr(stmt, n)]
    changes: dict[str, Any] = dict(zip(names, map(_body, bodies(stmt)), strict=True))
    return replace(stmt, **changes) if changes else stmt


def _ring(loop: For, before: list[Stmt]) -> _Ring | None:
    """Return the ring that ``loop`` steps through, if there is one that its unrolling closes."""
    if not loop.unroll or loop.unroll < 2 or _turns(loop) is None or not loop.body:
        return None
    match loop.body[-1]:
        case (
            Assign(
                var=v,
                value=Operation(
                    op="%",
                    args=(
                        Operation(op="+", args=(Var() as w, Const(value=int(step)))),
                        Const(value=int(n)),
                    ),
                ),
            ) as advance
        ) if v is w and step * loop.unroll % n == 0:
            first = _last_constant(v, before)
            if first is not None and 0 <= first < n and _plain(loop, v):
                return _Ring(v, first, step, n, advance)
    return None


def _turns(loop: For) -> int | None:
    """Return how often the loop runs, or None where that is not known."""
    match loop.start, loop.stop, loop.step:
        case Const(value=int(start)), Const(value=int(stop)), Const(value=int(step)) if step > 0:
            return max(0, -(-(stop - start) // step))
    return None


def _last_constant(v: Var, before: list[Stmt]) -> int | None:
    """Return the constant that ``v`` holds behind the statements ``before``, or None."""
    for stmt in reversed(before):
        match stmt:
            case Declare(var=var, value=value) | Assign(var=var, value=value) if var is v:
                return (
                    value.value
                    if isinstance(value, Const) and isinstance(value.value, int)
                    else None
                )
        if any(isinstance(s, Assign) and s.var is v for s in walk((stmt,))):
            return None
    return None


def _plain(loop: For, v: Var) -> bool:
    """Say whether every turn runs to its end, and nothing before the end changes an index."""
    inner = list(walk(loop.body[:-1]))
    changed = [s.var for s in inner if isinstance(s, Assign)]
    leaves = any(isinstance(s, Break | Continue) for s in inner)
    return not leaves and v not in set(changed) and loop.var not in set(changed)


def _rounds(loop: For, ring: _Ring) -> list[Stmt]:
    turns, unroll = _turns(loop), loop.unroll
    assert turns is not None and unroll is not None
    rounds, rest = divmod(turns, unroll)
    result: list[Stmt] = []
    if rounds:
        base = Var(f"{loop.var.name}_round", loop.var.dtype)
        stop = loop.start + loop.step * (rounds * unroll)
        body = (_turn_loop(loop, ring, base, unroll),)
        step = loop.step * unroll
        result.append(replace(loop, var=base, stop=stop, step=step, body=body, unroll=1))
    if rest:
        result.append(_turn_loop(loop, ring, loop.start + loop.step * (rounds * unroll), rest))
    result.append(replace(ring.advance, value=ring.at(turns)))
    return result


def _turn_loop(loop: For, ring: _Ring, base: Expr, count: int) -> For:
    """Return ``count`` turns of the loop behind ``base``, to be unrolled completely."""
    turn = Var("turn", int32)
    value = apply("+", base, turn * loop.step)
    start = (
        Declare(location=loop.location, var=loop.var, value=value),
        replace(ring.advance, value=ring.at(turn)),
    )
    zero, one, stop = as_expr(0), as_expr(1), as_expr(count)
    body = (*start, *loop.body[:-1])
    return replace(loop, var=turn, start=zero, stop=stop, step=one, body=body, unroll=0)

# SPDX-License-Identifier: Apache-2.0
"""The smallest kernels: statements made by hand around instructions that only take notes.

Their names begin with an underscore, which keeps them out of the registry of instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from tilus import ir, simulator
from tilus.dtypes import int32
from tilus.errors import Location

NUMBERS = count(1)
BLOCK = ir.Threads(0, 160)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Do(ir.Instruction):
    """Call ``action(machine)``; wait where it returns a wait."""

    action: Callable[[Any], Any]

    def simulate(self, m):
        result = self.action(m)
        return result if isinstance(result, ir.Wait) else None


def place() -> Location:
    return Location("small.py", next(NUMBERS))


def do(action: Callable[[Any], Any], threads: ir.Threads = BLOCK) -> _Do:
    return _Do(location=place(), threads=threads, action=action)


def note(log: list, x: ir.ExprLike, threads: ir.Threads = BLOCK) -> _Do:
    """Append the value of ``x`` to ``log``."""
    return do(lambda m: log.append(m.value(x)), threads)


def group(begin: int, size: int, *body: ir.Stmt) -> ir.Group:
    return ir.Group(location=place(), threads=ir.Threads(begin, size), body=body)


def assign(var: ir.Var, value: ir.ExprLike) -> ir.Assign:
    return ir.Assign(location=place(), var=var, value=ir.as_expr(value))


def loop(var: ir.Var, stop: ir.ExprLike, *body: ir.Stmt) -> ir.For:
    zero, one = ir.as_expr(0), ir.as_expr(1)
    return ir.For(location=place(), var=var, start=zero, stop=ir.as_expr(stop), step=one, body=body)


def when(cond: ir.Expr, *then: ir.Stmt) -> ir.If:
    return ir.If(location=place(), cond=cond, then=then)


def variable(name: str = "x") -> ir.Var:
    return ir.Var(name, int32)


def kernel(
    *body: ir.Stmt, params=(), blocks=(1, 1, 1), plan: ir.Plan | None = None, cluster=(1, 1, 1)
) -> ir.Kernel:
    function = ir.Function(
        "small",
        tuple(params),
        tuple(ir.as_expr(n) for n in blocks),
        5,
        body,
        Location("small.py", 0),
        cluster,
    )
    return ir.Kernel(function, plan or ir.Plan({}, {}, {}, (), 0))


def run(*body: ir.Stmt, **options) -> simulator.Result:
    return simulator.run(kernel(*body), {}, **options)

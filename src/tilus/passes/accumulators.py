# SPDX-License-Identifier: Apache-2.0
"""Let the first product overwrite an accumulator that the kernel set to zero.

Writing zeros before the first WGMMA costs an instruction per register, and ptxas may serialise the
products behind them. The hardware has a flag for it (scale-d): a run-time boolean per accumulator
says whether a product has come yet. Where one is read and none has come (K = 0), it is filled with
zeros then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tilus.dtypes import boolean
from tilus.ir import (
    Assign,
    Const,
    Declare,
    Function,
    If,
    Instruction,
    RegisterTensor,
    Stmt,
    Var,
    apply,
    rewrite,
    walk,
)


@dataclass(frozen=True, eq=False)
class _Zeroed:
    """A zeroed accumulator: the flag that says whether it holds a value, and the instruction that
    fills it."""

    live: Var
    declaration: Instruction
    fill: Instruction


def overwrite_first(function: Function) -> Function:
    """Replace the zeroing of accumulators by a flag that the first product reads."""
    zeroed = dict(_find(function))
    if not zeroed:
        return function
    return replace(function, body=rewrite(function.body, lambda stmt: _change(stmt, zeroed)))


def _touched(stmt: Stmt, kind: str | None = None) -> Iterator[RegisterTensor]:
    """Yield the register tensors that an instruction names in its effects."""
    if isinstance(stmt, Instruction):
        for effect in stmt.effects:
            tensor = getattr(stmt, effect.field)
            if isinstance(tensor, RegisterTensor) and kind in (None, effect.kind):
                yield tensor


def _find(function: Function) -> Iterator[tuple[RegisterTensor, _Zeroed]]:
    products = [s for s in walk(function.body) if list(_touched(s, "accumulate"))]
    always: set[RegisterTensor] = {t for s in products for t in _touched(s, "accumulate")}
    for stmt in products:
        if getattr(stmt, "scale_d", True) is not True:  # the kernel decides by itself
            always -= set(_touched(stmt, "accumulate"))
    for stmt in walk(function.body):
        split = stmt.split_init() if isinstance(stmt, Instruction) else None
        for tensor in _touched(stmt, "write"):
            if split and tensor in always:
                yield tensor, _Zeroed(Var(f"{tensor.name}_live", boolean), *split)


def _change(stmt: Stmt, zeroed: dict[RegisterTensor, _Zeroed]) -> tuple[Stmt, ...]:
    tensor = next((t for t in _touched(stmt) if t in zeroed), None)
    if tensor is None:
        return (stmt,)
    this, at = zeroed[tensor], stmt.location
    set_live = Assign(location=at, var=this.live, value=Const(True, boolean))
    if isinstance(stmt, Instruction) and stmt.split_init():
        return (Declare(location=at, var=this.live, value=Const(False, boolean)), this.declaration)
    if list(_touched(stmt, "accumulate")):
        changes: dict[str, Any] = {"scale_d": this.live}
        return (replace(stmt, **changes), set_live)
    then = (replace(this.fill, location=at), set_live)
    return (If(location=at, cond=apply("not", this.live), then=then), stmt)

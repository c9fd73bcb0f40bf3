# SPDX-License-Identifier: Apache-2.0
"""What can be known of scalar values: which are never negative, which tensor elements are single
bits."""

from __future__ import annotations

from collections.abc import Iterator

from tilus.ir import (
    Assign,
    Cast,
    Const,
    Declare,
    Element,
    Expr,
    For,
    Function,
    Instruction,
    Operation,
    RegisterTensor,
    Select,
    SetElement,
    Var,
    nonnegative,
    walk,
)


def _definitions(function: Function) -> Iterator[tuple[Var, tuple[Expr, ...]]]:
    for stmt in walk(function.body):
        match stmt:
            case Declare(var=var, value=value) | Assign(var=var, value=value):
                yield var, (value,)
            case For(var=var, start=start, step=step):
                yield var, (start, step)


def find_nonnegative(function: Function) -> frozenset[Var]:
    """Return the variables all of whose values are non-negative, by assuming it of all and taking
    back what fails."""
    definitions = list(_definitions(function))
    known = {var for var, _ in definitions}
    while True:
        wrong = {
            v for v, xs in definitions if v in known and not all(nonnegative(x, known) for x in xs)
        }
        if not wrong:
            return frozenset(known)
        known -= wrong


def is_bit(x: Expr, bits: set[RegisterTensor]) -> bool:
    """Say whether ``x`` is 0 or 1, if the elements of ``bits`` are."""
    match x:
        case Const(value=value):
            return value in (0, 1)
        case Element(tensor=tensor):
            return tensor in bits
        case Cast(x=inner):
            return inner.dtype.kind == "b" or is_bit(inner, bits)
        case Select(a=a, b=b) | Operation(op="^" | "&" | "|", args=(a, b)):
            return is_bit(a, bits) and is_bit(b, bits)
    return x.dtype.kind == "b"


def find_bits(function: Function) -> frozenset[RegisterTensor]:
    """Return the replicated tensors whose elements are always 0 or 1, and that no instruction
    but their allocation touches."""
    statements = list(walk(function.body))
    bits = set()
    for stmt in statements:
        out, init = getattr(stmt, "out", None), getattr(stmt, "init", None)
        if isinstance(out, RegisterTensor) and out.replicated and init in (0, 1):
            bits.add(out)
    for stmt in statements:
        if isinstance(stmt, Instruction):
            used = {getattr(stmt, e.field) for e in stmt.effects if e.field != "out"}
            bits -= {x for x in used if isinstance(x, RegisterTensor)}
    while True:
        stores = [s for s in statements if isinstance(s, SetElement) and s.tensor in bits]
        wrong = {s.tensor for s in stores if not is_bit(s.value, bits)}
        if not wrong:
            return frozenset(bits)
        bits -= wrong

# SPDX-License-Identifier: Apache-2.0
"""What can be said of an expression without running it."""

from __future__ import annotations

from collections.abc import Set

from tilus.ir.expr import Builtin, Cast, Const, Element, Expr, Operation, Select, Var, children

_PROMISED = {"udiv", "umod"}  # whose operands the author says are not negative
_MONOTONE = {"+", "*", "//", "<<", ">>", "min", "|", "^"}


def host_known(x: Expr, parameters: Set[Var]) -> bool:
    """Say whether the host can compute ``x``: it is made of constants and parameters alone."""
    match x:
        case Var():
            return x in parameters
        case Builtin() | Element():
            return False
    return all(host_known(child, parameters) for child in children(x))


def nonnegative(x: Expr, known: Set[Var]) -> bool:
    """Say whether ``x`` cannot be negative, if the variables in ``known`` are not (overflow
    aside)."""
    if x.dtype.kind in "ub":
        return True
    match x:
        case Const(value=value):
            return value >= 0
        case Builtin():
            return True
        case Var():
            return x in known
        case Cast(x=inner):
            room = x.dtype.bits - (inner.dtype.kind == "u")  # 2**31 is negative as an int32
            return inner.dtype.bits <= room and nonnegative(inner, known)
        case Select(a=a, b=b):
            return nonnegative(a, known) and nonnegative(b, known)
        case Operation(op="%", args=(_, b)):
            return nonnegative(b, known)
        case Operation(op="max" | "&", args=args):
            return any(nonnegative(a, known) for a in args)
        case Operation(op=op, args=args) if op in _MONOTONE:
            return all(nonnegative(a, known) for a in args)
    return isinstance(x, Operation) and x.op in _PROMISED

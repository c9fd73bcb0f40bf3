# SPDX-License-Identifier: Apache-2.0
"""The values names stand for while a kernel is traced: Python objects, expressions, handles."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from tilus import ir
from tilus.dtypes import DType
from tilus.ir.expr import common_dtype

NUMBERS = (int, float, bool)
HANDLES = (ir.SharedTensor, ir.GlobalTensor, ir.Barrier)


class Inlined:
    """Base of objects whose methods are traced, like ``__call__``, when a kernel calls them."""


@dataclass(frozen=True)
class Unreadable:
    """Stands for a name that has no usable value any more, and says why and what to do."""

    reason: str


class Missing:
    """The type of :data:`MISSING`."""


MISSING = Missing()
"""Stands for a name that has no value."""


def scalar(value: object) -> bool:
    """Return whether ``value`` is a number, known now or at run time."""
    return type(value) in NUMBERS or isinstance(value, ir.Expr)


def same_number(a: object, b: object) -> bool:
    """Say whether two compile-time numbers are one: 1, 1.0 and True are three."""
    return type(a) is type(b) and a == b


def traced(value: Any) -> Iterator[Any]:
    """Yield run-time values and tensors: ``value``, or what a list, tuple or dictionary holds."""
    if isinstance(value, (ir.Expr, ir.RegisterTensor, *HANDLES)):
        yield value
    elif type(value) in (tuple, list, dict):
        for x in value.values() if type(value) is dict else value:
            yield from traced(x)


def map_expressions(value: Any, change: Callable[[ir.Expr], ir.Expr]) -> Any:
    """Return ``value`` with every expression in it changed, itself where nothing changes."""

    def inner(x: Any) -> Any:
        if isinstance(x, ir.Expr):
            return change(x)
        if not isinstance(x, HANDLES):
            return x
        old = {f.name: getattr(x, f.name) for f in fields(x)}
        new = {k: map_values(v, inner) for k, v in old.items() if isinstance(v, ir.Expr | tuple)}
        other = {k: v for k, v in new.items() if v is not old[k]}
        return replace(x, **other) if other else x

    return map_values(value, inner)


def map_values(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return ``value`` changed, or its elements where it is a list, tuple or dictionary; itself
    where nothing changes."""
    if type(value) in (tuple, list):
        items = [map_values(v, change) for v in value]
        same = all(a is b for a, b in zip(items, value, strict=True))
        return value if same else type(value)(items)
    if type(value) is dict:
        changed = {k: map_values(v, change) for k, v in value.items()}
        return value if all(changed[k] is v for k, v in value.items()) else changed
    return change(value)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "Div": operator.truediv,
    "FloorDiv": operator.floordiv, "Mod": operator.mod, "Pow": operator.pow,
    "LShift": operator.lshift, "RShift": operator.rshift, "MatMult": operator.matmul,
    "BitAnd": operator.and_, "BitOr": operator.or_, "BitXor": operator.xor,
}  # fmt: skip

COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq, "NotEq": operator.ne, "Lt": operator.lt, "LtE": operator.le,
    "Gt": operator.gt, "GtE": operator.ge, "Is": operator.is_, "IsNot": operator.is_not,
    "In": lambda a, b: a in b, "NotIn": lambda a, b: a not in b,
}  # fmt: skip


UNARY: dict[str, Callable[[Any], Any]] = {
    "USub": operator.neg, "UAdd": operator.pos, "Invert": operator.invert,
}  # fmt: skip

OPERATIONS: dict[str, Callable[..., Any]] = {**BINARY, **COMPARE, **UNARY}

SYMBOLS: dict[str, str] = {
    "Add": "+", "Sub": "-", "Mult": "*", "Div": "/", "FloorDiv": "//", "Mod": "%", "Pow": "**",
    "LShift": "<<", "RShift": ">>", "BitAnd": "&", "BitOr": "|", "BitXor": "^", "MatMult": "@",
    "Eq": "==", "NotEq": "!=", "Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">=",
    "USub": "neg", "Invert": "invert",
}  # fmt: skip
"""What instructions on register tiles call Python's operators; a tile's ``+x`` is ``x``."""

TILE_BUILTINS: dict[Any, str] = {abs: "abs", min: "min", max: "max"}
"""Python's functions that also work on register tiles, by the operator they are there."""


def contains_runtime(values: Any) -> bool:
    """Return whether a run-time value is among ``values`` or in a list or tuple of theirs."""
    return any(
        isinstance(v, ir.Expr) or (type(v) in (tuple, list) and contains_runtime(v)) for v in values
    )


def loses(value: DType, variable: DType) -> bool:
    """Return whether a variable of one type cannot hold every value of another."""
    return value != variable and common_dtype(value, variable) != variable

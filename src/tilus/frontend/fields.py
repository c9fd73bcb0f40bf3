# SPDX-License-Identifier: Apache-2.0
"""From a call's arguments to an instruction's fields."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import Any

from tilus import ir
from tilus.dtypes import DType
from tilus.errors import LanguageError

Test = Callable[[Any], bool]


def of(*types: type) -> Test:
    """Return the test for values of these types."""
    return lambda value: isinstance(value, types)


def is_integer(value: Any) -> bool:
    """Say whether a value is an integer of Python; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Say whether a value is a number, known now or at run time, that a register holds."""
    small = not isinstance(value, int) or -(1 << 63) <= value < 1 << 64
    return isinstance(value, ir.Expr | int | float) and small


def each(test: Test) -> Test:
    """Return the test for lists of what passes ``test``."""
    return lambda value: isinstance(value, list | tuple | range) and all(map(test, value))


NUMBER = "a number, or a run-time value, of at most 64 bits"
KINDS: dict[str, tuple[Test, str]] = {
    "DType": (of(DType), "a type such as float16"),
    "RegisterTensor": (of(ir.RegisterTensor), "a register tile"),
    "SharedTensor": (of(ir.SharedTensor), "a tensor in shared memory"),
    "GlobalTensor": (of(ir.GlobalTensor), "a view of device memory"),
    "Tensor": (of(ir.RegisterTensor, ir.SharedTensor, ir.GlobalTensor), "a tensor"),
    "Barrier": (of(ir.Barrier), "one mbarrier"),
    "Operand": (of(ir.RegisterTensor, ir.Expr, int, float), "a register tile or a number"),
    "Scalar": (of(int, float), "a compile-time number"),
    "ExprLike": (is_number, NUMBER),
    "int": (is_integer, "a compile-time integer"),
    "bool": (of(bool), "True or False"),
    "str": (of(str), "a string"),
    "Sequence[int]": (each(is_integer), "a list of compile-time integers"),
    "Sequence[ExprLike]": (each(is_number), "a list of integers, also run-time ones"),
    "None": (of(type(None)), "None"),
}
"""What the annotation of a field says of its values: a test, and how a message calls them."""
FIRST = ("DType", "Operand", "bool", "Sequence[int]", "Sequence[ExprLike]")
"""Kinds that are seen to before an instruction looks at its arguments."""


def bind_instruction(
    cls: type[ir.Instruction], args: list[Any], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Match arguments with an instruction's fields; lists become tuples, as nodes are frozen."""
    names = cls.parameters()
    if cls.variadic:
        fixed = len(names) - 1
        args = [*args[:fixed], tuple(args[fixed:])] if len(args) > fixed else args
    if len(args) > len(names):
        raise LanguageError(
            f"{cls.__name__}: takes at most {len(names)} arguments, got {len(args)}"
        )
    given = dict(zip(names, args, strict=False))
    for key, value in kwargs.items():
        if key in given or key not in names:
            problem = (
                "is given twice" if key in given else f"is unknown; it takes {', '.join(names)}"
            )
            raise LanguageError(f"{cls.__name__}: argument '{key}' {problem}")
        given[key] = value
    required = {
        f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING
    }
    missing = [n for n in names if n in required and n not in given and n != "out"]
    if missing:
        raise LanguageError(f"{cls.__name__}: argument '{missing[0]}' is missing")
    return {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}


def check_kinds(
    cls: type[ir.Instruction], arguments: Mapping[str, Any], only: Collection[str] = KINDS
) -> None:
    """Refuse arguments of another kind than their fields are annotated with."""
    for field in fields(cls):
        kinds = str(field.type).split(" | ")
        if field.name not in arguments or not set(kinds) <= set(only):
            continue
        value = arguments[field.name]
        if not any(KINDS[kind][0](value) for kind in kinds):
            rule = " or ".join(KINDS[kind][1] for kind in kinds)
            message = f"{cls.__name__}: {field.name} must be {rule}, got {found(value)}"
            raise LanguageError(message + remedy(rule, value))


def found(value: Any) -> str:
    """Name a value in a message."""
    return f"the type {value.__name__}" if isinstance(value, type) else ir.describe(value)


def remedy(rule: str, value: Any) -> str:
    """Return what to write instead, where that is plain, else \"\"."""
    first = value[0] if isinstance(value, tuple) and value else value
    known = isinstance(first, int | float | type | ir.Expr)
    if not known and getattr(first, "ndim", 0) == 0:  # a number of NumPy
        if hasattr(first, "__index__"):
            return "; make Python integers of them: int(x)"
        if hasattr(first, "__float__"):
            return "; make a Python number of it: float(x)"
    if "a list" in rule and isinstance(value, int | ir.Expr):
        return "; write it in brackets: [x]"
    return ""


@contextmanager
def checked_kinds(cls: type[ir.Instruction], arguments: Mapping[str, Any]) -> Iterator[None]:
    """Let the instruction itself refuse first, which knows its rules best; then check kinds."""
    try:
        yield
    except LanguageError:
        raise
    except Exception as error:
        check_kinds(cls, arguments)
        if isinstance(error, TypeError | ValueError | ArithmeticError):
            raise LanguageError(f"{cls.__name__}: {error}") from error
        raise
    check_kinds(cls, arguments)

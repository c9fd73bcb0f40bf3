# SPDX-License-Identifier: Apache-2.0
"""From a call's arguments to an instruction's fields."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import Any

from tilus import ir
from tilus.dtypes import DType
from tilus.errors import LanguageError

KINDS: dict[str, tuple[type, str]] = {
    "DType": (DType, "a type such as float16"),
    "RegisterTensor": (ir.RegisterTensor, "a register tile"),
    "SharedTensor": (ir.SharedTensor, "a tensor in shared memory"),
    "GlobalTensor": (ir.GlobalTensor, "a view of device memory"),
    "Barrier": (ir.Barrier, "one mbarrier"),
    "None": (type(None), "None"),
}
"""What the annotation of a field says of its values, and how a message calls it."""


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
        if not isinstance(value, tuple(KINDS[kind][0] for kind in kinds)):
            rule = " or ".join(KINDS[kind][1] for kind in kinds)
            found = f"the type {value.__name__}" if isinstance(value, type) else ir.describe(value)
            raise LanguageError(f"{cls.__name__}: {field.name} must be {rule}, got {found}")


@contextmanager
def checked_kinds(cls: type[ir.Instruction], arguments: Mapping[str, Any]) -> Iterator[None]:
    """Let the instruction itself refuse first, which knows its rules best; then check kinds."""
    try:
        yield
    except (AttributeError, TypeError):
        check_kinds(cls, arguments)
        raise
    check_kinds(cls, arguments)

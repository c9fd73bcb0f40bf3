# SPDX-License-Identifier: Apache-2.0
"""The arguments of a call: matched with the parameters of ``__call__``, each of its type."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

from tilus import ir, runtime
from tilus.dtypes import DType, PointerType
from tilus.errors import ArgumentError
from tilus.frontend import Parameter, parameters


@dataclass(frozen=True)
class Call:
    """One call's arguments by name: compile-time ``constants``, run-time ``scalars``, ``arrays``.

    ``given`` holds the arrays as they were passed, in order. ``fixed``: the numbers were passed as
    ones of Python or NumPy, which never change, as a tensor of one element may.
    """

    constants: Mapping[str, ir.Scalar]
    scalars: Mapping[str, ir.Scalar]
    arrays: Mapping[str, runtime.Array]
    given: tuple[object, ...]
    fixed: bool = False

    @property
    def device(self) -> str:
        """``"cpu"`` or ``"cuda:0"``: the one place where all arrays are."""
        return next((a.device for a in self.arrays.values()), runtime.CPU)


def bind(function: FunctionType, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    """Match the arguments of a call with a kernel's parameters.

    Raises :class:`ArgumentError` for a wrong number or name, a value of the wrong type or range, an
    array of the wrong type, and arrays on different devices.
    """
    values = match(function, args, kwargs)
    constants, scalars, arrays = {}, {}, {}
    for p in parameters(function):
        value = values[p.name]
        match p.type:
            case PointerType(element=element):
                arrays[p.name] = array(p.name, element, value)
            case DType() as dtype:
                scalars[p.name] = scalar(p.name, dtype, value)
            case _:
                constants[p.name] = constant(p, value)
    one_device(arrays)
    given = tuple(values[name] for name in arrays)
    numbers = (values[name] for name in (*constants, *scalars))
    fixed = all(isinstance(number, int | float | np.generic) for number in numbers)
    return Call(constants, scalars, arrays, given, fixed)


def match(
    function: FunctionType, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the value of every parameter by name, defaults filled in."""
    own = parameters(function)
    names = [p.name for p in own]
    form = f"{function.__qualname__.removesuffix('.__call__')}({', '.join(names)})"
    by_place = function.__code__.co_argcount - 1
    if len(args) > by_place:
        how = "" if by_place == len(own) else " by place"
        rule = f"of at most {by_place} arguments{how}, {form}"
        remedy = "Pass the others by name." if how else "Leave the others out."
        raise ArgumentError("a call", rule, len(args), remedy)
    values = dict(zip(names, args, strict=False))
    for key, value in kwargs.items():
        if key not in names:
            rule = f"a parameter of {form}"
            raise ArgumentError(key, rule, "an unknown name", "Check the spelling.")
        if key in values:
            raise ArgumentError(key, f"given once to {form}", "two values", "Leave one out.")
        values[key] = value
    for p in own:
        if p.name not in values and not p.has_default:
            remedy = "Pass it, by its place or its name."
            raise ArgumentError(p.name, f"given to {form}", "nothing", remedy)
        values.setdefault(p.name, p.default)
    return values


def constant(p: Parameter, value: Any) -> ir.Scalar:
    """Return a compile-time argument as the type of its annotation."""
    assert isinstance(p.type, type)
    if p.type is bool and isinstance(value, bool):
        return value
    if p.type is int and (n := _integer(value)) is not None:
        return n
    if p.type is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    rule = f"{'an' if p.type is int else 'a'} {p.type.__name__}, as annotated"
    raise ArgumentError(p.name, rule, _show(value), _remedy(p.name, "float32", value))


def scalar(name: str, dtype: DType, value: Any) -> ir.Scalar:
    """Return a run-time argument as a value of ``dtype``; integers must fit."""
    if dtype.is_float and isinstance(value, int | float):
        return ir.wrap(value, dtype)
    if dtype.kind == "b" and isinstance(value, bool):
        return value
    n = _integer(value) if dtype.is_integer else None
    if n is None:
        remedy = _remedy(name, dtype.name, value)
        raise ArgumentError(name, f"a number of type {dtype}", _show(value), remedy)
    if ir.wrap(n, dtype) != n:
        remedy = f"Annotate '{name}' with a wider type."
        raise ArgumentError(name, f"within the range of {dtype}", n, remedy)
    return n


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _show(value: Any) -> str:
    """Name a value; of arrays and other large things the type alone."""
    kind = type(value).__name__
    plain = isinstance(value, int | float | complex | str | np.generic | None)
    return f"{value!r} (a {kind})" if plain else f"a {kind}"


def _remedy(name: str, element: str, value: Any) -> str:
    """Say what to pass; in place of an array perhaps what its parameter should be annotated as."""
    if not runtime.is_array(value):
        return "Pass one."
    return (
        f"Annotate '{name}' with a pointer such as ~{element} to take an array, or pass a number."
    )


def array(name: str, element: DType, value: Any) -> runtime.Array:
    """Return what an array argument is, after seeing that it holds values of ``element``."""
    found = runtime.describe(value, name)
    if found.dtype != element:
        remedy = f"Convert it to {element}, or annotate '{name}' with ~{found.dtype}."
        raise ArgumentError(name, f"an array of {element}", f"one of {found.dtype}", remedy)
    return found


def one_device(arrays: Mapping[str, runtime.Array]) -> None:
    """Refuse arrays that are not all in one place."""
    names = list(arrays)
    for name in names[1:]:
        device, first = arrays[name].device, arrays[names[0]].device
        if device != first:
            rule = f"on {first}, where '{names[0]}' is"
            raise ArgumentError(name, rule, f"on {device}", f"Copy it to {first}.")

# SPDX-License-Identifier: Apache-2.0
"""Kernels named on the command line: a file, and values for its schedule and sizes."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from tilus import frontend, ir, loader
from tilus.dtypes import DType
from tilus.errors import ArgumentError, LanguageError
from tilus.script import Script, Tuned

Values = dict[str, ir.Scalar]


def find(place: str) -> type[Script]:
    """Return the script class at ``FILE:CLASS``, or at ``FILE`` where it is the only one."""
    file, _, name = place.partition(":")
    return loader.find(Path(file), Script, name)


def parse(words: Sequence[str]) -> Values:
    """Return the values of ``NAME=VALUE`` words: numbers, True or False."""
    values: Values = {}
    for word in words:
        name, sign, text = word.partition("=")
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = None
        if not sign or not isinstance(value, int | float):
            raise ArgumentError(
                "NAME=VALUE", "a name and a number", repr(word), "Write n_size=256."
            )
        values[name] = value
    return values


def make(cls: type[Script], values: Values) -> tuple[Script, Values]:
    """Return a kernel with the schedule among ``values``, and those left for its call.

    Where values of the tuning space are missing, take the first schedule that can be compiled.
    """
    names = [name for name in inspect.signature(cls.__init__).parameters if name in values]
    left = {name: value for name, value in values.items() if name not in names}
    made: Script | Tuned = cls(**{name: values[name] for name in names})
    if isinstance(made, Tuned):
        return first_possible(made, left), left
    return made, left


def first_possible(tuned: Tuned, values: Values) -> Script:
    """Return the first candidate that the compiler accepts; raise its last error if none is."""
    problem: LanguageError | None = None
    for script in tuned.candidates():
        try:
            script.lower(**constants(script, values))
        except LanguageError as error:
            problem = error
        else:
            return script
    assert problem is not None
    raise problem


def constants(script: Script, values: Mapping[str, ir.Scalar]) -> Values:
    """Return a call's compile-time values; raise ArgumentError for missing and unknown names."""
    parameters = frontend.parameters(frontend.kernel_function(script))
    numbers = [p for p in parameters if isinstance(p.type, DType) or p.type in (int, float, bool)]
    unknown = [name for name in values if name not in {p.name for p in numbers}]
    if unknown:
        rule = f"among {', '.join(p.name for p in numbers)}, or of the schedule"
        raise ArgumentError("NAME=VALUE", rule, ", ".join(unknown), "Check the spelling.")
    wanted = [p.name for p in numbers if not isinstance(p.type, DType)]
    missing = [name for name in wanted if name not in values]
    if missing:
        remedy = f"Add {' '.join(f'{name}=256' for name in missing)}."
        raise ArgumentError("compile-time values", "given", f"no {', '.join(missing)}", remedy)
    return {name: values[name] for name in wanted}


def describe(script: Script) -> str:
    """Return a kernel's name and schedule in one line."""
    schedule = " ".join(f"{name}={value}" for name, value in script.schedule.items())
    return f"{type(script).__name__} {schedule}".rstrip()


KERNEL = click.argument("kernel", metavar="FILE[:CLASS]")
VALUES = click.argument("values", nargs=-1, metavar="[NAME=VALUE]...")

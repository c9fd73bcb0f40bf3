# SPDX-License-Identifier: Apache-2.0
"""The space of schedules: written above a script's class, multiplied out here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, TypeVar

from tilus.errors import LanguageError

S = TypeVar("S")

Axis = tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]
Schedule = dict[str, Any]


def autotune(names: str, values: Sequence[Any]) -> Callable[[type[S]], type[S]]:
    """Let the parameters ``names`` of a script's ``__init__`` be chosen among ``values``.

    ``@autotune("num_stages", [2, 3])`` names one parameter, ``@autotune("a, b", [(1, 2), (3, 4)])``
    several that change together. Stacked, the axes multiply; the uppermost varies slowest. Raises
    :class:`LanguageError` for a parameter that ``__init__`` lacks or that is named twice, for an
    empty list, and for a value of another length than the names.
    """
    axis = _axis(names, values)

    def decorate(cls: type[S]) -> type[S]:
        _check_names(cls, axis)
        cls.autotune_space = (axis, *getattr(cls, "autotune_space", ()))  # type: ignore[attr-defined]
        return cls

    return decorate


def candidates(cls: type, given: Mapping[str, Any] | None = None) -> list[Schedule]:
    """Return every schedule of a script's space, each with the values ``given`` in place."""
    axes: Iterable[Axis] = getattr(cls, "autotune_space", ())
    choices = [[dict(zip(names, value, strict=True)) for value in values] for names, values in axes]
    found: list[Schedule] = []
    for choice in product(*choices):
        schedule = {name: v for part in choice for name, v in part.items()} | dict(given or {})
        if schedule not in found:
            found.append(schedule)
    return found


def _axis(names: str, values: Sequence[Any]) -> Axis:
    split = tuple(name.strip() for name in names.split(","))
    rows = tuple(tuple(v) if len(split) > 1 else (v,) for v in values)
    what = f"@autotune({names!r})"
    if not rows:
        raise LanguageError(f"{what}: values must be a list with at least one, got none")
    for row in rows:
        if len(row) != len(split):
            raise LanguageError(f"{what}: each value must have {len(split)} parts, got {row}")
    return split, rows


def _check_names(cls: type, axis: Axis) -> None:
    what, (names, _) = f"{cls.__name__}: @autotune({', '.join(axis[0])!r})", axis
    known = list(inspect.signature(cls.__init__).parameters)[1:]  # type: ignore[misc]
    taken = [name for others, _ in getattr(cls, "autotune_space", ()) for name in others]
    for name in names:
        if name not in known:
            parameters = ", ".join(known) or "none"
            raise LanguageError(
                f"{what}: {name!r} must be a parameter of __init__, which has {parameters}"
            )
        if name in taken or names.count(name) > 1:
            raise LanguageError(f"{what}: {name!r} must be named once, got it twice")

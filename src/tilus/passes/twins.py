# SPDX-License-Identifier: Apache-2.0
"""Let thread groups that do the same share their machine code.

A kernel writes one body for each of its consumer groups, in a loop over them that runs while it is
built. The bodies differ in numbers only: rows that begin at 0 or 64, one half of a stage or the
other. Compiled as they are, their code is made, and fetched, once for each group. Here neighbouring
groups are compared. Where every difference is a number that grows by the same step from group to
group, the first body stands for all, with ``member`` times the step added to it.

Only the emitter uses this: the simulator runs the groups as they are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, fields, replace
from itertools import pairwise
from typing import Any

from tilus.dtypes import int32
from tilus.errors import Location
from tilus.ir import (
    Barrier,
    Const,
    Declare,
    Expr,
    For,
    Function,
    Group,
    Instruction,
    Operation,
    RegisterTensor,
    SharedTensor,
    Stmt,
    Threads,
    Twins,
    Var,
    apply,
    as_expr,
    bodies,
    cast,
)
from tilus.layout import RegisterLayout


def find_twins(
    function: Function,
    layouts: Mapping[RegisterTensor, RegisterLayout],
    facts: Sequence[frozenset[Any]],
) -> dict[Group, Twins]:
    """Return the groups that stand for themselves and the groups behind them.

    ``facts`` are the sets of variables and tensors that the emitter looks into: twins agree in
    them.
    """
    found = {}
    for body in _lists(function.body):
        for run in _runs(body):
            try:
                merged = _Comparison(run, layouts, facts)
                body = merged.one([group.body for group in run])
            except _Different:
                continue
            found[run[0]] = Twins(tuple(run), merged.member, body)
    return found


def _lists(body: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    """Yield every list of statements, outer before inner."""
    yield body
    for stmt in body:
        for inner in bodies(stmt):
            yield from _lists(inner)


def _runs(body: tuple[Stmt, ...]) -> Iterator[list[Group]]:
    """Yield neighbouring groups of equally many threads that follow each other."""
    run: list[Group] = []
    for stmt in (*body, None):
        if isinstance(stmt, Group) and run and _follows(run[-1], stmt):
            run.append(stmt)
            continue
        if len(run) > 1:
            yield run
        run = [stmt] if isinstance(stmt, Group) and _numbered(stmt) else []


def _numbered(group: Group) -> bool:
    """Say whether a warp's number tells which group of this size it is in."""
    threads = group.threads
    return not group.elect and threads.count % 32 == 0 and threads.begin % threads.count == 0


def _follows(group: Group, other: Group) -> bool:
    same = (group.threads.count, group.registers) == (other.threads.count, other.registers)
    return same and group.threads.end == other.threads.begin and _numbered(other)


class _Different(Exception):
    """The groups do not do the same."""


def _demand(condition: bool) -> None:
    if not condition:
        raise _Different


class _Comparison:
    """Walks the bodies of groups in step and makes one of them."""

    def __init__(
        self,
        groups: Sequence[Group],
        layouts: Mapping[RegisterTensor, RegisterLayout],
        facts: Sequence[frozenset[Any]],
    ) -> None:
        self.begins = [group.threads.begin for group in groups]
        self.layouts, self.facts = layouts, facts
        self.member = Var("member", int32)
        self.own: dict[object, Sequence[object]] = {}  # what each group has for the first one's

    def one(self, values: Sequence[Any]) -> Any:
        """Return what stands for ``values``, one of each group."""
        first = values[0]
        if isinstance(first, RegisterTensor) and first not in self.own and not _identical(values):
            self._declare(values)
        if isinstance(first, Var | RegisterTensor) and first in self.own:
            _demand(all(a is b for a, b in zip(values, self.own[first], strict=True)))
            return first
        match first:
            case Expr():
                return self._expression(values)
            case Threads():
                return self._threads(values)
            case Stmt() | SharedTensor() | Barrier():
                return self._parts(values)
            case tuple():
                _demand(all(isinstance(v, tuple) and len(v) == len(first) for v in values))
                return tuple(self.one(parts) for parts in zip(*values, strict=True))
        same = isinstance(first, Location) or _identical(values) or all(v == first for v in values)
        _demand(same)
        return first

    def _parts(self, values: Sequence[Any]) -> Any:
        """Compare field by field."""
        first = values[0]
        _demand(all(type(v) is type(first) for v in values))
        if isinstance(first, Declare | For):
            self._declare([v.var for v in values])
        if isinstance(first, Instruction):
            _demand(first.issuer != "block")
            _demand(first.scratch_bytes(self.layouts) == 0)  # scratch memory is one group's own
        return self._fields(values)

    def _threads(self, values: Sequence[Threads]) -> Threads:
        """Threads lie in the same place of each group."""
        _demand(all(isinstance(v, Threads) for v in values))
        places = {(v.begin - at, v.count) for v, at in zip(values, self.begins, strict=True)}
        _demand(len(places) == 1)
        return values[0]

    def _declare(self, values: Sequence[Any]) -> None:
        """Take note of variables or tensors that belong to one group each."""
        first = values[0]
        _demand(all(type(v) is type(first) and v.dtype == first.dtype for v in values))
        _demand(all(len({v in known for v in values}) == 1 for known in self.facts))
        if isinstance(first, RegisterTensor):
            _demand(all(v.shape == first.shape for v in values))
            _demand(all(self.layouts.get(v) == self.layouts.get(first) for v in values))
            self._threads([v.threads for v in values])
        self.own[first] = values

    def _expression(self, values: Sequence[Any]) -> Expr:
        """Return the one expression: numbers in it may step from group to group."""
        first: Any = values[0]
        _demand(all(isinstance(v, Expr) and v.dtype == first.dtype for v in values))
        if _identical(values):
            return first  # type: ignore[no-any-return]
        bases, numbers = zip(*map(_split, values), strict=True)
        steps = {b - a for a, b in pairwise(numbers)}
        if steps != {0}:
            _demand(len(steps) == 1 and first.dtype.is_integer)
            number = cast(self.member * steps.pop() + numbers[0], first.dtype)
            if all(base is None for base in bases):
                return number
            _demand(all(base is not None for base in bases))
            return apply("+", self.one(bases), number)
        _demand(all(type(v) is type(first) for v in values) and not isinstance(first, Var))
        if isinstance(first, Const):
            _demand(all(v.value == first.value for v in values))
            return first
        return self._fields(values)  # type: ignore[no-any-return]

    def _fields(self, values: Sequence[Any]) -> Any:
        return replace(values[0], **{f.name: self._field(f, values) for f in fields(values[0])})

    def _field(self, field: Field[Any], values: Sequence[Any]) -> Any:
        parts = [getattr(v, field.name) for v in values]
        if "ExprLike" in str(field.type):  # what may be a run-time value may be a plain number too
            parts = parts if _identical(parts) else [_expressions(x) for x in parts]
        return self.one(parts)


def _expressions(x: Any) -> Any:
    """Return a number as an expression, and those in a list."""
    if isinstance(x, tuple):
        return tuple(map(_expressions, x))
    return as_expr(x) if type(x) is int else x


def _identical(values: Sequence[object]) -> bool:
    return all(v is values[0] for v in values)


def _split(x: Expr) -> tuple[Expr | None, int]:
    """Return an integer expression as what it is made of and the number added to that."""
    match x:
        case Const(value=int(n)) if x.dtype.is_integer:
            return None, n
        case Operation(op="+", args=(base, Const(value=int(n)))) if x.dtype.is_integer:
            return base, n
    return x, 0

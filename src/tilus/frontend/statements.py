# SPDX-License-Identifier: Apache-2.0
"""Execution of Python statements: what compile-time values decide happens now, the rest is IR."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from typing import Any

from tilus import ir
from tilus.errors import LanguageError, Location
from tilus.frontend.assignments import Assignments
from tilus.frontend.builder import Binding, Place, Scope
from tilus.frontend.carried import alike
from tilus.frontend.expressions import refuse
from tilus.frontend.scopes import Range
from tilus.frontend.scopes import Scope as ThreadScope
from tilus.frontend.source import assigned, contains_return
from tilus.frontend.values import MISSING, NUMBERS, Unreadable, same_number, scalar
from tilus.ir import describe
from tilus.ir.expr import common_dtype


class Flow(Enum):
    """How a statement ends. ``END``: the program leaves here, so nothing after it is reached."""

    NEXT = 0
    BREAK = 1
    CONTINUE = 2
    RETURN = 3
    END = 4


class Unrolled:
    """Marks a loop over a compile-time sequence; ``depth`` scopes were open around it."""

    def __init__(self, depth: int) -> None:
        self.depth = depth


class Tracer(Assignments):
    """Carries out a kernel's statements."""

    def run(self, body: Sequence[ast.stmt]) -> Flow:
        """Carry out statements until one of them leaves."""
        for i, node in enumerate(body):
            self.frame.rest.append(body[i + 1 :])
            with self.located(node):
                flow = self.execute(node)
            self.frame.rest.pop()
            if flow is not Flow.NEXT:
                return flow
        return Flow.NEXT

    def execute(self, node: ast.stmt) -> Flow:  # noqa: C901 - the language's statements, one line each
        match node:
            case ast.Expr(value=value):
                self.evaluate(value)
            case ast.Assign(targets=targets, value=value):
                self.assignment(targets, value)
            case ast.AnnAssign():
                self.declaration(node)
            case ast.AugAssign():
                self.augmented(node)
            case ast.If():
                return self.branch(node)
            case ast.For():
                return self.for_loop(node)
            case ast.While():
                return self.while_loop(node)
            case ast.With(items=items, body=body):
                return self.groups(items, body)
            case ast.Break() | ast.Continue():
                return self.leave_loop(node)
            case ast.Return():
                return self.leave_function(node)
            case ast.Assert(test=test, msg=msg):
                self.assertion(test, msg)
            case ast.Raise(exc=exc):
                raise LanguageError(f"{self.evaluate(exc)}" if exc else "raise")
            case ast.Pass():
                pass
            case _:
                raise refuse(node)
        return Flow.NEXT

    # Conditions

    def branch(self, node: ast.If) -> Flow:
        """``if``: a compile-time condition chooses now, a run-time one in the program."""
        test = self.evaluate(node.test)
        if isinstance(test, ir.Const) or not isinstance(test, ir.Expr):
            return self.run(node.body if self.known(test, "the condition") else node.orelse)
        where = self.at(node.test)
        if self.splits(node):
            return self.split(node, test, where)
        names = assigned([*node.body, *node.orelse])
        self.builder.promote(self.frame.names, names, where)
        self.builder.carried.promote(self.frame.names, names, where)
        sides = [self.side(node.body), self.side(node.orelse)]
        self.merge([side for side in sides if side.flow is Flow.NEXT], where)
        then, orelse = (tuple(side.scope.body) for side in sides)
        self.builder.emit(ir.If(location=where, cond=ir.truth(test), then=then, orelse=orelse))
        return Flow.END if all(side.flow is Flow.END for side in sides) else Flow.NEXT

    def side(self, body: Sequence[ast.stmt]) -> Side:
        """Trace one branch; its names get their old values back."""
        self.builder.enter("branch")
        flow = self.run(body)
        return Side(flow, *self.builder.undo())

    def splits(self, node: ast.If) -> bool:
        """Say whether a method may return from this run-time ``if``."""
        frame = self.frame
        inside = frame.loops or len(self.builder.scopes) > frame.depth
        return len(self.frames) > 1 and not inside and contains_return([node])

    def split(self, node: ast.If, test: ir.Expr, where: Location) -> Flow:
        """Trace the rest of a method once on either side of an ``if`` that may return.

        ``if c: return a``, then ``b`` is ``if c: result = a`` with ``else: b``.
        """
        frame, rest = self.frame, self.frame.rest
        tail = [stmt for part in reversed(rest) for stmt in part]
        frame.rest, frame.depth = [], frame.depth + 1
        sides, results = [], []
        for body in (node.body, node.orelse):
            frame.result = None
            sides.append(self.side([*body, *tail]))
            results.append(frame.result)
        frame.rest, frame.depth = rest, frame.depth - 1
        for side in sides:  # the method's own names end with it
            own = [place for place, (b, _) in side.bound.items() if b.store is frame.names]
            for place in own:
                del side.bound[place]
        self.merge(sides, where)
        frame.result = self.join(results, sides, where)
        then, orelse = (tuple(side.scope.body) for side in sides)
        self.builder.emit(ir.If(location=where, cond=ir.truth(test), then=then, orelse=orelse))
        return Flow.RETURN

    def join(self, values: Sequence[Any], sides: Sequence[Side], where: Location) -> Any:
        """Return what a method has returned, whichever side ran."""
        first, name = values[0], self.frame.source.node.name
        if all(v is first or (type(v) in NUMBERS and same_number(v, first)) for v in values):
            return first
        if all(scalar(v) for v in values):
            self.choose(Binding(self.frame.results, name, None, None, where), values, sides, where)
            return self.frame.results[name]
        if all(alike(v, first) for v in values):
            place = Binding(self.frame.results, name, None, None, where)
            self.choose_tile(place, values, sides, where)
            return self.frame.results[name]
        if type(first) is tuple and all(type(v) is tuple and len(v) == len(first) for v in values):
            return tuple(self.join(parts, sides, where) for parts in zip(*values, strict=True))
        found = " and ".join(describe(v) for v in values)
        raise LanguageError(
            f"the returns of '{name}' must give numbers, tiles of one form, tuples of these, or "
            f"the same thing, got {found}; assign what differs inside of the 'if'",
            where,
        )

    def merge(self, sides: Sequence[Side], where: Location) -> None:
        """Make variables of names that are numbers after every branch; others end with theirs."""
        changed = {place: binding for side in sides for place, (binding, _) in side.bound.items()}
        for place, binding in changed.items():
            old = binding.store.get(binding.name, MISSING)
            values = [side.bound.get(place, (binding, old))[1] for side in sides]
            if all(scalar(v) for v in values):
                self.choose(binding, values, sides, where)
            elif all(alike(v, values[0]) for v in values):
                self.choose_tile(binding, values, sides, where)
            else:
                self.builder.end(binding, "branch")

    def choose(
        self,
        binding: Binding,
        values: Sequence[ir.ExprLike],
        sides: Sequence[Side],
        where: Location,
    ) -> None:
        """Declare a variable before the ``if`` that each branch sets at its end."""
        store, name = binding.store, binding.name
        types = {ir.as_expr(v).dtype for v in values}
        dtype = types.pop() if len(types) == 1 else reduce(common_dtype, types)
        self.builder.declare(store, name, dtype, 0, where)
        for side, value in zip(sides, values, strict=True):
            stmt = ir.Assign(location=where, var=store[name], value=ir.cast(value, dtype))
            side.scope.body.append(stmt)

    def choose_tile(
        self, binding: Binding, values: Sequence[Any], sides: Sequence[Side], where: Location
    ) -> None:
        """Allocate a tile before the ``if`` that each branch gives its values at its end."""
        carried = self.builder.carried
        tile = carried.allocate(values[0], binding.name, where)
        carried.declare(binding.store, binding.name, tile, where)
        for side, value in zip(sides, values, strict=True):
            side.scope.body.append(carried.assignment(tile, value, where))

    # Loops

    def for_loop(self, node: ast.For) -> Flow:
        """``for``: over a range at run time, over any other sequence now."""
        if node.orelse:
            raise LanguageError(
                "'else' of a loop is not part of the kernel language; set a flag before 'break'"
            )
        iterable = self.evaluate(node.iter)
        if isinstance(iterable, range):
            iterable = Range(iterable.start, iterable.stop, iterable.step)
        if isinstance(iterable, Range):
            self.run_time_for(node, iterable)
            return Flow.NEXT
        return self.unrolled_for(node, self.sequence(iterable))

    def unrolled_for(self, node: ast.For, items: list[object]) -> Flow:
        """Trace the body once for each item."""
        self.frame.loops.append(Unrolled(len(self.builder.scopes)))
        flow = Flow.NEXT
        for item in items:
            self.store(node.target, item)
            flow = self.run(node.body)
            if flow not in (Flow.NEXT, Flow.CONTINUE):
                break
        self.frame.loops.pop()
        return flow if flow in (Flow.RETURN, Flow.END) else Flow.NEXT

    def run_time_for(self, node: ast.For, loop: Range) -> None:
        if not isinstance(node.target, ast.Name):
            raise refuse(node.target)
        name, where = node.target.id, self.at(node.iter)
        dtype = reduce(common_dtype, (loop.start.dtype, loop.stop.dtype, loop.step.dtype))
        bounds = (ir.cast(x, dtype) for x in (loop.start, loop.stop, loop.step))
        start, stop, step = (self.builder.freeze(x, f"{name}_bound", where) for x in bounds)
        var = self.builder.fixed(name, dtype)
        with Body(self, node.body, where, name) as body:
            self.builder.rebind(self.frame.names, name, var, where)
            self.run(node.body)
        self.builder.emit(
            ir.For(
                location=where, var=var, start=start, stop=stop, step=step,
                body=tuple(body.scope.body), unroll=loop.unroll,
            )
        )  # fmt: skip

    def while_loop(self, node: ast.While) -> Flow:
        """``while``: always a run-time loop."""
        if node.orelse:
            raise LanguageError(
                "'else' of a loop is not part of the kernel language; set a flag before 'break'"
            )
        where = self.at(node.test)
        with Body(self, node.body, where) as body:
            test = self.evaluate(node.test)
            cond = ir.truth(ir.as_expr(test if isinstance(test, ir.Expr) else bool(test)))
            if body.scope.body:  # the condition needs statements, which every turn must run
                leave = ir.If(
                    location=where, cond=ir.apply("not", cond), then=(ir.Break(location=where),)
                )
                self.builder.emit(leave)
                cond = ir.as_expr(True)
            self.run(node.body)
        self.builder.emit(ir.While(location=where, cond=cond, body=tuple(body.scope.body)))
        return Flow.NEXT

    def leave_loop(self, node: ast.Break | ast.Continue) -> Flow:
        """``break``, ``continue``: of an unrolled loop now, of a run-time loop in the program."""
        word = "break" if isinstance(node, ast.Break) else "continue"
        loop = self.frame.loops[-1]
        if isinstance(loop, Unrolled):
            if len(self.builder.scopes) != loop.depth:
                raise LanguageError(
                    f"a run-time '{word}' cannot leave a loop over a Python sequence; "
                    "write the loop over self.range(...)"
                )
            return Flow.BREAK if word == "break" else Flow.CONTINUE
        if self.builder.since(loop, "group"):
            raise LanguageError(
                f"'{word}' must not leave a thread group, since the other threads would go on"
            )
        where = self.at(node)
        self.builder.emit(
            ir.Break(location=where) if word == "break" else ir.Continue(location=where)
        )
        return Flow.END

    # Groups and functions

    def groups(self, items: Sequence[ast.withitem], body: Sequence[ast.stmt]) -> Flow:
        """``with self.thread_group(...):``; several groups in one ``with`` are nested ones."""
        if not items:
            return self.run(body)
        first, *rest = items
        scope = self.evaluate(first.context_expr)
        if not isinstance(scope, ThreadScope) or first.optional_vars:
            raise LanguageError(
                f"'with' takes a group, as in `with self.single_warp():`, got {describe(scope)}"
            )
        where = self.at(first.context_expr)
        with self.located(first.context_expr):
            region = scope.narrow(self.builder.threads)
        self.builder.enter("group", region)
        self.groups(rest, body)
        closed = self.builder.leave()
        self.builder.emit(
            ir.Group(
                location=where, threads=region.threads, body=tuple(closed.body),
                elect=region.elected_from is not None, registers=region.registers,
            )
        )  # fmt: skip
        return Flow.NEXT

    def leave_function(self, node: ast.Return) -> Flow:
        """``return``: of an inlined method now, of the kernel in the program."""
        value = self.evaluate(node.value) if node.value else None
        inside = len(self.builder.scopes) > self.frame.depth
        if len(self.frames) == 1:
            if value is not None:
                raise LanguageError(
                    "a kernel returns nothing; store results through a pointer parameter"
                )
            if inside:
                self.builder.emit(ir.Return(location=self.at(node)))
            return Flow.END if inside else Flow.RETURN
        if inside:
            raise LanguageError(
                "a method cannot return from inside a run-time loop or a thread group; "
                "assign a variable and return it at the end"
            )
        self.frame.result = value
        return Flow.RETURN

    def assertion(self, test: ast.expr, message: ast.expr | None) -> None:
        """``assert``: checked while the kernel is built."""
        if not self.known(self.evaluate(test), "the condition of assert"):
            raise LanguageError(
                str(self.evaluate(message)) if message else f"'{ast.unparse(test)}' does not hold"
            )


@dataclass(frozen=True)
class Side:
    """One traced branch: how it ended, its statements, what its names stood for at the end."""

    flow: Flow
    scope: Scope
    bound: dict[Place, tuple[Binding, Any]]


class Body:
    """The body of a run-time loop: a scope whose second turn sees what the first one assigned."""

    def __init__(
        self, tracer: Tracer, nodes: Sequence[ast.stmt], where: Location, counter: str = ""
    ) -> None:
        self.tracer, self.where = tracer, where
        self.names = [n for n in assigned(nodes) if n != counter]

    def __enter__(self) -> Body:
        builder, names = self.tracer.builder, self.tracer.frame.names
        builder.promote(names, self.names, self.where)
        builder.carried.promote(names, self.names, self.where)
        self.mark = builder.divergence.mark()
        self.scope = builder.enter("loop")
        self.tracer.frame.loops.append(self.scope)
        for name in self.names:
            value = names.get(name, MISSING)
            if not (self.carries(name) or isinstance(value, Unreadable) or value is MISSING):
                builder.rebind(
                    names, name, Unreadable(carried(name, value, self.where)), self.where
                )
        return self

    def carries(self, name: str) -> bool:
        """Return whether the next turn sees what this one assigns to a name."""
        names = self.tracer.frame.names
        return scalar(names.get(name)) or self.tracer.builder.carried.owns(names, name)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.tracer.frame.loops.pop()
        if kind is None:
            self.tracer.builder.leave()
            self.tracer.builder.divergence.replay(self.mark, self.tracer.builder.groups)


def carried(name: str, value: object, where: Location) -> str:
    """Say why a name that holds no number cannot go from one turn of a loop to the next."""
    return (
        f"'{name}' holds {describe(value)} from before the loop of line {where.line}, which "
        "assigns it; a loop carries only numbers and register tiles of its threads; "
        "use another name"
    )

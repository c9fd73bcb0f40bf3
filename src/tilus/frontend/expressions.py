# SPDX-License-Identifier: Apache-2.0
"""Evaluation of Python expressions: compile-time values as in Python, run-time values as IR."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from tilus import ir
from tilus.dtypes import boolean
from tilus.errors import LanguageError, Location, TilusError
from tilus.frontend import suggest
from tilus.frontend.builder import Builder
from tilus.frontend.source import Source, assigned
from tilus.frontend.values import MISSING, OPERATIONS, SYMBOLS, Inlined, Unreadable
from tilus.ir import describe

INSTEAD: dict[str, str] = {
    "Lambda": "write a method of the script",
    "NamedExpr": "assign on a line of its own",
    "FunctionDef": "write a method of the script, it is inlined",
    "ClassDef": "define a tilus.Class outside of the kernel",
    "Match": "write if / elif / else",
    "Try": "nothing can be caught in a kernel; check before",
    "Delete": "leave the name alone",
    "Global": "pass values as parameters and results",
    "Nonlocal": "pass values as parameters and results",
    "Import": "import at the top of the file",
    "ImportFrom": "import at the top of the file",
    "Yield": "return a list",
    "Await": "wait on an mbarrier",
    "Starred": "name the elements one by one",
}


CONVERSIONS: dict[int, Callable[[Any], str]] = {ord("r"): repr, ord("s"): str, ord("a"): ascii}


@dataclass(eq=False)
class Frame:
    """One call in progress: the kernel itself or an inlined method."""

    source: Source
    names: dict[str, Any]
    depth: int
    """How many scopes were open when it began."""
    outer: dict[str, Any] = field(default_factory=dict)
    writes: dict[str, int] = field(default_factory=dict)
    loops: list[Any] = field(default_factory=list)
    rest: list[Sequence[ast.stmt]] = field(default_factory=list)
    """What is still to be carried out, innermost block last."""
    result: Any = None
    results: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.outer = self.source.outer_names()
        self.writes = dict(assigned(self.source.node.body))

    def lookup(self, name: str) -> Any:
        """Return what ``name`` stands for, by Python's rules."""
        if name in self.names:
            return self.names[name]
        if name in self.writes:
            raise LanguageError(f"'{name}' is read before it is assigned")
        for names in (self.outer, self.source.function.__globals__, vars(builtins)):
            if name in names:
                return names[name]
        raise LanguageError(f"'{name}' is not defined")


class Expressions:
    """Evaluates expression nodes in the current frame."""

    def __init__(self, builder: Builder, script: Inlined) -> None:
        self.builder, self.script = builder, script
        self.frames: list[Frame] = []
        self.naming: tuple[ast.expr | None, str] = (None, "")

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    def at(self, node: ast.stmt | ast.expr) -> Location:
        """Return the place of ``node``."""
        return self.frame.source.location(node)

    def located(self, node: ast.stmt | ast.expr) -> AbstractContextManager[None]:
        """Turn errors in the context into :class:`LanguageError` that point at ``node``."""
        return _Located(self.frame.source, node)

    def evaluate(self, node: ast.expr) -> Any:
        """Return the value of an expression; statements it needs are emitted."""
        with self.located(node):
            return self._evaluate(node)

    def _evaluate(self, node: ast.expr) -> Any:  # noqa: C901 - the language's expressions, one line each
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self.readable(self.frame.lookup(name), node)
            case ast.Attribute():
                return self.attribute(node)
            case ast.Subscript(value=container, slice=index):
                box, i = self.operands([container, index])
                return self.subscript(box, i, node)
            case ast.Slice():
                return slice(*(x and self.evaluate(x) for x in (node.lower, node.upper, node.step)))
            case ast.Tuple(elts=elements):
                return tuple(self.spread(elements))
            case ast.List(elts=elements):
                return list(self.spread(elements))
            case ast.Set(elts=elements):
                return set(self.spread(elements))
            case ast.Dict(keys=keys, values=values):
                return self.dictionary(keys, values)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                return self.comprehension(node)
            case ast.UnaryOp():
                return self.unary(node)
            case ast.BinOp(left=left, op=op, right=right):
                return self.operation(op, self.operands([left, right]), node)
            case ast.BoolOp(op=op, values=values):
                return self.boolean(isinstance(op, ast.And), values)
            case ast.Compare():
                return self.comparison(node)
            case ast.IfExp():
                return self.conditional(node)
            case ast.JoinedStr(values=values):
                return "".join(self.formatted(v) for v in values)
            case ast.Call():
                return self.call(node)
        raise refuse(node)

    def call(self, node: ast.Call) -> Any:
        """Carry out a call."""
        raise NotImplementedError

    def on_tiles(self, symbol: str, operands: Sequence[Any], node: ast.stmt | ast.expr) -> Any:
        """Carry out an operator that has register tiles among its operands."""
        raise NotImplementedError

    def operation(self, op: ast.AST, values: Sequence[Any], node: ast.stmt | ast.expr) -> Any:
        """Carry out an operator: on numbers in Python, on register tiles by an instruction."""
        kind = type(op).__name__
        if any(isinstance(v, ir.RegisterTensor) for v in values) and kind in SYMBOLS:
            return self.on_tiles(SYMBOLS[kind], values, node)
        return OPERATIONS[kind](*values)

    def operands(self, nodes: Sequence[ast.expr]) -> list[Any]:
        """Evaluate from left to right; earlier values do not see changes that later ones make."""
        values: list[Any] = []
        for node in nodes:
            mark = len(self.builder.scope.body)
            value = self.evaluate(node)
            values = [*self.builder.freeze_before(mark, values, self.at(node)), value]
        return values

    def spread(self, nodes: Sequence[ast.expr]) -> list[Any]:
        """Evaluate the elements of a display, ``*sequences`` spread out."""
        inner = [n.value if isinstance(n, ast.Starred) else n for n in nodes]
        return list(flatten(nodes, self.operands(inner)))

    def readable(self, value: Any, node: ast.expr) -> Any:
        """Return ``value`` unless it must not be read here."""
        if isinstance(value, Unreadable):
            raise LanguageError(value.reason)
        if isinstance(value, ir.Var) and value in self.builder.variables:
            self.builder.read(value, self.at(node))
        if isinstance(value, ir.RegisterTensor):
            self.builder.carried.read(value)
        return value

    def attribute(self, node: ast.Attribute) -> Any:
        owner = self.evaluate(node.value)
        value = getattr(owner, node.attr, MISSING)
        if value is MISSING:
            meant = suggest.hint(owner, node.attr, self.script)
            raise LanguageError(f"'{ast.unparse(node.value)}' has no '{node.attr}'{meant}")
        return self.readable(value, node)

    def subscript(self, container: Any, index: Any, node: ast.expr) -> Any:
        """Return an element; of a Python container by a compile-time index only."""
        if type(container) in (list, tuple, str, range) and isinstance(index, ir.Expr):
            raise LanguageError(
                f"the index of a Python {type(container).__name__} must be a compile-time integer, "
                "got a run-time value; loop over the sequence itself, or use a register tensor"
            )
        value = container[index]
        if isinstance(value, ir.Element):
            self.builder.read(value.tensor, self.at(node))
        return value

    def dictionary(
        self, keys: Sequence[ast.expr | None], values: Sequence[ast.expr]
    ) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key, value in zip(keys, values, strict=True):
            if key is None:
                result.update(self.evaluate(value))
            else:
                k, v = self.operands([key, value])
                result[k] = v
        return result

    def comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ) -> Any:
        """Run a comprehension while the kernel is built; its variables end with it."""
        names, items = dict(self.frame.names), []
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        for _ in self.generate(node.generators):
            items.append(self.operands(parts))
        self.frame.names.clear()
        self.frame.names.update(names)
        if isinstance(node, ast.DictComp):
            return {k: v for k, v in items}
        return (set if isinstance(node, ast.SetComp) else list)(x for (x,) in items)

    def generate(self, generators: Sequence[ast.comprehension]) -> Iterable[None]:
        """Yield once for each turn of nested ``for`` and ``if`` clauses."""
        if not generators:
            yield None
            return
        first, *rest = generators
        for item in self.sequence(self.evaluate(first.iter)):
            self.unpack(first.target, item, self.frame.names.__setitem__)
            if all(
                self.known(self.evaluate(test), "the condition of a comprehension")
                for test in first.ifs
            ):
                yield from self.generate(rest)

    def sequence(self, value: Any) -> list[Any]:
        """Return the elements of a compile-time sequence."""
        try:
            return list(value)
        except TypeError as error:
            raise LanguageError(
                f"a compile-time sequence or a range is needed here, got {describe(value)}"
            ) from error

    def unpack(self, target: ast.expr, value: Any, bind: Callable[[str, Any], None]) -> None:
        """Bind the names of a target that may be a tuple."""
        match target:
            case ast.Name(id=name):
                bind(name, value)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for t, v in self.distribute(targets, value):
                    self.unpack(t, v, bind)
            case _:
                raise refuse(target)

    def distribute(self, targets: Sequence[ast.expr], value: Any) -> list[tuple[ast.expr, Any]]:
        """Give each target its element of ``value``; ``*rest`` takes a list of what is left."""
        items = self.sequence(value)
        stars = [i for i, t in enumerate(targets) if isinstance(t, ast.Starred)]
        spare, at = len(items) - len(targets) + len(stars), stars[0] if stars else 0
        if spare < 0 or (spare and not stars):
            least = "at least " if stars else ""
            count = len(targets) - len(stars)
            raise LanguageError(f"{least}{count} values are needed here, got {len(items)}")
        if stars:
            items[at : at + spare] = [items[at : at + spare]]
        plain = [t.value if isinstance(t, ast.Starred) else t for t in targets]
        return list(zip(plain, items, strict=True))

    def known(self, value: Any, what: str) -> bool:
        """Return the truth of a compile-time value."""
        if isinstance(value, ir.Const):
            return bool(value.value)
        if isinstance(value, ir.Expr):
            raise LanguageError(f"{what} must be a compile-time value, got {describe(value)}")
        return bool(value)

    def unary(self, node: ast.UnaryOp) -> Any:
        x = self.evaluate(node.operand)
        if isinstance(node.op, ast.Not):
            return ir.apply("not", x) if isinstance(x, ir.Expr) else not x
        return self.operation(node.op, [x], node)

    def pure(self, node: ast.expr, where: str) -> Any:
        """Evaluate an operand that Python may skip: it must not need statements of its own."""
        mark = len(self.builder.scope.body)
        value = self.evaluate(node)
        if len(self.builder.scope.body) > mark:
            raise LanguageError(
                f"{where} cannot run instructions; write an if statement", self.at(node)
            )
        return value

    def boolean(self, conjunction: bool, nodes: Sequence[ast.expr]) -> Any:
        """``and`` / ``or``: a compile-time operand that decides ends it, as in Python."""
        result = self.evaluate(nodes[0])
        for node in nodes[1:]:
            if isinstance(result, ir.Const) or not isinstance(result, ir.Expr):
                if self.known(result, "an operand") != conjunction:
                    return result
                result = self.evaluate(node)
            else:
                right = self.pure(node, "the right side of a run-time 'and' / 'or'")
                result = either(conjunction, result, right)
        return result

    def comparison(self, node: ast.Compare) -> Any:
        """Compare, also in a chain: every operand is evaluated once."""
        values = self.operands([node.left, *node.comparators])
        results = [
            self.operation(op, [a, b], node)
            for op, a, b in zip(node.ops, values, values[1:], strict=False)
        ]
        result = results[0]
        for other in results[1:]:
            runtime = isinstance(result, ir.Expr) or isinstance(other, ir.Expr)
            result = ir.apply("and", result, other) if runtime else result and other
        return result

    def conditional(self, node: ast.IfExp) -> Any:
        """``a if test else b``: a choice now, or a run-time selection between two numbers."""
        test = self.evaluate(node.test)
        if isinstance(test, ir.Const) or not isinstance(test, ir.Expr):
            return self.evaluate(node.body if self.known(test, "the condition") else node.orelse)
        a, b = (
            self.pure(x, "one side of a run-time conditional expression")
            for x in (node.body, node.orelse)
        )
        return ir.select(test, a, b)

    def formatted(self, node: ast.expr) -> str:
        """Return one part of an f-string."""
        if not isinstance(node, ast.FormattedValue):
            return str(self.evaluate(node))
        value = self.evaluate(node.value)
        if isinstance(value, ir.Expr):
            raise LanguageError(
                f"an f-string is made while the kernel is built, got {describe(value)} in it"
            )
        spec = self.evaluate(node.format_spec) if node.format_spec else ""
        if node.conversion in CONVERSIONS:
            value = CONVERSIONS[node.conversion](value)
        return format(value, spec)


class _Located(nullcontext[None]):
    """Gives errors without a place the place of a syntax node."""

    def __init__(self, source: Source, node: ast.stmt | ast.expr) -> None:
        super().__init__()
        self.source, self.node = source, node  # few places are ever asked for

    def __exit__(self, *exc_info: Any) -> None:
        match exc_info[1]:
            case LanguageError(location=None, message=message) as error:
                raise LanguageError(message, self.source.location(self.node)) from error.__cause__
            case TilusError():
                return
            case Exception() as error:
                raise LanguageError(explain(error), self.source.location(self.node)) from error


def either(conjunction: bool, left: ir.Expr, right: ir.ExprLike) -> ir.Expr:
    """Return ``left and right`` or ``left or right``: of numbers, Python takes one of the two."""
    if left.dtype == boolean and ir.as_expr(right).dtype == boolean:
        return ir.apply("and" if conjunction else "or", left, right)
    return ir.select(left, right, left) if conjunction else ir.select(left, left, right)


def flatten(nodes: Sequence[ast.expr], values: Sequence[Any]) -> Iterator[Any]:
    """Yield ``values``, the elements of those whose node is starred."""
    for node, value in zip(nodes, values, strict=True):
        if isinstance(node, ast.Starred):
            yield from value
        else:
            yield value


def explain(error: Exception) -> str:
    """Return what Python, NumPy or the IR said about a wrong operand."""
    kinds = TypeError | IndexError | ValueError | ArithmeticError
    plain = isinstance(error, kinds) and str(error)
    return str(error) if plain else f"{type(error).__name__}: {error}"


def refuse(node: ast.AST) -> LanguageError:
    """Return the error for a node that is not part of the language."""
    kind = type(node).__name__
    instead = f"; {INSTEAD[kind]}" if kind in INSTEAD else ""
    return LanguageError(
        f"'{ast.unparse(node).splitlines()[0]}' is not part of the kernel language{instead}"
    )

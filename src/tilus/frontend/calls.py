# SPDX-License-Identifier: Apache-2.0
"""Calls: an instruction joins the program, a method is inlined, everything else runs now."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from dataclasses import fields
from functools import reduce
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from tilus import ir
from tilus.dtypes import DType
from tilus.errors import LanguageError
from tilus.frontend import source, suggest
from tilus.frontend.builder import Builder
from tilus.frontend.expressions import Expressions, Frame, flatten
from tilus.frontend.fields import FIRST, bind_instruction, check_kinds, checked_kinds
from tilus.frontend.scalars import RUNTIME_BUILTINS, convert, refuse_runtime
from tilus.frontend.scopes import counted
from tilus.frontend.values import TILE_BUILTINS, Inlined, contains_runtime

MAX_DEPTH = 64
INSTEAD = {"**": "write x * x or self.square(x)", "@": "write self.dot(a, b)"}
MUTATING = frozenset(
    {"append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault", "add"}
)


class Calls(Expressions):
    """Adds calls to :class:`Expressions`."""

    def __init__(self, builder: Builder, script: Inlined) -> None:
        super().__init__(builder, script)
        self.made: list[Inlined] = [script]  # the objects whose attributes this kernel may assign

    def run(self, body: Sequence[ast.stmt]) -> Any:
        """Carry out the statements of a function."""
        raise NotImplementedError

    def call(self, node: ast.Call) -> Any:
        name = self.naming[1] if self.naming[0] is node else ""
        callee = self.evaluate(node.func)
        args, kwargs = self.arguments(node)
        if isinstance(callee, type) and issubclass(callee, ir.Instruction):
            return self.instruction(callee, args, kwargs, node, name)
        if isinstance(callee, type) and issubclass(callee, Inlined):
            return self.construct(callee, args, kwargs, node)
        if isinstance(callee, MethodType) and isinstance(callee.__self__, Inlined):
            return self.inline(as_written(callee), [callee.__self__, *args], kwargs, node)
        return self.native(callee, args, kwargs, node)

    def arguments(self, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        """Evaluate a call's arguments from left to right; ``*`` and ``**`` spread them out."""
        count = len(node.args)
        nodes = [n.value if isinstance(n, ast.Starred) else n for n in node.args]
        values = self.operands([*nodes, *(k.value for k in node.keywords)])
        args = list(flatten(node.args, values[:count]))
        kwargs: dict[str, Any] = {}
        for keyword, value in zip(node.keywords, values[count:], strict=True):
            kwargs.update({keyword.arg: value} if keyword.arg else value)
        return args, kwargs

    def instruction(
        self,
        cls: type[ir.Instruction],
        args: list[Any],
        kwargs: dict[str, Any],
        node: ast.stmt | ast.expr,
        name: str,
    ) -> Any:
        """Build an instruction, verify it, and append it to the program; return its result."""
        arguments = bind_instruction(cls, args, kwargs)
        check_kinds(cls, arguments, FIRST)
        value = cls.scalar(**arguments)
        if value is not None:
            return value
        where, threads = self.at(node), self.builder.threads
        facts: dict[str, Any] = {"location": where, "threads": threads}
        with checked_kinds(cls, arguments):
            if any(f.name == "out" for f in fields(cls)):
                site = ir.Site(name or cls.__name__, threads, where)
                facts["out"] = cls.result(site, **arguments)
            stmt = cls(**(arguments | facts))  # an `out` that the kernel gave is the result
            stmt.verify()
        self.builder.emit(stmt)
        return facts.get("out")

    def on_tiles(self, symbol: str, operands: Sequence[Any], node: ast.stmt | ast.expr) -> Any:
        if symbol in INSTEAD:
            raise LanguageError(f"'{symbol}' is no operator of register tiles; {INSTEAD[symbol]}")
        if any(x is None for x in operands):
            raise LanguageError(f"'{symbol}' takes register tiles and numbers, got None")
        name = self.naming[1] if self.naming[0] is node else ""
        return self.instruction(ir.implementing(symbol), [symbol, *operands], {}, node, name)

    def copy_tile(self, dst: ir.RegisterTensor, src: Any, node: ast.stmt | ast.expr) -> None:
        """Give the tile ``dst`` the values of the tile ``src``."""
        self.instruction(ir.implementing("="), [dst, src], {}, node, "")

    def construct(
        self, cls: type[Inlined], args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> Any:
        """Make an object whose ``__init__`` is traced."""
        instance = object.__new__(cls)
        self.made.append(instance)
        initialise = cls.__init__
        if isinstance(initialise, FunctionType):
            self.inline(initialise, [instance, *args], kwargs, node)
        return instance

    def inline(self, function: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        """Trace a method's body here, with names of its own; return what it returns."""
        if len(self.frames) >= MAX_DEPTH:
            raise LanguageError(f"{function.__qualname__} calls itself; a kernel has no recursion")
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        where = self.at(node)
        names = {k: self.builder.freeze(v, k, where) for k, v in bound.arguments.items()}
        frame = Frame(source.find(function), names, depth=len(self.builder.scopes))
        self.frames.append(frame)
        try:
            self.run(frame.source.node.body)
        except LanguageError as error:
            error.add_note(f"called from {where}\n{where.excerpt()}")
            raise
        finally:
            self.frames.pop()
        return self.builder.freeze(frame.result, function.__name__, where)

    def native(self, callee: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        """Call an ordinary Python function now."""
        if callee is super and not args:
            return super(self.frame.outer["__class__"], next(iter(self.frame.names.values())))
        if callee is range and not kwargs:
            return counted(*args)
        if isinstance(callee, DType):
            return convert(callee, *args)
        if callee in TILE_BUILTINS and any(isinstance(x, ir.RegisterTensor) for x in args):
            first, *rest = args
            symbol = TILE_BUILTINS[callee]
            if not rest:
                return self.on_tiles(symbol, [first], node)
            return reduce(lambda a, b: self.on_tiles(symbol, [a, b], node), rest, first)
        suggest.refuse_library(callee, [args, kwargs], self.script)
        if contains_runtime(args):
            if callee in RUNTIME_BUILTINS:
                return RUNTIME_BUILTINS[callee](*args)
            refuse_runtime(callee)
        if not callable(callee):
            raise LanguageError(suggest.not_callable(callee, self.script))
        if self.changes_container(callee):  # which keeps the values of now, as names do
            args, kwargs = self.builder.keep([args, kwargs], "element", self.at(node))
        return plain(callee, args, kwargs)

    def changes_container(self, callee: Any) -> bool:
        """Return whether this is ``list.append`` or its like; refuse it where the program may not
        run it just once."""
        owner, name = getattr(callee, "__self__", None), getattr(callee, "__name__", "")
        changes = type(owner) in (list, dict, set) and name in MUTATING
        if changes and self.under_control_flow():
            raise LanguageError(
                f"a Python {type(owner).__name__} cannot change under run-time control flow; "
                "build it before, or keep the values in a register tensor"
            )
        return changes

    def under_control_flow(self) -> bool:
        """Return whether the current code depends on run-time loops, conditions or groups."""
        return len(self.builder.scopes) > 1


def as_written(method: MethodType) -> Any:
    """Return the function of a method; of a kernel, as in ``super().__call__``, not the launcher
    but what its author wrote."""
    function = method.__func__
    return inspect.unwrap(function) if function.__name__ == "__call__" else function


def plain(callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call a Python function, which may not be made for run-time values."""
    try:
        return callee(*args, **kwargs)
    except TypeError as error:
        if not contains_runtime(args) or not isinstance(callee, BuiltinFunctionType | type):
            raise
        rule = "runs while the kernel is built and cannot take a run-time value"
        raise LanguageError(f"'{callee.__name__}' {rule}: {error}") from error

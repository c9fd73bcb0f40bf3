# SPDX-License-Identifier: Apache-2.0
"""From a function object to its syntax tree, with places that point into the real file."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from tilus.errors import LanguageError, Location

OWN_SCOPE = (
    ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda, ast.FunctionDef,
)  # fmt: skip


@dataclass(frozen=True)
class Source:
    """A function's syntax tree, parsed with its whole file so that places need no shifting."""

    function: FunctionType
    node: ast.FunctionDef
    lines: tuple[str, ...]

    @property
    def file(self) -> str:
        return self.function.__code__.co_filename

    def location(self, node: ast.stmt | ast.expr | ast.arg) -> Location:
        """Return the place of ``node``; :mod:`ast` counts columns in bytes, we count characters."""
        end = node.end_col_offset if node.end_lineno == node.lineno else None
        column = self._characters(node.lineno, node.col_offset)
        stop = None if end is None else self._characters(node.lineno, end)
        return Location(self.file, node.lineno, column, stop)

    def _characters(self, line: int, offset: int) -> int:
        text = self.lines[line - 1]
        if text.isascii():
            return min(offset, len(text))
        return len(text.encode()[:offset].decode(errors="replace"))

    def outer_names(self) -> dict[str, Any]:
        """Return what the function sees from enclosing functions."""
        cells = zip(
            self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True
        )
        return {name: cell.cell_contents for name, cell in cells if _filled(cell)}


def _filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # a name of an enclosing function that has no value yet
        return False
    return True


@functools.lru_cache(maxsize=32)
def _functions(text: str) -> tuple[ast.FunctionDef, ...]:
    return tuple(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef))


def find(function: Callable[..., Any]) -> Source:
    """Return the source of a Python function; :class:`LanguageError` if there is none to read."""
    assert isinstance(function, FunctionType)
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    for node in _functions("".join(lines)):
        if node.name == code.co_name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == code.co_firstlineno:
                return Source(function, node, tuple(lines))
    where = Location(code.co_filename, code.co_firstlineno)
    raise LanguageError(
        f"the source of {function.__qualname__} must be in a file, unchanged since its import, "
        "got none; write the kernel to a file and import that",
        where,
    )


def assigned(nodes: Iterable[ast.AST]) -> Counter[str]:
    """Count how often each name is bound in ``nodes``, inner scopes (comprehensions) left out."""
    return Counter(name for node in nodes for name in _assigned(node))


@functools.lru_cache(maxsize=4096)  # a loop's body is asked about in every turn that unrolls it
def _assigned(node: ast.AST) -> tuple[str, ...]:
    names = (n for n in _walk([node]) if isinstance(n, ast.Name))
    return tuple(n.id for n in names if isinstance(n.ctx, ast.Store))


def contains_return(nodes: Iterable[ast.AST]) -> bool:
    """Say whether one of ``nodes`` may return from the function they are in."""
    return any(isinstance(node, ast.Return) for node in _walk(nodes))


def _walk(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        yield node
        if not isinstance(node, OWN_SCOPE):
            yield from _walk(ast.iter_child_nodes(node))


def annotation(function: Callable[..., Any], text: object) -> Any:
    """Return the value of an annotation, which may be text (``from __future__ import ...``)."""
    if not isinstance(text, str):
        return text
    assert isinstance(function, FunctionType)
    names = dict(inspect.getclosurevars(function).nonlocals)
    return eval(text, function.__globals__, names)

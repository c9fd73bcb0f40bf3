# SPDX-License-Identifier: Apache-2.0
"""The program under construction: nested scopes of statements, and the names of the kernel.

A name stands for a compile-time value until run-time control flow needs to change it: then it
becomes a variable, declared just before that ``if`` or loop. Names first bound inside run-time
control flow or a thread group end with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from tilus import ir
from tilus.dtypes import DType
from tilus.errors import LanguageError, Location
from tilus.frontend.carried import Carried
from tilus.frontend.divergence import Access, Divergence, Storage
from tilus.frontend.scopes import MAX_WARPS, WARP, Attributes, Region
from tilus.frontend.values import MISSING, Unreadable, loses, map_expressions, scalar

Store = dict[str, Any]
Place = tuple[int, str]
Kind = Literal["kernel", "loop", "branch", "group"]

AFTER: dict[Kind, str] = {
    "loop": "a run-time loop assigned it, which may not have run; give it a number before the loop",
    "branch": "an 'if' assigned it whose condition may not have held; give it a number before",
    "group": "only the threads of a group know its value; assign it again, or before the group",
}


@dataclass(eq=False)
class Scope:
    """A piece of run-time code: the kernel, the body of a loop, branch or thread group."""

    kind: Kind
    region: Region | None
    body: list[ir.Stmt] = field(default_factory=list)
    journal: dict[Place, Binding] = field(default_factory=dict)


@dataclass(frozen=True)
class Binding:
    """What a name stood for before a scope changed it, and where the scope did that."""

    store: Store
    name: str
    old: Any
    origin: Scope | None
    location: Location


@dataclass(frozen=True)
class Variable:
    """A run-time variable: whose it is, where it was declared; ``typed``: by an annotation."""

    place: Place
    scope: Scope
    typed: bool


def require_fit(name: str, dtype: DType, value: ir.Expr, location: Location) -> None:
    """Refuse an integer known while building that a variable of ``dtype`` cannot hold."""
    match value:
        case ir.Const(value=n, dtype=found) if found.is_integer and dtype.is_integer:
            if ir.wrap(n, dtype) != n:
                message = f"'{name}: {dtype}' must be given a value that fits, got {n}"
                raise LanguageError(message, location)


class Builder:
    """Collects statements and keeps the rules about names; knows nothing of Python's syntax."""

    def __init__(self, attrs: Attributes, parameters: Iterable[ir.Var]) -> None:
        self.attrs = attrs
        self.scopes = [Scope("kernel", None)]
        self.divergence = Divergence()
        self.carried = Carried(self)
        self.variables: dict[ir.Var, Variable] = {}
        self._fixed: set[ir.Var] = set(parameters)
        self._origins: dict[Place, Scope] = {}
        self._stores: dict[int, Store] = {}  # keeps them alive, since places hold only their id

    @property
    def scope(self) -> Scope:
        return self.scopes[-1]

    @property
    def region(self) -> Region:
        """The threads that run the current scope."""
        return self.scope.region or Region(ir.Threads(0, WARP * (self.attrs.warps or MAX_WARPS)))

    @property
    def groups(self) -> tuple[Scope, ...]:
        """The open thread groups, innermost last."""
        return tuple(s for s in self.scopes if s.kind == "group")

    @property
    def threads(self) -> ir.Threads:
        """The threads that run an instruction here, which must be known."""
        if self.attrs.warps is None:
            raise LanguageError("self.attrs.warps must be set before this, got nothing")
        return self.region.threads

    def emit(self, stmt: ir.Stmt) -> None:
        """Append a statement to the current scope."""
        self.scope.body.append(stmt)

    # Scopes

    def enter(self, kind: Kind, region: Region | None = None) -> Scope:
        """Open a scope; ``region`` narrows the running threads."""
        self.scopes.append(Scope(kind, region or self.scope.region))
        return self.scope

    def leave(self) -> Scope:
        """Close the current scope; what it bound cannot be read any more."""
        closed = self.scopes.pop()
        for binding in closed.journal.values():
            self.end(binding, closed.kind)
        return closed

    def end(self, binding: Binding, kind: Kind) -> None:
        """Make a name unreadable that a scope of ``kind`` has bound."""
        why, line = AFTER[kind], binding.location.line
        reason = f"'{binding.name}' has no known value here (assigned at line {line}): {why}"
        self.rebind(binding.store, binding.name, Unreadable(reason), binding.location)

    def undo(self) -> tuple[Scope, dict[Place, tuple[Binding, Any]]]:
        """Close the current scope and give its names their old values back; return the new ones."""
        closed = self.scopes.pop()
        new = {place: (b, b.store.get(b.name, MISSING)) for place, b in closed.journal.items()}
        for place, binding in closed.journal.items():
            if binding.old is MISSING:
                binding.store.pop(binding.name, None)
            else:
                binding.store[binding.name] = binding.old
            if binding.origin is not None:
                self._origins[place] = binding.origin
        return closed, new

    def since(self, scope: Scope, *kinds: Kind) -> bool:
        """Return whether a scope of one of ``kinds`` was opened after ``scope``."""
        return any(s.kind in kinds for s in self.scopes[self.scopes.index(scope) + 1 :])

    # Names

    def place(self, store: Store, name: str) -> Place:
        """Return the identity of a name."""
        self._stores[id(store)] = store
        return id(store), name

    def rebind(self, store: Store, name: str, value: Any, location: Location) -> None:
        """Let a name stand for ``value`` until the current scope ends."""
        place = self.place(store, name)
        if place not in self.scope.journal:
            old, origin = store.get(name, MISSING), self._origins.get(place)
            self.scope.journal[place] = Binding(store, name, old, origin, location)
        self._origins[place] = self.scope
        store[name] = value

    def bind(self, store: Store, name: str, value: Any, location: Location) -> None:
        """Carry out ``name = value``."""
        variable = self.variable(store, name)
        if variable and (variable.typed or variable.scope is not self.scope):
            self.assign(store[name], value, location)
        elif not self.carried.assigns(store, name, value, location):
            self.rebind(store, name, self.keep(value, name, location), location)

    def variable(self, store: Store, name: str) -> Variable | None:
        """Return the run-time variable a name stands for, if it owns one."""
        value = store.get(name)
        info = self.variables.get(value) if isinstance(value, ir.Var) else None
        return info if info and info.place == self.place(store, name) else None

    def bound_outside_loop(self, store: Store, name: str) -> bool:
        """Return whether a name stands for a value given before the current run-time loop."""
        origin = self._origins.get(self.place(store, name))
        return origin is not None and name in store and self.since(origin, "loop")

    # Variables

    def declare(
        self, store: Store, name: str, dtype: DType, value: Any, location: Location, **facts: bool
    ) -> None:
        """Let a name stand for a new variable; ``typed``: annotated, ``once``: never reassigned."""
        var = ir.Var(name, dtype)
        self.emit(ir.Declare(location=location, var=var, value=ir.cast(value, dtype, exact=True)))
        if facts.get("once"):
            self._fixed.add(var)
        place = self.place(store, name)
        self.variables[var] = Variable(place, self.scope, facts.get("typed", False))
        self.rebind(store, name, var, location)

    def _copy(self, name: str, dtype: DType, value: ir.Expr, location: Location) -> ir.Var:
        var = self.fixed(name, dtype)
        self.emit(ir.Declare(location=location, var=var, value=value))
        return var

    def fixed(self, name: str, dtype: DType) -> ir.Var:
        """Return a new variable that nothing assigns later: a copy, the counter of a loop."""
        var = ir.Var(name, dtype)
        self._fixed.add(var)
        return var

    def assign(self, var: ir.Var, value: Any, location: Location) -> None:
        """Give a run-time variable a new value."""
        x, info = ir.as_expr(value, var.dtype), self.variables[var]
        if (not info.typed or x.dtype.is_float) and loses(x.dtype, var.dtype):
            origin = "declared" if info.typed else "since its first value is"
            raise LanguageError(
                f"'{var.name}' is {var.dtype} ({origin} {var.dtype}) and cannot hold {x.dtype}; "
                f"declare it as `{var.name}: {x.dtype} = ...`",
                location,
            )
        require_fit(var.name, var.dtype, x, location)
        certain = not self.since(info.scope, "loop", "branch")
        self.emit(ir.Assign(location=location, var=var, value=ir.cast(x, var.dtype, exact=True)))
        self.wrote(var, location, certain)

    def wrote(self, storage: Storage, location: Location, certain: bool = False) -> None:
        """Take note that the current threads assigned ``storage``."""
        self._access("write", storage, location, certain)

    def read(self, storage: Storage, location: Location) -> None:
        """Take note that the current threads read ``storage``."""
        self._access("read", storage, location)

    def _access(
        self,
        kind: Literal["read", "write"],
        storage: Storage,
        where: Location,
        certain: bool = False,
    ) -> None:
        access = Access(kind, storage, self.region, self.groups, where, certain)
        self.divergence.record(access)

    def promote(self, store: Store, names: Iterable[str], location: Location) -> None:
        """Make variables of the numbers among ``names``, which run-time code will assign."""
        for name in names:
            value = store.get(name)
            if scalar(value) and not self.variable(store, name):
                self.declare(store, name, ir.as_expr(value).dtype, value, location)  # type: ignore[arg-type]

    # Values that must not change any more

    def changes(self, x: ir.Expr) -> bool:
        """Return whether ``x`` may change later: it reads a variable or a register element."""
        if isinstance(x, ir.Var):
            return x not in self._fixed
        return isinstance(x, ir.Element) or any(self.changes(c) for c in ir.children(x))

    def freeze(self, value: Any, name: str, location: Location) -> Any:
        """Return ``value`` as it is now: expressions that may change are copied to variables."""

        def copy(x: ir.Expr) -> ir.Expr:
            return self._copy(name, x.dtype, x, location) if self.changes(x) else x

        return map_expressions(value, copy)

    def keep(self, value: Any, name: str, location: Location) -> Any:
        """Return ``value`` as it is now, with copies of the tiles that names own."""
        return self.carried.keep(self.freeze(value, name, location), name, location)

    def freeze_before(self, mark: int, values: list[Any], location: Location) -> list[Any]:
        """Freeze ``values`` before the statements emitted since ``mark``, if those assign."""
        later = self.scope.body[mark:]
        if not any(isinstance(s, ir.Assign | ir.SetElement) for s in ir.walk(tuple(later))):
            return values
        del self.scope.body[mark:]
        frozen = [self.freeze(v, "value", location) for v in values]
        self.scope.body.extend(later)
        return frozen

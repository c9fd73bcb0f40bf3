# SPDX-License-Identifier: Apache-2.0
"""Register tiles that run-time control flow assigns: ``m = self.maximum(m, x)`` in a loop.

Before the loop or ``if``, a name that it assigns gets a tile of its own, a copy of what it stood
for; the assignments inside give that tile new values. Compilers leave most of the copies out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilus import ir
from tilus.errors import LanguageError, Location
from tilus.frontend.values import map_values

if TYPE_CHECKING:
    from tilus.frontend.builder import Builder, Place, Scope, Store


def alike(a: object, b: object) -> bool:
    """Say whether a tile can take the values of another one."""
    if not isinstance(a, ir.RegisterTensor) or not isinstance(b, ir.RegisterTensor):
        return False
    return (a.dtype, a.shape, a.threads) == (b.dtype, b.shape, b.threads)


class Carried:
    """The tiles that names own, and which of them have been read since."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._owners: dict[ir.RegisterTensor, tuple[Place, Scope]] = {}
        self._read: set[ir.RegisterTensor] = set()

    def owns(self, store: Store, name: str) -> bool:
        """Return whether a name stands for a tile of its own."""
        tile = store.get(name)
        owner = self._owners.get(tile) if isinstance(tile, ir.RegisterTensor) else None
        return owner is not None and owner[0] == self._builder.place(store, name)

    def read(self, tile: ir.RegisterTensor) -> None:
        """Take note that a tile has been read through a name."""
        self._read.add(tile)

    def promote(self, store: Store, names: Iterable[str], location: Location) -> None:
        """Give names that stand for tiles of the current threads a tile of their own."""
        for name in names:
            tile = store.get(name)
            if not isinstance(tile, ir.RegisterTensor) or self.owns(store, name):
                continue
            if tile.threads == self._builder.region.threads:
                self.declare(store, name, self.copy(tile, name, location), location)

    def declare(self, store: Store, name: str, tile: ir.RegisterTensor, location: Location) -> None:
        """Let a name own ``tile``."""
        self._owners[tile] = self._builder.place(store, name), self._builder.scope
        self._builder.rebind(store, name, tile, location)

    def assigns(self, store: Store, name: str, value: Any, location: Location) -> bool:
        """Carry out ``name = value`` in place, where the name owns a tile from outside of the
        current scope; return whether it has done so."""
        if not self.owns(store, name) or self._owners[store[name]][1] is self._builder.scope:
            return False
        if alike(store[name], value):
            self._builder.emit(self.assignment(store[name], value, location))
            return True
        if store[name] in self._read:
            raise LanguageError(
                f"'{name}' holds {described(store[name])} from before the run-time loop or 'if', "
                f"and cannot become {described(value)} there; use another name",
                location,
            )
        return False

    def keep(self, value: Any, name: str, location: Location) -> Any:
        """Return ``value`` as it is now: tiles that names own are copied."""

        def copy(x: Any) -> Any:
            owned = isinstance(x, ir.RegisterTensor) and x in self._owners
            return self.copy(x, name, location) if owned else x

        return map_values(value, copy)

    def copy(self, tile: ir.RegisterTensor, name: str, location: Location) -> ir.RegisterTensor:
        """Return a new tile with the values of ``tile``."""
        new = self.allocate(tile, name, location)
        self._builder.emit(self.assignment(new, tile, location))
        return new

    def allocate(self, like: ir.RegisterTensor, name: str, location: Location) -> ir.RegisterTensor:
        """Return a new tile of the form of another one."""
        new, cls = replace(like, name=name), ir.implementing("new")
        facts: dict[str, Any] = {"dtype": new.dtype, "shape": new.shape, "out": new}
        self._builder.emit(cls(location=location, threads=new.threads, **facts))
        return new

    def assignment(
        self, tile: ir.RegisterTensor, value: ir.RegisterTensor, location: Location
    ) -> ir.Instruction:
        """Return the instruction that gives ``tile`` the values of another one."""
        facts: dict[str, Any] = {"dst": tile, "src": value}
        stmt = ir.implementing("=")(location=location, threads=self._builder.threads, **facts)
        stmt.verify()
        return stmt


def described(value: object) -> str:
    """Name a tile in a message by what an assignment must keep."""
    if not isinstance(value, ir.RegisterTensor):
        return f"a {type(value).__name__}"
    return f"a {value.dtype} tile of {list(value.shape)} held by {value.threads.role}"

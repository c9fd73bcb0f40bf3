# SPDX-License-Identifier: Apache-2.0
"""What a kernel's author may have meant by a name that is not there."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from tilus import ir
from tilus.frontend.values import Inlined

CLOSE = 0.7
"""How alike two names must be, from 0 to 1; less finds words that only share letters."""
LIST = "docs/reference/instructions.rst, a page of the site, lists all instructions"


def hint(owner: Any, name: str, script: Inlined) -> str:
    """Return what to say of ``owner.name``, which does not exist, or "": the same name elsewhere on
    ``self``, else one that is spelt nearly so."""
    inside = isinstance(owner, Inlined | ModuleType)
    same = [full for full in spellings(script) if full.endswith(f".{name}")] if inside else []
    near = same or get_close_matches(name, public(owner), n=1, cutoff=CLOSE)
    meant = f"; did you mean {' or '.join(repr(x) for x in near)}?" if near else ""
    return meant or (f"; {LIST}" if inside else "")


def not_callable(callee: Any, script: Inlined) -> str:
    """Return why ``callee`` cannot be called; of a unit such as ``self.fence`` what can be."""
    if not isinstance(callee, ModuleType):
        return f"a {type(callee).__name__} cannot be called"
    unit = callee.__name__.rpartition(".")[2]
    own = [full for full in spellings(script) if f".{unit}." in full or full.endswith(f".{unit}")]
    return f"'{unit}' is a unit, not an instruction; call {' or '.join(own)}"


def spellings(script: Inlined) -> Iterator[str]:
    """Yield what a kernel writes for each instruction: ``self.sync``, ``self.tma.wait_group``."""
    for name in dir(type(script)):
        value = getattr(type(script), name, None)
        if isinstance(value, ModuleType):
            yield from (f"self.{name}.{short}" for short in public(value))
        elif is_instruction(value):
            yield f"self.{name}"


def public(owner: Any) -> list[str]:
    """Return the names that ``owner`` offers; of a unit only its own, not what it imports."""
    names = [name for name in dir(owner) if not name.startswith("_")]
    if isinstance(owner, ModuleType):
        values = vars(owner)
        return [n for n in names if is_instruction(values[n], owner) or type(values[n]) is int]
    return names


def is_instruction(value: Any, unit: ModuleType | None = None) -> bool:
    """Return whether ``value`` is an instruction, defined in ``unit`` where one is given."""
    known = isinstance(value, type) and value in ir.instructions()
    return known and (unit is None or value.__module__ == unit.__name__)

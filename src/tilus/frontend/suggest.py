# SPDX-License-Identifier: Apache-2.0
"""What a kernel's author may have meant by a name that is not there."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from tilus import ir
from tilus.errors import LanguageError
from tilus.frontend.values import Inlined, traced

CLOSE = 0.7
"""How alike two names must be, from 0 to 1; less finds words that only share letters."""
LIST = "docs/reference/instructions.rst, a page of the site, lists all instructions"

TURN = (
    "store the tile to a tensor s in shared memory with self.store_shared(s, tile), call "
    "self.sync(), and take self.load_shared(s.transpose())"
)
VIEW = "make a view of the same pointer with self.global_view, shape and strides exchanged"
MEMBERS: dict[tuple[type, str], str] = {
    (ir.RegisterTensor, "T"): TURN,
    (ir.RegisterTensor, "transpose"): TURN,
    (ir.RegisterTensor, "astype"): "write self.cast(tile, dtype=...)",
    (ir.SharedTensor, "T"): "write .transpose(), which moves no data",
    (ir.SharedTensor, "reshape"): "write self.reshape_shared(tensor, shape)",
    (ir.GlobalTensor, "T"): VIEW,
    (ir.GlobalTensor, "transpose"): VIEW,
}
"""What to write for members that arrays of NumPy and PyTorch have."""
SAME = {"absolute": "abs", "amax": "max", "amin": "min", "matmul": "dot"}
"""NumPy's names of what ``self`` calls otherwise."""


def hint(owner: Any, name: str, script: Inlined) -> str:
    """Return what to say of ``owner.name``, which does not exist, or "": the same name elsewhere on
    ``self``, else one that is spelt nearly so."""
    if isinstance(owner, ir.RegisterTensor | ir.SharedTensor | ir.GlobalTensor):
        own = MEMBERS.get((type(owner), name)) or on_tile(name, script)
        if own:
            return f"; {own}"
    inside = isinstance(owner, Inlined | ModuleType)
    same = [full for full in spellings(script) if full.endswith(f".{name}")] if inside else []
    near = same or get_close_matches(name, public(owner), n=1, cutoff=CLOSE)
    meant = f"; did you mean {' or '.join(repr(x) for x in near)}?" if near else ""
    return meant or (f"; {LIST}" if inside else "")


def on_tile(name: str, script: Inlined) -> str:
    """Return what to write for an array's method or NumPy's function on a register tile, or ""."""
    own = SAME.get(name, name)
    instruction: Any = getattr(type(script), own, None)
    if (ir.RegisterTensor, name) in MEMBERS:
        return MEMBERS[ir.RegisterTensor, name]
    if not is_instruction(instruction):
        return ""
    return f"write self.{own}({', '.join(instruction.parameters())})"


def refuse_library(function: Any, values: Any, script: Inlined) -> None:
    """Refuse a function of ``math`` or NumPy that would take what the kernel computes with for an
    ordinary object."""
    module = getattr(function, "__module__", None) or type(function).__module__
    found = list(traced(values))
    if module.partition(".")[0] not in ("math", "numpy") or not found:
        return
    name = getattr(function, "__name__", type(function).__name__)
    what, instead = "a run-time value", "use the operators of the language, min, max and abs"
    if any(isinstance(x, ir.RegisterTensor) for x in found):
        what, instead = "a register tile", on_tile(name, script) or f"use operators on it; {LIST}"
    elif not isinstance(found[0], ir.Expr):
        what, instead = ir.describe(found[0]), "load it to a register tile, and compute with that"
    raise LanguageError(
        f"'{name}' runs while the kernel is built and cannot take {what}; {instead}"
    )


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

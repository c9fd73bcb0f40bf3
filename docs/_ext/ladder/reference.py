# SPDX-License-Identifier: Apache-2.0
"""The reference is the docstrings of the instructions; autodoc shows them as a kernel sees them.

::

    .. instructions:: tma wgmma      the entry of every instruction of these modules of tilus.ops
    :op:`wgmma.mma`                  the name of an instruction, linked to its entry
"""

from __future__ import annotations

import re
import sys
from dataclasses import MISSING
from types import ModuleType
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx import addnodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective, SphinxRole

import tilus.ops  # noqa: F401  (defines the instructions; tilus by itself waits with that)
from tilus import Script
from tilus.ir import Instruction, instructions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

MEANING = re.compile(r"^(NumPy|PTX): +(.*)$")


def signature(app: Sphinx, what: str, name: str, obj: Any, *_: Any) -> tuple[str, None] | None:
    """Show the arguments that a kernel passes, not the fields of the dataclass."""
    if not (isinstance(obj, type) and issubclass(obj, Instruction)):
        return None
    fields = obj.__dataclass_fields__
    shown = [
        p if not _optional(fields[p]) else f"{p}={fields[p].default!r}" for p in obj.parameters()
    ]
    return f"({', '.join(shown)})", None


def _optional(field: Any) -> bool:
    return field.default is not MISSING


def meanings(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn the two lines ``NumPy: ...`` and ``PTX: ...`` of a docstring into fields."""
    lines[:] = [MEANING.sub(r":\1: ``\2``", line) for line in lines]


def offered() -> Iterator[type[Instruction]]:
    """Yield what a kernel reaches as ``self.<name>`` or ``self.<unit>.<name>``."""
    known = set(instructions())
    for name in dir(Script):
        value = getattr(Script, name)
        for found in vars(value).values() if isinstance(value, ModuleType) else (value,):
            if isinstance(found, type) and found in known:
                yield found


def entries(unit: str) -> list[str]:
    """Return the full names of the instructions that a module of tilus.ops offers, as they stand.

    Raises :class:`ExtensionError` where it offers none.
    """
    module = f"tilus.ops.{unit}"
    own = {c.__name__ for c in offered() if c.__module__ == module}
    if not own:
        raise ExtensionError(f"{module} offers kernels no instruction")
    return [f"{module}.{name}" for name in vars(sys.modules[module]) if name in own]


class Instructions(SphinxDirective):
    """The entries of all instructions of some modules; a new instruction appears by itself."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        names = [name for unit in self.arguments[0].split() for name in entries(unit)]
        return self.parse_text_to_nodes("".join(f".. autoclass:: {name}\n" for name in names))


def find(name: str) -> str:
    """Return the full name of the instruction a kernel calls ``self.<name>``."""
    unit, _, short = name.rpartition(".")
    if not unit and hasattr(Script, short):
        found = [getattr(Script, short)]
    else:
        found = [c for c in instructions() if c.__name__ == short and c.__module__.endswith(unit)]
    if len(found) != 1:
        raise ExtensionError(f"{len(found)} instructions are called {name!r}; one is wanted")
    return f"{found[0].__module__}.{short}"


class Op(SphinxRole):
    """``:op:`tma.global_to_shared```: the instruction's name, linked to its reference entry."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        link = addnodes.pending_xref(
            "",
            refdomain="py",
            reftype="class",
            reftarget=find(self.text),
            refexplicit=True,
            refwarn=True,
        )
        link["refdoc"] = self.env.docname
        link += nodes.literal(self.text, self.text, classes=["xref", "py", "py-class"])
        return [link], []


def setup(app: Sphinx) -> None:
    """Register the hooks, the role and the directive."""
    app.add_role("op", Op())
    app.add_directive("instructions", Instructions)
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-process-docstring", meanings)

# SPDX-License-Identifier: Apache-2.0
"""The reference is the docstrings of the instructions; autodoc shows them as a kernel sees them."""

from __future__ import annotations

import re
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx import addnodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxRole

import tilus.ops  # noqa: F401  (defines the instructions)
from tilus.ir import Instruction, instructions

if TYPE_CHECKING:
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


def find(name: str) -> str:
    """Return the full name of the instruction a kernel calls ``self.<name>``."""
    unit, _, short = name.rpartition(".")
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
    """Register the hooks and the role."""
    app.add_role("op", Op())
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-process-docstring", meanings)

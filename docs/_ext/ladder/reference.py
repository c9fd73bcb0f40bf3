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

import tilus.ops  # defines the instructions; tilus by itself waits with that
from tilus import Script
from tilus.ir import Instruction, instructions

if TYPE_CHECKING:
    from sphinx.application import Sphinx

MEANING = re.compile(r"^(NumPy|PTX): +(.*)$")


def signature(app: Sphinx, what: str, name: str, obj: Any, *_: Any) -> tuple[str, None] | None:
    """Show the arguments that a kernel passes, not the fields of the dataclass."""
    if not (isinstance(obj, type) and issubclass(obj, Instruction)):
        return None
    shown = [_parameter(obj.__dataclass_fields__[p]) for p in obj.parameters()]
    if obj.variadic:
        shown[-1] = f"*{obj.parameters()[-1]}"
    return f"({', '.join(shown)})", None


def _parameter(field: Any) -> str:
    """Return a parameter with its default; an ``out`` that is not passed is made by the call."""
    default = None if field.name == "out" else field.default
    return field.name if default is MISSING else f"{field.name}={default!r}"


def spell(app: Sphinx, domain: str, objtype: str, content: nodes.Element) -> None:
    """Head an entry, and its line among the contents, with what a program writes:
    ``self.tma.wait_group``, and ``tilus.utils.cdiv`` for what it imports."""
    for head in content.parent.findall(addnodes.desc_signature):
        name = written(head.get("module") or "", head.get("fullname") or "")
        if not name:
            continue
        if name.startswith("self."):
            _as_in_a_kernel(head, name, called=objtype != "data")
        prefix, dot, short = name.rpartition(".")
        at = head.index(next(head.findall(addnodes.desc_name)))
        head[at : at + 1] = [
            addnodes.desc_addname(prefix + dot, prefix + dot),
            addnodes.desc_name(short, short),
        ]


def _as_in_a_kernel(head: nodes.Element, name: str, *, called: bool) -> None:
    extras = addnodes.desc_annotation, addnodes.desc_addname  # "class", the module
    head[:] = [n for n in head if not isinstance(n, extras) or not called]
    head["_toc_name"] = name
    if called and not any(isinstance(node, addnodes.desc_parameterlist) for node in head):
        head += addnodes.desc_sig_punctuation("()", "()")  # of a class Sphinx leaves them out


def written(module: str, name: str) -> str:
    """Return how a program writes a name of a module: ``self.sync``, ``tilus.Script``; nothing for
    a part of a class, such as a method."""
    found = getattr(sys.modules.get(module), name, None)
    if found is None:
        return ""
    unit = module.removeprefix("tilus.ops.")
    if getattr(Script, unit, None) is sys.modules[module]:
        return f"self.{unit}.{name}"
    own = [short for short in dir(Script) if getattr(Script, short) is found]
    if own:
        return f"self.{own[0]}"
    return f"tilus.{name}" if getattr(tilus, name, None) is found else f"{module}.{name}"


def meanings(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn the two lines ``NumPy: ...`` and ``PTX: ...`` of a docstring into fields."""
    lines[:] = [MEANING.sub(_meaning, line) for line in lines]


def _meaning(found: re.Match[str]) -> str:
    kind, text = found.groups()
    return f":{kind}: ``{text.replace('``', '')}``"


def spellings() -> dict[type[Instruction], str]:
    """Return what a kernel writes, ``self.<name>`` or ``self.<unit>.<name>``, by instruction."""
    known, found = set(instructions()), {}
    for name in dir(Script):
        value = getattr(Script, name)
        unit = isinstance(value, ModuleType)
        for short, cls in vars(value).items() if unit else [(name, value)]:
            if isinstance(cls, type) and cls in known:
                found[cls] = f"self.{name}.{short}" if unit else f"self.{name}"
    return found


def entries(unit: str) -> list[str]:
    """Return the full names of the instructions that a module of tilus.ops offers, as they stand.

    Raises :class:`ExtensionError` where it offers none.
    """
    module = f"tilus.ops.{unit}"
    own = {c.__name__ for c in spellings() if c.__module__ == module}
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
    app.connect("object-description-transform", spell)

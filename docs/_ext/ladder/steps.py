# SPDX-License-Identifier: Apache-2.0
"""``ladder-diff``: what a step changes, as a unified diff that the build generates, folded.

::

    .. ladder-diff:: v2 v3

The files are ``matmul_v2.py`` and ``matmul_v3.py``; a missing one ends the build by name. Left out
are the title and the last lines, which name the version and say nothing of the step. What a reader
copies is a patch.
"""

from __future__ import annotations

import ast
from difflib import unified_diff
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from ladder import found

if TYPE_CHECKING:
    from pathlib import Path

    from sphinx.application import Sphinx

EXAMPLES = "examples/hopper_matmul"
DROPDOWN = """\
.. dropdown:: From {old} to {new}: {added} lines added, {removed} removed

   A patch of {file}; titles are left out.
"""


def body(lines: list[str]) -> slice:
    """Return which lines are the program: those between the title and ``if __name__ ...``."""
    statements = ast.parse("\n".join(lines)).body
    title, last = statements[0], statements[-1]
    if not (isinstance(title, ast.Expr) and isinstance(last, ast.If)):
        raise ExtensionError("an example begins with a docstring and ends in `if __name__ == ...`")
    return slice(title.end_lineno, last.lineno - 1)


def diff(old: Path, new: Path) -> list[str]:
    """Return the unified diff that makes the program in ``old`` the program in ``new``."""
    before, after = (path.read_text(encoding="utf-8").splitlines() for path in (old, new))
    patched = before.copy()
    patched[body(before)] = after[body(after)]
    return list(unified_diff(before, patched, old.name, new.name, lineterm=""))


class LadderDiff(SphinxDirective):
    """Show the diff between two versions, folded until a reader opens it."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        old, new = map(self.file, self.arguments)
        lines = diff(old, new)
        text = "\n".join(lines)
        shown = nodes.container("", classes=["ladder-diff"])
        shown += self.parse_text_to_nodes(
            DROPDOWN.format(
                old=self.arguments[0].upper(),
                new=self.arguments[1].upper(),
                added=sum(line.startswith("+") for line in lines[2:]),
                removed=sum(line.startswith("-") for line in lines[2:]),
                file=f"``{old.name}``",
            )
        )
        caption = next(shown.findall(nodes.paragraph))
        caption.parent += nodes.literal_block(text, text, language="diff")
        return [shown]

    def file(self, version: str) -> Path:
        """Return the file of a version, and read the page again when it changes."""
        name = f"{EXAMPLES}/matmul_{version}.py"
        path = found.root(self.env) / name
        if not path.is_file():
            raise ExtensionError(f"{self.get_location()}: there is no {name} to compare")
        self.env.note_dependency(str(path))
        return path


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("ladder-diff", LadderDiff)

# SPDX-License-Identifier: Apache-2.0
"""``excerpt``: a ``literalinclude`` from marker to marker; a bad marker ends the build by name.

::

    .. excerpt:: /../examples/hopper_matmul/matmul_v3.py
       :start-at: with self.thread_group(thread_begin=0, num_threads=128):
       :end-at: self.store_global(gc, casted_acc, offsets=[offset_m, offset_n])

``start-at`` must begin exactly one line of the file. ``end-at`` (or ``end-before``) is looked for
below it, inside the block the start line stands in (its *role*: up to the first line that is
indented less), and must begin exactly one line there. Plain ``literalinclude`` takes the first
match of each, so a second one would go unnoticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sphinx.directives.code import LiteralInclude
from sphinx.errors import ExtensionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from docutils import nodes
    from sphinx.application import Sphinx


class MarkerError(ExtensionError):
    """A marker line is missing, doubled or reversed."""


def cut(lines: Sequence[str], start: str, end: str, *, inclusive: bool = True) -> tuple[int, int]:
    """Return the first and the last line, counted from 1, of the excerpt between two markers."""
    first = _only(_matches(lines, start, 0, len(lines)), start)
    role_end = _end_of_role(lines, first)
    found = _matches(lines, end, first + 1, role_end)
    if not found and any(_matches(lines, end, 0, first)):
        raise MarkerError(f"marker {end!r} is reversed: it stands above {start!r}")
    last = _only(found, end)
    return first + 1, last + 1 if inclusive else last


def _matches(lines: Sequence[str], marker: str, begin: int, end: int) -> list[int]:
    return [i for i in range(begin, end) if lines[i].strip().startswith(marker)]


def _only(found: list[int], marker: str) -> int:
    if not found:
        raise MarkerError(f"marker {marker!r} is missing")
    if len(found) > 1:
        places = ", ".join(str(i + 1) for i in found)
        raise MarkerError(f"marker {marker!r} is doubled: lines {places}")
    return found[0]


def _end_of_role(lines: Sequence[str], first: int) -> int:
    indent = _indent(lines[first])
    inner = (
        i for i in range(first + 1, len(lines)) if lines[i].strip() and _indent(lines[i]) < indent
    )
    return next(inner, len(lines))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


class Excerpt(LiteralInclude):
    """Check the markers, then include the lines between them, numbered as in their file."""

    def run(self) -> list[nodes.Node]:
        _, path = self.env.relfn2path(self.arguments[0])
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
        start = self.options.pop("start-at", "")
        inclusive = "end-at" in self.options
        end = self.options.pop("end-at" if inclusive else "end-before", "")
        try:
            first, last = cut(lines, start, end, inclusive=inclusive)
        except MarkerError as error:
            raise MarkerError(f"{self.get_location()}: {self.arguments[0]}: {error}") from None
        while not lines[last - 1].strip():
            last -= 1
        self.options |= {"lines": f"{first}-{last}", "lineno-match": True, "language": "python"}
        self.options["dedent"] = _indent(lines[first - 1])
        return super().run()


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("excerpt", Excerpt)

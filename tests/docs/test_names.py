# SPDX-License-Identifier: Apache-2.0
"""A reader can write down a page's code and find every name in it, by what the page itself says."""

from __future__ import annotations

import ast
import builtins
import re
from pathlib import Path
from textwrap import dedent

import pytest
from ladder.excerpt import cut

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(
    r"^( *)\.\. (?:excerpt:: (\S+)|code-block:: python)\n((?:\1 +.*\n|\n)+)", re.MULTILINE
)
PAGES = [
    page
    for page in sorted(DOCS.rglob("*.rst"))
    if re.search(
        r":start-at: (import|class) |code-block:: python", page.read_text(encoding="utf-8")
    )
]
"""Those with a whole program; a fragment of one speaks of what stands elsewhere."""


def snippets(page: Path) -> list[str]:
    """Return the Python of a page: what is typed there, and what is quoted from files."""
    found = BLOCK.findall(page.read_text(encoding="utf-8") + "\n")
    return [quoted(page.parent / file, body) if file else dedent(body) for _, file, body in found]


def quoted(file: Path, options: str) -> str:
    """Return the lines of an excerpt."""
    given = dict(re.findall(r":([\w-]+): (.+)", options))
    inclusive = "end-at" in given
    end = given["end-at" if inclusive else "end-before"]
    lines = Path(f"{DOCS}{file}" if file.is_absolute() else file).read_text().splitlines()
    first, last = cut(lines, given["start-at"], end, inclusive=inclusive)
    return dedent("\n".join(lines[first - 1 : last]))


def names(code: str) -> tuple[set[str], set[str]]:
    """Return the names that code binds, and those that it uses."""
    nodes = list(ast.walk(ast.parse(code)))
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    bound |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    bound |= {n.name for n in nodes if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    imports = [n for n in nodes if isinstance(n, ast.Import | ast.ImportFrom)]
    bound |= {(a.asname or a.name).partition(".")[0] for n in imports for a in n.names}
    used = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return bound, used


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_has_every_name_that_its_code_uses(page: Path) -> None:
    known, used = {"self", *dir(builtins)}, set()
    for code in snippets(page):
        bound, wanted = names(code)
        known |= bound
        used |= wanted
    assert used and sorted(used - known) == []

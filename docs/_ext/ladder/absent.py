# SPDX-License-Identifier: Apache-2.0
"""A page that looked for a file, such as this build's record, is read again once the file is there.

Sphinx takes a dependency that does not exist for a changed one: it would read such a page in every
build, and run all that the page breaks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

KEY = "absent"
"""Among a page's metadata, which Sphinx keeps and brings together from all its processes."""
LAST = 999


def set_aside(app: Sphinx, page: nodes.document) -> None:
    """Remember by itself what a page has looked for and not found."""
    env, name = app.env, app.env.docname
    missing = {d for d in env.dependencies[name] if not Path(app.srcdir, d).is_file()}
    env.dependencies[name] -= missing
    env.metadata[name][KEY] = missing


def appeared(app: Sphinx, env: Any, *_: set[str]) -> list[str]:
    """Return the pages that have looked for a file which is there now."""
    pages = ((name, data.get(KEY, ())) for name, data in env.metadata.items())
    return [n for n, missing in pages if any(Path(app.srcdir, d).is_file() for d in missing)]


def setup(app: Sphinx) -> None:
    """Look at a page when Sphinx has done so, and at all of them before a build."""
    app.connect("doctree-read", set_aside, priority=LAST)
    app.connect("env-get-outdated", appeared)

# SPDX-License-Identifier: Apache-2.0
"""What a page says of itself where it is linked: its title, and its opening as a description.

The title of the first page is the site's, and stands there once.
"""

from __future__ import annotations

from html import escape
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

LONGEST = 200
"""Characters that search engines and previews show of a description."""


def description(page: nodes.document) -> str:
    """Return the first paragraph of a page's text, shortened between words; '' without one."""
    sections = page.findall(nodes.section)
    first = next((p for s in sections for p in s.findall(nodes.paragraph)), None)
    return shorten(first.astext(), LONGEST, placeholder=" …") if first else ""


def describe(
    app: Sphinx, name: str, template: str, context: dict[str, Any], page: nodes.document | None
) -> None:
    """Add the tags to a page that was made from a text."""
    if name == app.config.root_doc:
        context["docstitle"] = ""
    if page is None or not (text := description(page)):
        return
    tags = {"og:title": app.env.titles[name].astext(), "og:type": "article", "og:description": text}
    lines = [f'<meta name="description" content="{escape(text)}" />']
    lines += [f'<meta property="{key}" content="{escape(tag)}" />' for key, tag in tags.items()]
    context["metatags"] += "\n    ".join(lines)


def setup(app: Sphinx) -> None:
    """Speak before a page is written."""
    app.connect("html-page-context", describe)

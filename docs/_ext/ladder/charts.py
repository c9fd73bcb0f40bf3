# SPDX-License-Identifier: Apache-2.0
"""``chart``: a figure drawn by a function in plots/, in light and dark, with badge and caption.

::

    .. chart:: plot_v3.timeline
       :badge: simulated
       :alt: what the figure shows

       The caption.

With ``:record: v3`` the figure needs that record, with ``:trace: v3`` the traces of V3, with
``:loads: ceiling zeros`` these series of the record of joules: the badge says where it comes from.

The drawing is done by matplotlib's plot directive. It decides by file times whether to draw; our
file names carry a hash over all that figures depend on, so that a figure of other sources is never
taken for this one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from ladder import found
from ladder.gallery import digest, sources

if TYPE_CHECKING:
    from sphinx.application import Sphinx

Source = found.Found | found.Traced | found.Loaded
VIEW_BOX = re.compile(r'viewBox="0 0 (\d+)[\d.]* (\d+)[\d.]*"')
PLOT = """\
.. plot::
   :filename-prefix: {script}-{function}-{theme}-{page}-{digest}
   :class: only-{theme}
   :alt: {alt}

   import {script}
   {script}.{function}({arguments})

"""


class Chart(SphinxDirective):
    """Draw a figure twice, for each theme of the page."""

    required_arguments = 1
    has_content = True
    option_spec = {
        "alt": directives.unchanged_required,
        "badge": directives.unchanged_required,
        "record": directives.unchanged_required,
        "trace": directives.unchanged_required,
        "loads": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        asked = {"record", "trace", "loads"} & self.options.keys()
        record = self.find() if asked else None
        if record is None and asked:
            other = found.TRACE if "trace" in asked else found.LOADS
            return [found.not_yet(self.options.get("record", other))]
        words = self.options.get("badge", "")
        label = record.badge() if record else found.badge(words.partition(" ")[0], words)
        body = self.parse_text_to_nodes(
            "".join(self.plot(theme, record) for theme in ("light", "dark"))
        )
        for image in (image for part in body for image in part.findall(nodes.image)):
            image["width"], image["height"] = self.extent(image["uri"])
        caption = nodes.container(
            "", label, *self.parse_content_to_nodes(), classes=["chart-caption"]
        )
        return [nodes.container("", *body, caption, classes=["chart"])]

    def find(self) -> Source | None:
        """Return the record that the figure needs, None where there is none."""
        if "record" in self.options:
            return found.find(self.env, self.options["record"])
        if "trace" in self.options:
            return found.find_trace(self.env, self.options["trace"])
        loaded = found.find_loads(self.env)
        return loaded if loaded and all(map(loaded.has, self.options["loads"].split())) else None

    def plot(self, theme: str, record: Source | None) -> str:
        """Return the plot directive for one theme."""
        script, function = self.arguments[0].split(".")
        root = found.root(self.env)
        files = sources(self.config, root) + ([root / record.path] if record else [])
        for path in files:
            self.env.note_dependency(str(path))
        return PLOT.format(
            script=script,
            function=function,
            theme=theme,
            page=Path(self.env.docname).name,  # two pages may show one figure
            digest=digest(files, root),
            alt=" ".join(self.options["alt"].split()),
            arguments=repr(theme) if record is None else f"{theme!r}, {record.path!r}",
        )

    def extent(self, uri: str) -> tuple[str, str]:
        """Return an SVG's width and height: a browser keeps its place until it has come."""
        path = Path(self.env.doc2path(self.env.docname)).parent / uri
        with path.with_suffix(".svg").open(encoding="utf-8") as lines:
            box = next(match for line in lines if (match := VIEW_BOX.search(line)))
        return box[1], box[2]


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("chart", Chart)

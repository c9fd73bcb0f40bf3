# SPDX-License-Identifier: Apache-2.0
"""``stepper``: go through one block of a kernel step by step, as the simulator ran it.

::

    .. stepper:: v3
       :stages: 3
       :tiles: 7

       The caption.

The build runs the kernel of a small K once, with the tile of the other figures, and puts each step
into the page. Without JavaScript the page has a strip of some of them; ``stepper.js`` makes a
figure of it that one can play.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.parsers.rst import directives
from jinja2 import Environment, FileSystemLoader
from sphinx.util.docutils import SphinxDirective

import simulated
from ladder import found, scenes
from ladder.gallery import sources
from ladder.moments import Run, moments
from tilus import prediction
from tilus.simulator import Result

if TYPE_CHECKING:
    from sphinx.application import Sphinx

STAGES, TILES, EACH = 3, 7, 4
"""The ring begins anew twice; a block with several tiles of C has ``EACH`` tiles of K for each."""


@cache
def run(version: str, stages: int = STAGES, tiles: int | None = None) -> Result:
    """Run one block of a step, whose ring has ``stages``, over ``tiles`` tiles of K."""
    (name,) = (x for x in simulated.SCHEDULES[version] if x.endswith("num_stages"))
    outputs = simulated.OUTPUTS[version]
    tiles = tiles or (EACH if outputs > 1 else TILES)
    return prediction.one_block(simulated.step(version, **{name: stages}), tiles, outputs)


def page(version: str, result: Result) -> dict[str, Any]:
    """Return what the template is given."""
    block = Run(result)
    shown = [scenes.scene(block, step) for step in block.steps]
    titles = moments(block)
    lines = {line for s in shown for _, _, at, ran in s["actors"] for line in [at, *ran] if line}
    text = (simulated.KERNELS / f"matmul_{version}.py").read_text(encoding="utf-8")
    return {
        "version": version,
        "steps": shown,
        "moments": [{"step": i, "title": title} for i, title in titles.items()],
        "actors": scenes.actors(block),
        "pointers": scenes.pointers(block),
        "stagers": scenes.stagers(block),
        "sectors": scenes.sectors(block.depth),
        "kinds": [{"name": kind, "array": array} for array, kind in block.kinds.items()],
        "depth": block.depth,
        "band": scenes.BAND,
        "cycles": result.cycles,
        "rows": scenes.bars(result),
        "lines": scenes.source(text, lines),
    }


def html(version: str, result: Result) -> str:
    """Return the figure."""
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template("stepper.jinja").render(page(version, result))


class Stepper(SphinxDirective):
    """Put a figure into the page in which a reader steps through one block."""

    required_arguments = 1
    has_content = True
    option_spec = {"stages": directives.positive_int, "tiles": directives.positive_int}

    def run(self) -> list[nodes.Node]:
        own = (path for path in Path(__file__).parent.iterdir() if path.is_file())
        for path in [*sources(self.config, found.root(self.env)), *own]:
            self.env.note_dependency(str(path))
        size = (self.options.get("stages", STAGES), self.options.get("tiles"))
        figure = nodes.raw(
            "", html(self.arguments[0], run(self.arguments[0], *size)), format="html"
        )
        label = found.badge("simulated", "simulated")
        words = self.parse_content_to_nodes()
        caption = nodes.container("", label, *words, classes=["chart-caption"])
        return [nodes.container("", figure, caption, classes=["stepper"])]


def add_files(app: Sphinx, page: str, template: str, context: Any, doctree: Any) -> None:
    """Let a page with a stepper load what it needs."""
    if doctree and any("stepper" in node["classes"] for node in doctree.findall(nodes.container)):
        app.add_css_file("stepper.css")
        app.add_js_file("stepper.js", loading_method="defer")


def setup(app: Sphinx) -> None:
    """Register the directive and its files."""
    app.add_directive("stepper", Stepper)
    app.connect("html-page-context", add_files)

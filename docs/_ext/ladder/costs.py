# SPDX-License-Identifier: Apache-2.0
"""``cost-table``: the numbers of the simulator's cost model with their sources, from the code."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from ladder.numbers import table
from tilus.simulator import Costs, schedule

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HEADER = ("Name", "Value", "Of what", "Source")


class CostTable(SphinxDirective):
    """A row for each field of :class:`tilus.simulator.Costs`."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(schedule.__file__))
        return [nodes.container("", table(HEADER, rows()), classes=["cost-table"])]


def rows() -> list[tuple[str, str, str, str]]:
    """Return the cells of the table."""
    return [
        (f.name, f"{f.default:g} {f.metadata['unit']}", f.metadata["what"], f.metadata["source"])
        for f in fields(Costs)
    ]


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("cost-table", CostTable)

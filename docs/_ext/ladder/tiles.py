# SPDX-License-Identifier: Apache-2.0
"""``tile-table``: what the shape of a tile means for persistent blocks, by arithmetic alone.

::

    .. tile-table:: 8192
       :tiles: 128x256 256x192 256x200

A row for each tile: how many there are in a square C, how evenly the multiprocessors can share
them, how many bytes a step of K brings for its FLOP, and what a thread has to hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from ladder.numbers import table
from tilus.prediction import SMS

if TYPE_CHECKING:
    from sphinx.application import Sphinx

BASE = "128x256"
"""The tile that bytes are compared with: V6's."""
CONSUMERS = 256  # threads that hold a tile
HEADER = (
    "Tile",
    "Tiles of C",
    f"For each of {SMS} blocks",
    "Rounds",
    "Columns of 256 rows, in all rounds",
    "Busy",
    "Bytes a product",
    "Accumulators a thread",
)


@dataclass(frozen=True)
class Tile:
    """A tile of ``m`` by ``n``, of which a square of ``size`` is made."""

    m: int
    n: int
    size: int

    @property
    def count(self) -> int:
        """How many there are; those at the edges are whole ones too."""
        return ceil(self.size / self.m) * ceil(self.size / self.n)

    @property
    def rounds(self) -> int:
        """How many the busiest block computes."""
        return ceil(self.count / SMS)

    @property
    def work(self) -> int:
        """What the busiest block computes of a row of C, in products of 256 rows by one column."""
        return self.rounds * self.m * self.n // 256

    @property
    def busy(self) -> float:
        """The share of all blocks' time that goes into elements of C."""
        return self.size**2 / (SMS * self.rounds * self.m * self.n)

    @property
    def nbytes(self) -> float:
        """Elements brought in for each product of two."""
        return (self.m + self.n) / (self.m * self.n)


def parsed(text: str, size: int) -> Tile:
    """Return the tile that ``128x256`` names."""
    m, n = text.split("x")
    return Tile(int(m), int(n), size)


def row(tile: Tile) -> list[str]:
    """Return the cells of one tile."""
    base = parsed(BASE, tile.size)
    return [
        f"{tile.m}x{tile.n}",
        str(tile.count),
        f"{tile.count / SMS:.2f}",
        str(tile.rounds),
        str(tile.work),
        f"{tile.busy:.1%}".replace("%", "\N{NO-BREAK SPACE}%"),
        f"{tile.nbytes / base.nbytes:.2f}",
        str(tile.m * tile.n // CONSUMERS),
    ]


class TileTable(SphinxDirective):
    """A row for each tile."""

    required_arguments = 1
    option_spec = {"tiles": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        size = int(self.arguments[0])
        rows = [row(parsed(text, size)) for text in self.options["tiles"].split()]
        return [nodes.container("", table(HEADER, rows), classes=["record-table", "tile-table"])]


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("tile-table", TileTable)

# SPDX-License-Identifier: Apache-2.0
"""Register tiles that products use: asynchronously, and without waiting for ordinary code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from tilus import ir
from tilus.simulator.access import Access, Agent, Kind

Fail = Callable[..., NoReturn]


@dataclass(eq=False)
class _Tile:
    """What is known of a tile: its products that may be in flight, who touched it since the last
    ``wgmma.fence``."""

    products: list[Access] = field(default_factory=list)
    touched: Agent | None = None
    fenced: bool = False


class Tiles:
    """The register tiles of one block, as far as products make them a matter of order."""

    def __init__(self, fail: Fail) -> None:
        self._fail = fail
        self._tiles: dict[ir.RegisterTensor, _Tile] = {}

    def touch(self, stmt: ir.Instruction, agent: Agent) -> None:
        """Check what an instruction does to register tiles itself, and what it has products do."""
        for tile, effect in _operands(stmt):
            known = self._tiles.setdefault(tile, _Tile())
            if effect.done != "group":
                self._order(tile, known, Access(agent, _kind(effect), "generic", tile))
                known.products, known.touched, known.fenced = [], agent, False
            elif not known.fenced:
                self._unfenced(tile, known, agent)

    def launch(self, stmt: ir.Instruction, product: Agent) -> None:
        """Let a product that ``stmt`` starts use its tiles from now on."""
        for tile, effect in _operands(stmt):
            if effect.done == "group":
                access = Access(product, _kind(effect), "async", tile)
                self._tiles[tile].products.append(access)

    def fence(self, threads: ir.Threads) -> None:
        """Order what a warp group did to its registers before its next products."""
        for tile, known in self._tiles.items():
            if tile.threads == threads:
                known.fenced = True

    def _order(self, tile: ir.RegisterTensor, known: _Tile, access: Access) -> None:
        for product in known.products:
            missing = access.conflicts(product)
            if missing:
                message, facts = access.verdict(product, missing)
                self._fail("race", message, **facts)

    def _unfenced(self, tile: ir.RegisterTensor, known: _Tile, agent: Agent) -> None:
        missing = f"wgmma.fence before {agent.noun}"
        what = f"WGMMA without fence: {agent.noun} uses {tile.name}"
        if known.touched:
            what += f", which {known.touched.noun} touched"
        message = f"{what}; the warp group must call wgmma.fence in between"
        self._fail("protocol", message, tensor=tile.name, missing=missing)


def _operands(stmt: ir.Instruction) -> Iterator[tuple[ir.RegisterTensor, ir.Effect]]:
    for effect in stmt.effects:
        tile = getattr(stmt, effect.field)
        if isinstance(tile, ir.RegisterTensor) and not tile.replicated:
            yield tile, effect


def _kind(effect: ir.Effect) -> Kind:
    return "read" if effect.kind == "read" else "write"

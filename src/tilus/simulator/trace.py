# SPDX-License-Identifier: Apache-2.0
"""Recording of events and barrier states; see :mod:`tilus.ir.trace`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilus import ir
from tilus.simulator.barriers import MBarrier, Signal
from tilus.simulator.engines import KINDS, LANES, Effect
from tilus.simulator.group import Block, ThreadGroup
from tilus.simulator.schedule import Work


@dataclass(frozen=True)
class Fill:
    """What a copy has put into shared memory: the ``tile``, through barrier ``stage``."""

    region: ir.Region
    tile: int | None
    stage: int


class Trace:
    """Collects the events and the barrier states of one block, where asked to."""

    def __init__(self, block: Block, enabled: bool) -> None:
        self.events: list[ir.Event] = []
        self.barriers: list[ir.BarrierState] = []
        self._block, self._enabled = block, enabled
        self._fills: list[Fill] = []
        self._latest: dict[str, Fill] = {}

    def barrier(self, time: float, barrier: MBarrier, cause: str) -> None:
        """Record the state that a barrier has from now on."""
        if self._enabled:
            b, block = barrier, self._block
            state = ir.BarrierState(
                time, b.name, b.index, b.phase, b.pending, b.bytes, cause, block
            )
            self.barriers.append(state)

    def instruction(
        self,
        group: ThreadGroup,
        stmt: ir.Instruction,
        start: float,
        wait: ir.Wait | None,
        work: Work,
        signal: Signal | None,
    ) -> None:
        """Record an instruction, from its issue to the end of its wait if it had one."""
        if not self._enabled:
            return
        kind = wait.kind if wait else work.kind
        part = self._part(group, work, signal) | {"amount": work.amount}
        self._add(group.lane, kind, start, group.time, type(stmt).__name__, stmt, work, part)

    def effect(self, effect: Effect, end: float, signal: Signal | None, work: Work) -> None:
        """Record what an engine did, from the moment it began to work on it."""
        if not self._enabled:
            return
        if signal and effect.engine == "tma":
            self._fill(signal, work)
        kind, lane, start = KINDS[effect.engine], LANES[effect.engine], min(effect.start, end)
        asked = {
            "issued": effect.issued,
            "issuer": effect.group.lane,
            "amount": effect.amount,
        }
        part = self._part(effect.group, work, signal) | asked
        self._add(lane, kind, start, end, effect.what, effect, work, part)

    def _fill(self, signal: Signal, work: Work) -> None:
        for region in work.writes:
            self._fills = [f for f in self._fills if not f.region.overlaps(region)]
            self._fills.append(Fill(region, signal.tile, signal.index))

    def _part(self, group: ThreadGroup, work: Work, signal: Signal | None) -> dict[str, Any]:
        """Return the barrier, stage and tile that take part."""
        if signal:
            part = {"barrier": signal.label, "stage": signal.index, "phase": signal.phase}
            return part | {"tile": signal.tile}
        read = [f for f in self._fills for r in work.reads if f.region.overlaps(r)]
        if read:
            self._latest[group.lane] = read[-1]
        elif not work.flop:
            return {}
        # What a warp multiplies in registers is what it has read last.
        fill = self._latest.get(group.lane)
        return {"stage": fill.stage, "tile": fill.tile} if fill else {}

    def _add(
        self,
        lane: str,
        kind: str,
        start: float,
        end: float,
        what: str,
        source: ir.Instruction | Effect,
        work: Work,
        part: dict[str, Any],
    ) -> None:
        part |= {"reads": tuple(work.reads), "writes": tuple(work.writes)}
        place = source.location
        self.events.append(ir.Event(lane, kind, start, end, what, place, self._block, **part))

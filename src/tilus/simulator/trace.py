# SPDX-License-Identifier: Apache-2.0
"""Recording of events; see :class:`tilus.ir.Event`."""

from __future__ import annotations

from tilus import ir
from tilus.simulator.barriers import MBarrier
from tilus.simulator.engines import KINDS, LANES, Effect
from tilus.simulator.group import Block, ThreadGroup
from tilus.simulator.schedule import Work


class Trace:
    """Collects the events of one block, where asked to."""

    def __init__(self, block: Block, enabled: bool) -> None:
        self.events: list[ir.Event] = []
        self._block, self._enabled = block, enabled

    def instruction(
        self,
        group: ThreadGroup,
        stmt: ir.Instruction,
        start: float,
        wait: ir.Wait | None,
        work: Work,
        barrier: MBarrier | None,
    ) -> None:
        """Record an instruction, from its issue to the end of its wait if it had one."""
        if not self._enabled:
            return
        kind = wait.kind if wait else work.kind
        self._add(group.lane, kind, start, group.time, type(stmt).__name__, stmt, barrier)

    def effect(self, effect: Effect, end: float, barrier: MBarrier | None) -> None:
        """Record what an engine did, from the moment it began to work on it."""
        if self._enabled:
            kind, lane = KINDS[effect.engine], LANES[effect.engine]
            self._add(lane, kind, min(effect.start, end), end, effect.what, effect, barrier)

    def _add(
        self,
        lane: str,
        kind: str,
        start: float,
        end: float,
        what: str,
        source: ir.Instruction | Effect,
        barrier: MBarrier | None,
    ) -> None:
        label, stage = (barrier.label, barrier.index) if barrier else (None, None)
        place = source.location
        self.events.append(ir.Event(lane, kind, start, end, what, place, self._block, label, stage))

# SPDX-License-Identifier: Apache-2.0
"""What a simulated kernel did when: events that the simulator records and the timeline shows."""

from __future__ import annotations

from dataclasses import dataclass

from tilus.errors import Location


@dataclass(frozen=True)
class Event:
    """One thing that took from ``start`` to ``end``, in cycles since its block began.

    ``lane`` is the role of the threads (``warps 0-3``) or the engine (``TMA engine``, ``tensor
    cores``, ``bulk stores``). ``kind`` is ``"issue"``, ``"wait"``, ``"sync"``, ``"copy"``,
    ``"compute"``, ``"load"`` or ``"store"``. ``barrier`` names the mbarrier (``full[2]``) and
    ``stage`` is its index, where one takes part.
    """

    lane: str
    kind: str
    start: float
    end: float
    what: str
    location: Location
    block: tuple[int, int, int]
    barrier: str | None = None
    stage: int | None = None

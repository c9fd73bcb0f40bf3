# SPDX-License-Identifier: Apache-2.0
"""Time contenders, and say what a launch costs in joules and at which clock it ran.

:class:`EnergyTimer` goes where :class:`tilus.bench.CudaTimer` goes. It queues launches
as they are needed and reads the GPU in between, so that a window has dozens of readings.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from tilus import runtime
from tilus.bench import SHORTEST_READ_MS, CudaTimer, Launch, Window

AHEAD_S = 0.25
"""So much work stays queued: the GPU is not left idle where the host pauses, or where launches take
a little less than was expected."""
EVERY_S = 0.01
"""The pause after a reading."""
SETTLED_S = 0.4
"""Readings from before are left out: another contender's clock and power still show in them."""


@dataclass(frozen=True)
class Reading:
    """The GPU at one moment: seconds, joules since the driver was loaded, clock, power."""

    at_s: float
    joules: float | None
    sm_mhz: float
    power_w: float


class EnergyTimer(CudaTimer):
    """Times on a GPU; the power of a window is its energy by the GPU's counter over its time."""

    def run(self, launch: Launch, count: int, expected_ms: float = 0.0) -> Window:
        """Time ``count`` launches; a window too short to settle has neither clock nor power."""
        if expected_ms < SHORTEST_READ_MS:
            return super().run(launch, count, expected_ms)
        readings = self._run(launch, count, expected_ms / 1000)
        milliseconds = self._end.since(self._start)
        settled = [r for r in readings if r.at_s >= readings[0].at_s + SETTLED_S]
        if not settled:  # NVML tells nothing
            return Window(milliseconds, count)
        return Window(milliseconds, count, median(r.sm_mhz for r in settled), power(settled))

    def _run(self, launch: Launch, count: int, expected_s: float) -> list[Reading]:
        readings, begun = list[Reading](), time.monotonic()
        self._start.record(self._stream)
        for number in range(count):
            queued_s = expected_s * number / count - (time.monotonic() - begun)
            if queued_s >= AHEAD_S:  # only then may a reading, which takes a while, come between
                readings += self._read()
                time.sleep(EVERY_S)
            launch()
        self._end.record(self._stream)
        self._end.synchronize()
        return readings

    def _read(self) -> list[Reading]:
        seen, joules = runtime.telemetry(self._gpu), runtime.energy_j(self._gpu)
        if seen is None:
            return []
        return [Reading(time.monotonic(), joules, seen.sm_mhz, seen.power_w)]


def power(readings: Sequence[Reading]) -> float:
    """Return the mean power in watts between the first and the last step of the energy counter.

    The counter moves in steps of some tens of milliseconds: between two arbitrary moments it would
    be off by up to one of them. Where it does not move, the mean of the power readings stands in.
    """
    steps = [
        (now.at_s, now.joules)
        for before, now in pairwise(readings)
        if now.joules is not None and now.joules != before.joules
    ]
    if len(steps) < 2:
        return fmean(r.power_w for r in readings)
    (begin, least), (end, most) = steps[0], steps[-1]
    return (most - least) / (end - begin)

# SPDX-License-Identifier: Apache-2.0
"""Time contenders, and say what a launch costs in joules and at which clock it ran.

:class:`EnergyTimer` goes where :class:`tilus.bench.CudaTimer` goes. It queues launches as they are
needed and reads the GPU in between, so that a window has dozens of readings. The clock is counted
by the multiprocessors themselves: NVML reports one that the power limit may keep them from.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import numpy as np

from tilus import nvrtc, runtime
from tilus.bench import SHORTEST_READ_MS, CudaTimer, Launch, Window
from tilus.dtypes import uint64

AHEAD_S = 0.25
"""So much work stays queued: the GPU is not left idle where the host pauses, or where launches take
a little less than was expected."""
EVERY_S = 0.01
"""The pause after a reading."""
SETTLED_S = 0.4
"""Readings from before are left out: another contender's clock and power still show in them."""

PROBE = """
/* Block by block: where am I, how many cycles has this place counted, what time is it? */
extern "C" __global__ void probe(unsigned long long *out) {
  unsigned sm;
  unsigned long long cycles, ns;
  asm volatile("mov.u32 %0, %%smid; mov.u64 %1, %%clock64; mov.u64 %2, %%globaltimer;"
               : "=r"(sm), "=l"(cycles), "=l"(ns));
  if (threadIdx.x == 0) { out[2 * sm] = cycles; out[2 * sm + 1] = ns; }
}
"""
PLACES = 256
"""More than there are multiprocessors on any Hopper GPU."""
ALONE = 128 * 1024
"""Shared memory of a block of the probe, in bytes: a multiprocessor holds one of them."""


@dataclass(frozen=True)
class Metered(Window):
    """A window whose ``sm_mhz`` the multiprocessors counted; NVML said ``nvml_mhz``."""

    nvml_mhz: float | None = None


@dataclass(frozen=True)
class Reading:
    """The GPU at one moment: seconds, joules since the driver was loaded, clock, power."""

    at_s: float
    joules: float | None
    sm_mhz: float
    power_w: float


class Counters:
    """The cycle counters of all multiprocessors, at two moments of a stream's work."""

    def __init__(self, gpu: runtime.Gpu) -> None:
        self._gpu = gpu
        code = nvrtc.compile(PROBE, name="probe").code
        function = runtime.load(code, "probe", ALONE, gpu.index)
        self._launch = runtime.Launch(function, 0, [uint64], threads=32)
        self._memory = [runtime.DeviceArray((PLACES, 2), uint64, gpu.index) for _ in range(2)]

    def reset(self) -> None:
        """Forget what was read."""
        for memory in self._memory:
            memory.fill_bytes(0)

    def read(self, moment: int, stream: int) -> None:
        """Queue a reading: moment 0 or 1."""
        address = self._memory[moment].described.address
        self._launch((self._gpu.sms, 1, 1), [], [address], stream)

    def mhz(self) -> float | None:
        """Return the mean clock between both moments, None where the counters make no sense."""
        return clock(*(memory.to_numpy().astype(np.float64) for memory in self._memory))


def clock(before: np.ndarray, after: np.ndarray) -> float | None:
    """Return the clock in MHz by the cycles and nanoseconds of each place at two moments.

    A place without a reading at one of them has zeros. None where any clock is implausible.
    """
    seen = before.all(axis=1) & after.all(axis=1)
    cycles, ns = (after - before)[seen].T
    mhz = 1000 * cycles / np.where(ns > 0, ns, np.nan)
    good = mhz.size > 0 and ((mhz > 100) & (mhz < 3000)).all()
    return float(mhz.mean()) if good else None


class EnergyTimer(CudaTimer):
    """Times on a GPU; the power of a window is its energy by the GPU's counter over its time."""

    def __init__(self, gpu: runtime.Gpu, stream: int = 0) -> None:
        super().__init__(gpu, stream)
        self._counters = Counters(gpu)

    def run(self, launch: Launch, count: int, expected_ms: float = 0.0) -> Window:
        """Time ``count`` launches; a window too short to settle has neither clock nor power."""
        if expected_ms < SHORTEST_READ_MS:
            return super().run(launch, count, expected_ms)
        self._counters.reset()
        readings = self._run(launch, count, expected_ms / 1000)
        milliseconds, mhz = self._end.since(self._start), self._counters.mhz()
        settled = [r for r in readings if r.at_s >= readings[0].at_s + SETTLED_S]
        if not settled:  # NVML tells nothing
            return Metered(milliseconds, count, mhz)
        seen = fmean(r.sm_mhz for r in settled)
        return Metered(milliseconds, count, mhz, power(settled), seen)

    def _run(self, launch: Launch, count: int, expected_s: float) -> list[Reading]:
        readings, begun = list[Reading](), time.monotonic()
        self._counters.read(0, self._stream)
        self._start.record(self._stream)
        for number in range(count):
            queued_s = expected_s * number / count - (time.monotonic() - begun)
            if queued_s >= AHEAD_S:  # only then may a reading, which takes a while, come between
                readings += self._read()
                time.sleep(EVERY_S)
            launch()
        self._end.record(self._stream)
        self._counters.read(1, self._stream)
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

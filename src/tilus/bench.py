# SPDX-License-Identifier: Apache-2.0
"""Time contenders against each other on one GPU, in the two regimes that a reader meets.

*burst*
    The GPU rests, warms up for a few launches, then a few dozen are timed: what one call costs in
    a program that also does other things. Power and temperature have no time to matter.
*sustained*
    Hundreds of launches without a pause: the GPU sits at its power cap, and what costs less energy
    is faster.

Contenders take turns within each round, so that a GPU that drifts drifts for all of them alike, and
ratios are formed round by round. Each window is one pair of events around many launches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import Protocol

from tilus import runtime
from tilus.errors import ArgumentError

Launch = Callable[[], object]
"""Queues one launch of a contender on the timer's stream and returns at once."""
Progress = Callable[[str], None]
"""Is told what is about to be timed."""

SAMPLE_AT = 0.8
"""Clock and power are read when so much of a window has passed: both have settled by then."""
SHORTEST_READ_MS = 500.0
"""Shorter windows read neither: NVML's power is an average over about a second, and its clock lags
behind a burst."""


@dataclass(frozen=True)
class Window:
    """What the timer saw of ``launches`` launches in a row: their time, the clock, the power."""

    milliseconds: float
    launches: int
    sm_mhz: float | None = None
    power_w: float | None = None

    @property
    def latency_ms(self) -> float:
        """Milliseconds a launch."""
        return self.milliseconds / self.launches


class Timer(Protocol):
    """What the regimes ask of a device."""

    def rest(self, seconds: float) -> None:
        """Leave the device idle."""

    def run(self, launch: Launch, count: int, expected_ms: float = 0.0) -> Window:
        """Launch ``count`` times and wait; ``expected_ms`` is how long that will take about."""


class CudaTimer:
    """Times on a GPU with CUDA events on the stream ``stream``, the default one if left out."""

    def __init__(self, gpu: runtime.Gpu, stream: int = 0) -> None:
        self._gpu, self._stream = gpu, stream
        self._start, self._end = runtime.Event(gpu.index), runtime.Event(gpu.index)

    def rest(self, seconds: float) -> None:
        """Wait for all that was queued, then let the GPU idle."""
        runtime.synchronize(self._gpu.index)
        time.sleep(seconds)

    def run(self, launch: Launch, count: int, expected_ms: float = 0.0) -> Window:
        """Time ``count`` launches between two events; read clock and power of a long window."""
        sample_at = time.monotonic() + SAMPLE_AT * expected_ms / 1000
        self._start.record(self._stream)
        for _ in range(count):
            launch()
        self._end.record(self._stream)
        time.sleep(max(0.0, sample_at - time.monotonic()))
        settled = expected_ms >= SHORTEST_READ_MS
        seen = runtime.telemetry(self._gpu) if settled else None
        self._end.synchronize()
        milliseconds = self._end.since(self._start)
        if seen is None:
            return Window(milliseconds, count)
        return Window(milliseconds, count, seen.sm_mhz, seen.power_w)


@dataclass(frozen=True)
class Series:
    """One contender's windows, one a round."""

    windows: tuple[Window, ...]

    @property
    def latency_ms(self) -> tuple[float, ...]:
        """Milliseconds a launch, a value a round."""
        return tuple(window.latency_ms for window in self.windows)

    @property
    def median_ms(self) -> float:
        """The median over rounds."""
        return median(self.latency_ms)


@dataclass(frozen=True)
class Burst:
    """Rest ``idle_s``, launch ``warmups`` times untimed, then ``launches`` times; so each round."""

    idle_s: float = 1.0
    warmups: int = 5
    launches: int = 30
    rounds: int = 9

    def steps(self, contenders: int) -> int:
        """Return how often so many contenders' progress is told."""
        return self.rounds * contenders

    def __call__(
        self, timer: Timer, contenders: Mapping[str, Launch], progress: Progress = lambda _: None
    ) -> dict[str, Series]:
        """Time the contenders in turn; return each one's rounds."""
        return _series(contenders, self._rounds(timer, contenders, progress))

    def _rounds(
        self, timer: Timer, contenders: Mapping[str, Launch], progress: Progress
    ) -> Iterator[tuple[str, Window]]:
        for number in range(self.rounds):
            for name, launch in contenders.items():
                progress(f"burst {number + 1}/{self.rounds}, {name}")
                timer.rest(self.idle_s)
                expected = timer.run(launch, self.warmups).latency_ms * self.launches
                yield name, timer.run(launch, self.launches, expected)


@dataclass(frozen=True)
class Sustained:
    """Warm up for ``warmup_s`` in all, then time ``windows`` windows of ``window_s`` for each."""

    warmup_s: float = 2.0
    window_s: float = 1.0
    windows: int = 3

    def steps(self, contenders: int) -> int:
        """Return how often so many contenders' progress is told."""
        return (1 + self.windows) * contenders

    def __call__(
        self, timer: Timer, contenders: Mapping[str, Launch], progress: Progress = lambda _: None
    ) -> dict[str, Series]:
        """Time the contenders in turn, without a rest; return each one's windows."""
        return _series(contenders, self._rounds(timer, contenders, progress))

    def _rounds(
        self, timer: Timer, contenders: Mapping[str, Launch], progress: Progress
    ) -> Iterator[tuple[str, Window]]:
        latency = {name: timer.run(launch, 5).latency_ms for name, launch in contenders.items()}
        share = 1000 * self.warmup_s / len(contenders)
        for name, launch in contenders.items():
            progress(f"sustained warm-up, {name}")
            latency[name] = timer.run(launch, math.ceil(share / latency[name])).latency_ms
        for number in range(self.windows):
            for name, launch in contenders.items():
                progress(f"sustained {number + 1}/{self.windows}, {name}")
                count = math.ceil(1000 * self.window_s / latency[name])
                yield name, timer.run(launch, count, count * latency[name])


def benchmark_func(fn: Launch, warmup: int = 5, repeat: int = 20) -> float:
    """Return the median time of a call of ``fn`` in milliseconds, on the first Hopper GPU.

    ``fn`` is called ``warmup`` times untimed, then ``repeat`` times, each between two CUDA events
    on the stream that is PyTorch's or CuPy's current one, else on the default stream. ``fn`` queues
    its work there. Raises :class:`ArgumentError` for counts that time nothing,
    :class:`DeviceError` without a GPU.
    """
    for name, count, least in (("warmup", warmup, 0), ("repeat", repeat, 1)):
        if type(count) is not int or count < least:
            rule = f"an integer of at least {least}"
            raise ArgumentError(name, rule, repr(count), "It counts calls.")
    gpu = runtime.require_gpu()
    stream = runtime.library_stream(gpu.index)
    for _ in range(warmup):
        fn()
    moments = [runtime.Event(gpu.index) for _ in range(repeat + 1)]
    moments[0].record(stream)
    for moment in moments[1:]:
        fn()
        moment.record(stream)
    moments[-1].synchronize()
    return median(end.since(start) for start, end in pairwise(moments))


def _series(
    contenders: Mapping[str, Launch], windows: Iterator[tuple[str, Window]]
) -> dict[str, Series]:
    taken = list(windows)
    return {name: Series(tuple(w for who, w in taken if who == name)) for name in contenders}


def method(plans: Mapping[str, Burst | Sustained]) -> dict[str, object]:
    """Return the record's account of how times are taken: by ``plans``, else by the standard."""
    standard: dict[str, Burst | Sustained] = {"burst": Burst(), "sustained": Sustained()}
    return {
        "inputs": "standard normal float16, fixed seed; the same arrays in every launch",
        "timer": "CUDA events, one pair a window; contenders in turn within each round",
        **{name: asdict(plan) for name, plan in (standard | dict(plans)).items()},
    }

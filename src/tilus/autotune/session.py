# SPDX-License-Identifier: Apache-2.0
"""One tuning: plan, compile, judge and time the schedules of a script for one call."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tilus import bench, compiler, ir, nvrtc, runtime
from tilus.autotune.expected import by_reference, by_simulator, small
from tilus.autotune.judge import judge
from tilus.autotune.space import Schedule
from tilus.autotune.trial import Runnable, Trial, at, images, runnable
from tilus.errors import CompileError, LanguageError
from tilus.launch import Call, views
from tilus.options import option

if TYPE_CHECKING:
    from tilus.autotune.progress import Show

HEAT = bench.Burst(idle_s=0.0, warmups=2, launches=8, rounds=2)
"""What every right candidate goes through."""
PLAY_OFF = bench.Burst(idle_s=0.1, warmups=5, launches=30, rounds=3)
"""What the best go through again: the differences between them are small."""
FINALISTS = 5

Judge = Callable[..., list[str | None]]


class Rig(Protocol):
    """What tuning needs of a device."""

    device: str

    def facts(self) -> dict[str, object]:
        """Return what a result holds for: another device, driver or compiler must tune anew."""

    def build(self, kernel: ir.Kernel) -> Runnable:
        """Compile a candidate; raise :class:`CompileError` where that fails."""

    def timer(self) -> bench.Timer:
        """Return what times launches."""


class CudaRig:
    """A Hopper GPU, ``"cuda:N"``."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._gpu = runtime.gpus()[int(device.removeprefix("cuda:"))]

    def facts(self) -> dict[str, object]:
        """Return what a result holds for."""
        gpu = self._gpu
        return {
            "capability": list(gpu.capability),
            "sms": gpu.sms,
            "shared_bytes": gpu.shared_bytes,
            "driver": gpu.driver,
            "nvrtc": nvrtc.nvrtc_version(),
        }

    def build(self, kernel: ir.Kernel) -> Runnable:
        """Compile with NVRTC, or take the result from the cache."""
        return compiler.build(kernel)

    def timer(self) -> bench.Timer:
        """Return a timer by CUDA events."""
        return bench.CudaTimer(self._gpu)


@dataclass(frozen=True)
class Tuning:
    """How a schedule was chosen: ``ranking`` has the times in ms of the right ones, best first.

    Of ``total`` schedules ``compiled`` were left after planning; ``aside`` counts what was set
    aside, then and later, by reason. ``seconds`` is what it all took; ``origin`` says "measured",
    "stored" (measured earlier) or "first" (the first that the hardware can run, no times taken).
    """

    schedule: Schedule
    origin: str
    total: int
    compiled: int = 0
    aside: Mapping[str, int] = field(default_factory=dict)
    ranking: Sequence[tuple[Schedule, float]] = ()
    seconds: float = 0.0

    def lines(self) -> list[str]:
        """Return the choice in words, then a line for each reason to set schedules aside."""
        words = {
            "measured": f"the fastest of {len(self.ranking)} right ones, in {self.seconds:.1f} s",
            "stored": f"the fastest of {len(self.ranking)} right ones when last measured",
            "first": "the first that the hardware can run (not timed)",
        }
        chosen = " ".join(f"{name}={value}" for name, value in self.schedule.items())
        compiled = f", {self.compiled} of them compiled" if self.compiled else ""
        head = f"{chosen}: {words[self.origin]}, {self.total} schedules in all{compiled}"
        return [head, *(f"{count} set aside: {why}" for why, count in self.aside.items())]

    def facts(self) -> dict[str, object]:
        """Return the record's account of the tuning."""
        return {
            "schedules": self.total,
            "compiled": self.compiled,
            "right": len(self.ranking),
            "aside": dict(self.aside),
            "seconds": round(self.seconds, 1),
        }


@dataclass(frozen=True, eq=False)
class Candidate:
    """A schedule and its program."""

    schedule: Schedule
    kernel: ir.Kernel
    program: Runnable


class Session:
    """The stages of a tuning; ``aside`` counts by reason what each of them set aside."""

    def __init__(
        self, cls: Any, schedules: Sequence[Schedule], call: Call, show: Show, judge: Judge = judge
    ) -> None:
        self._cls, self._schedules, self._call = cls, schedules, call
        self._show, self._judge = show, judge
        self.aside: Counter[str] = Counter()
        self._refused: dict[str, LanguageError] = {}  # by reason, of the first schedule it stopped
        self._compiled = 0

    def first(self) -> Tuning:
        """Take the first schedule that the hardware can run."""
        for schedule in self._schedules:
            if self._plan(schedule, self._call) is not None:
                return Tuning(schedule, "first", len(self._schedules), aside=self.aside)
        raise self._nothing()

    def measure(self, rig: Rig) -> Tuning:
        """Take the fastest schedule among those whose results are right."""
        begin = time.monotonic()
        built = self._build(self._schedules, self._call, rig)
        right = self._right(built, rig) if built else []
        if not right:
            raise self._nothing()
        ranking, total = self._race(right, rig), len(self._schedules)
        seconds = time.monotonic() - begin
        chosen, compiled = ranking[0][0], self._compiled
        return Tuning(chosen, "measured", total, compiled, self.aside, ranking, seconds)

    def _nothing(self) -> LanguageError:
        """Return every reason; where it is one line of the kernel, the error at that line."""
        name, total = self._cls.__name__, len(self._schedules)
        alike = self._refused.get(next(iter(self.aside))) if len(self.aside) == 1 else None
        if alike is not None:
            said = f"{name}: none of {_counted(total)} will do: {alike.message}"
            error = LanguageError(said, alike.location)
            for note in getattr(alike, "__notes__", ()):
                error.add_note(note)
            return error
        reasons = (
            f"\n  {_counted(count)}: {self._refused.get(why, why)}"
            for why, count in self.aside.items()
        )
        return LanguageError(f"{name}: no schedule of its space will do{''.join(reasons)}")

    def _plan(self, schedule: Schedule, call: Call) -> ir.Kernel | None:
        """Return a schedule's kernel, or None where it breaks a rule of the hardware.

        Raises :class:`ArgumentError` where the call's arrays do not fit the kernel.
        """
        try:
            kernel = compiler.lower(self._cls(**schedule), call.constants)
        except LanguageError as error:
            reason = error.message.partition(", got")[0]
            self.aside[reason] += 1
            self._refused.setdefault(reason, error)
            return None
        views.check(kernel, call)
        return kernel

    def _build(self, schedules: Sequence[Schedule], call: Call, rig: Rig) -> list[Candidate]:
        """Plan schedules for a call; compile in other threads those that the hardware can run."""
        waiting: list[tuple[Schedule, ir.Kernel, Future[Runnable]]] = []
        with ThreadPoolExecutor(option.current_workers) as pool:
            with self._show.stage("planning", len(schedules)) as advance:
                for done, schedule in enumerate(schedules, 1):
                    if (kernel := self._plan(schedule, call)) is not None:
                        waiting.append((schedule, kernel, pool.submit(rig.build, kernel)))
                    advance(done)
            self._compiled = self._compiled or len(waiting)
            with self._show.stage("compiling", len(waiting)) as advance:
                built = []
                for done, (schedule, kernel, future) in enumerate(waiting, 1):
                    if (program := self._built(future)) is not None:
                        built.append(Candidate(schedule, kernel, program))
                    advance(done)
        return built

    def _built(self, future: Future[Runnable]) -> Runnable | None:
        try:
            return future.result()
        except CompileError as error:
            self.aside[_headline(str(error))] += 1
            return None

    def _right(self, built: Sequence[Candidate], rig: Rig) -> list[Candidate]:
        """Run every candidate on integers; keep those that leave what must be left.

        Without a reference that is what the simulator leaves, on a small problem of the same kind.
        """
        call, tried = self._call, list(built)
        if not hasattr(self._cls, "reference"):
            call = small(call)
            tried = self._build([c.schedule for c in built], call, rig)
        if not tried:
            return []
        outputs = views.written(tried[0].kernel.function)
        before = images(call, outputs, "exact")
        if hasattr(self._cls, "reference"):
            script = self._cls(**tried[0].schedule)
            after = by_reference(script, call, before, outputs)
        else:
            after = by_simulator(tried[0].kernel, call, before)
        trial = Trial(rig.device, call.constants, call.scalars, before, after)
        with self._show.stage("verifying", len(tried)) as advance:
            verdicts = self._judge([c.program for c in tried], trial, advance)
        self.aside.update(_headline(verdict) for verdict in verdicts if verdict is not None)
        right = [c.schedule for c, v in zip(tried, verdicts, strict=True) if v is None]
        return [c for c in built if c.schedule in right]

    def _race(self, right: Sequence[Candidate], rig: Rig) -> list[tuple[Schedule, float]]:
        """Time all candidates on normal numbers, then the best of them for longer."""
        made = images(self._call, views.written(right[0].kernel.function), "normal")
        placed = {name: image.place(rig.device) for name, image in made.items()}
        ours = at(self._call, {name: p.array for name, p in placed.items()})
        runners = {str(i): _runner(c.program, rig.device, ours) for i, c in enumerate(right)}
        timer = rig.timer()
        times = self._heat("timing", HEAT, timer, runners)
        best = dict(sorted(runners.items(), key=lambda item: times[item[0]])[:FINALISTS])
        final = self._heat("play-off", PLAY_OFF, timer, best)
        order = sorted(times, key=lambda i: (i not in final, final.get(i, times[i])))
        return [(right[int(i)].schedule, final.get(i, times[i])) for i in order]

    def _heat(
        self, name: str, plan: bench.Burst, timer: bench.Timer, runners: Mapping[str, bench.Launch]
    ) -> dict[str, float]:
        """Return each runner's median time in milliseconds."""
        steps = plan.rounds * len(runners)
        with self._show.stage(name, steps) as advance:
            count = iter(range(steps))
            series = plan(timer, runners, lambda _: advance(next(count)))
            advance(steps)
        return {runner: s.median_ms for runner, s in series.items()}


def _runner(program: Runnable, device: str, call: Call) -> bench.Launch:
    return functools.partial(runnable(program, device).prepare(call), None)


def _counted(schedules: int) -> str:
    return f"{schedules} schedule{'s' * (schedules != 1)}"


def _headline(text: str) -> str:
    return text.partition("\n")[0]

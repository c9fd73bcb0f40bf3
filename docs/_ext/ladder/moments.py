# SPDX-License-Identifier: Apache-2.0
"""From a simulated run of one block to the steps in which a reader goes through it.

An *act* is what one role does between two waits, or the end of a copy or of a product. Acts that
overlap make one step, so between two steps nothing changes: what a step shows is the state at its
end. Nothing here draws or speaks; see :mod:`ladder.words` and :mod:`ladder.stepper`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ring import EMPTY, FULL
from ring import role as kind_of
from simulated import STAGE, bulk, reading
from tilus import timeline
from tilus.ir import Event
from tilus.simulator import Result


@dataclass(frozen=True)
class Act:
    """What ``lane`` did from ``start`` to ``end``, without a wait in between.

    A role comes from ``after`` (a wait or a store) and goes to ``then``; both are None where the
    lane begins and ends. An engine ends its only event, or begins it if ``begins``.
    """

    lane: str
    start: float
    end: float
    events: tuple[Event, ...]
    after: Event | None = None
    then: Event | None = None
    begins: bool = False


@dataclass(frozen=True)
class Stage:
    """A stage at one time. ``state`` is one of :class:`tilus.timeline.Span`, or ``"spent"``: it has
    been read and not yet given back. ``share`` is the part of the tile's bytes that has come."""

    state: str
    tile: int | None = None
    share: float = 0.0


@dataclass(frozen=True)
class Leaving:
    """Results of ``lane`` that leave through the staging buffer: ``wrote`` them, the engine reads
    them (``read``) and writes them to the tile ``output`` of C (``arrived``)."""

    lane: str
    output: int
    wrote: Event
    read: Event
    arrived: Event


@dataclass(frozen=True)
class Staging:
    """The staging buffer of a group: ``"free"``, ``"written"`` by threads, ``"full"``, or
    ``"read"`` by the engine; and how many of its stores have not been read, not arrived."""

    state: str
    output: int | None
    unread: int
    unarrived: int


@dataclass(frozen=True)
class Step:
    """The acts between ``begin`` and ``time``; the state that is shown is that at ``time``."""

    begin: float
    time: float
    acts: tuple[Act, ...]


class Run:
    """One block's run, with what its lanes, barriers and stages are for."""

    def __init__(self, result: Result) -> None:
        self.events, self.states, self.end = result.events, result.barriers, result.cycles
        kinds = {s.array: kind_of(self.states, s.array) for s in self.states}
        self.kinds = dict(sorted(kinds.items(), key=lambda item: item[1] != FULL))
        self._spans = timeline.stages(self.events)

    @cached_property
    def lanes(self) -> tuple[timeline.Lane, ...]:
        """All roles, then the engines."""
        return timeline.lanes(self.events)

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """The lanes of threads that use barriers: who loads, then who computes."""
        users = {e.lane for e in self.events if e.barrier} - set(timeline.ENGINES)
        return tuple(sorted(users, key=lambda lane: (lane not in self.loaders, lane)))

    @cached_property
    def loaders(self) -> frozenset[str]:
        """The roles that ask for copies."""
        return frozenset(e.issuer for e in self.events if e.kind == "copy" and e.issuer)

    @cached_property
    def computers(self) -> frozenset[str]:
        """The roles that ask for products."""
        return frozenset(e.issuer for e in self.products if e.issuer)

    @cached_property
    def products(self) -> tuple[Event, ...]:
        """What the tensor cores computed."""
        return tuple(e for e in self.events if e.kind == "compute")

    @cached_property
    def copies(self) -> tuple[Event, ...]:
        """What the TMA engine brought in."""
        return tuple(e for e in self.events if e.kind == "copy")

    @cached_property
    def outputs(self) -> int:
        """How many tiles of C the block computes; those of which results are staged, at least 1."""
        return 1 + max((x.output for x in self.leaving), default=0)

    def begins_output(self, tile: int) -> bool:
        """Return whether a tile of K is the first of a tile of C, but not of the first one."""
        each = (1 + max(e.tile or 0 for e in self.copies)) // self.outputs
        return tile > 0 and tile % each == 0

    @cached_property
    def leaving(self) -> tuple[Leaving, ...]:
        """All results that leave through a staging buffer, in the order in which they do."""
        reads = [e for e in self.events if e.lane == timeline.ENGINES[2] and e.reads]
        return tuple(self._leaving(read) for read in sorted(reads, key=lambda e: e.start))

    def _leaving(self, read: Event) -> Leaving:
        mine = [e for e in self.events if e.lane == read.issuer and e.start < read.start]
        wrote = max((e for e in mine if e.what == STAGE), key=lambda e: e.start)
        (arrived,) = (
            e
            for e in self.events
            if (e.lane, e.issuer, e.issued) == (read.lane, read.issuer, read.issued) and not e.reads
        )
        output = sum(e.what == "register_tensor" for e in mine) - 1  # an accumulator for each
        return Leaving(wrote.lane, output, wrote, read, arrived)

    def staging(self, lane: str, time: float) -> Staging:
        """Return the state of the staging buffer of a group."""
        mine = [x for x in self.leaving if x.lane == lane and x.wrote.start <= time]
        asked = [x for x in mine if (x.read.issued or 0) <= time]
        unread, unarrived = (
            sum(getattr(x, end).end > time for x in asked) for end in ("read", "arrived")
        )
        if not mine or mine[-1].read.end <= time:
            return Staging("free", None, unread, unarrived)
        last = mine[-1]
        full = "read" if last in asked else "full"
        state = "written" if last.wrote.end > time else full
        return Staging(state, last.output, unread, unarrived)

    @cached_property
    def depth(self) -> int:
        """How many stages the ring has."""
        return 1 + max(span.stage for span in self._spans)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The barriers, as the kernel names them: those of full stages first, in order."""
        ends = {s.label: (self.kinds[s.array] != FULL, s.index) for s in self.states}
        return tuple(sorted(ends, key=lambda label: ends[label]))

    def name(self, label: str) -> str:
        """Return what the pages call a barrier: ``full[1]`` for ``consumer_barriers[1]``."""
        array, bracket, index = label.partition("[")
        return self.kinds[array] + bracket + index

    def completed(self, label: str, phase: int) -> float:
        """Return when a phase of a barrier was over; those before the first are from the start."""
        ends = (s.time for s in self.states if s.label == label and s.phase > phase)
        return 0.0 if phase < 0 else min(ends, default=self.end)

    def blocked(self, wait: Event) -> bool:
        """Return whether a wait had to wait, rather than pass at once."""
        return self.over(wait) > wait.start

    def over(self, wait: Event) -> float:
        """Return when that which a wait waits for was there."""
        if wait.barrier is not None and wait.phase is not None:
            return self.completed(wait.barrier, wait.phase)
        ended = self.awaited(wait)
        return ended.end if ended else 0.0

    def awaited(self, wait: Event) -> Event | None:
        """Return the product or the store whose end let a ``wait_group`` pass: the last that was
        over by then."""
        ends: Iterable[Event] = self.products
        if bulk(wait):
            ends = (x.read if reading(wait) else x.arrived for x in self.leaving)
        mine = (e for e in ends if e.issuer == wait.lane and e.end <= wait.end)
        return max(mine, key=lambda e: e.end, default=None)

    def current(self, lane: str, time: float) -> Event | None:
        """Return what a role is at: its latest instruction, None before the first."""
        mine = [e for e in self.events if e.lane == lane and e.start <= time]
        return max(mine, key=lambda e: e.start, default=None)

    def given_back(self, stage: int, tile: int) -> float:
        """Return when a stage was free again after ``tile``: its barrier says so, or a sync."""
        array = next((a for a, kind in self.kinds.items() if kind == EMPTY), None)
        if array:
            return self.completed(f"{array}[{stage}]", tile // self.depth)
        read = max(e.end for e in self.events if e.tile == tile and e.reads)
        syncs = (e.end for e in self.events if e.what == "sync" and e.start >= read)
        return min(syncs, default=self.end)

    def stages(self, time: float) -> tuple[Stage, ...]:
        """Return the state of each stage."""
        return tuple(self._stage(i, time) for i in range(self.depth))

    def _stage(self, stage: int, time: float) -> Stage:
        mine = [s for s in self._spans if s.stage == stage and s.start <= time]
        span = mine[-1]
        if span.state == "empty":
            tile = mine[-2].tile if len(mine) > 1 else None
            held = tile is not None and self.given_back(stage, tile) > time
            return Stage("spent", tile, 1.0) if held else Stage("empty")
        copies = [e for e in self.copies if e.tile == span.tile]
        come = sum(e.amount for e in copies if e.end <= time)
        return Stage(span.state, span.tile, come / sum(e.amount for e in copies))

    def at_stage(self, lane: str, kind: str, time: float) -> int | None:
        """Return the stage at which a role loads (``"copy"``) or computes (``"compute"``)."""
        mine = [e for e in self.events if e.lane == lane and e.start <= time and e.barrier]
        found = [e for e in mine if self._side(e) == kind]
        return found[-1].stage if found else None

    def _side(self, event: Event) -> str:
        """Say on which side of the ring an event at a barrier stands."""
        full = event.barrier and self.name(event.barrier).startswith(FULL)
        return "compute" if bool(full) == (event.kind == "wait") else "copy"

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The steps, in order."""
        return tuple(_clusters(self._acts()))

    def _acts(self) -> Iterator[Act]:
        for lane in self.lanes:
            mine = [i.event for i in lane.intervals]
            yield from _ends(mine) if lane.name in timeline.ENGINES else _runs(mine, self)
        spans = {(s.stage, s.start) for s in self._spans if s.state == "read"}
        for e in self.products:
            if (e.stage, e.start) in spans:
                yield Act(e.lane, e.start, e.start, (e,), begins=True)


def _ends(events: Iterable[Event]) -> Iterator[Act]:
    yield from (Act(e.lane, e.end, e.end, (e,)) for e in events)


def pauses(event: Event, run: Run) -> bool:
    """Return whether a role stands still at an event: it waits, stores, or meets the others.

    A group that meets by itself is no pause: it goes on as one.
    """
    meets = event.what == "sync" and event.lane not in run.computers - run.loaders
    return event.kind in ("wait", "store") or meets


def _runs(events: Sequence[Event], whole: Run) -> Iterator[Act]:
    """Cut what a role did where it stands still, and where it turns to the load of a tile."""
    run: list[Event] = []
    after: Event | None = None
    for event in events:
        again = event.what == EXPECT and bool(run)
        if again or pauses(event, whole):
            if run or after:
                yield _run(run, after, None if again else event)
            run, after = ([event], None) if again else ([], event)
        else:
            run.append(event)
    yield _run(run, after, None)


EXPECT = "arrive_and_expect_tx"


def _run(run: list[Event], after: Event | None, then: Event | None) -> Act:
    lane = (run or [after or then])[0].lane  # type: ignore[union-attr]
    start = after.end if after else run[0].start
    return Act(lane, start, run[-1].end if run else start, tuple(run), after, then)


def _clusters(acts: Iterable[Act]) -> Iterator[Step]:
    """Join acts that overlap, or that one role begins where another ends."""
    found: list[Step] = []
    for act in sorted(acts, key=lambda a: (a.start, a.end)):
        last = found[-1] if found else None
        if last and (act.start < last.time or _touch(last, act)):
            found[-1] = Step(last.begin, max(last.time, act.end), (*last.acts, act))
        else:
            found.append(Step(act.start, act.end, (act,)))
    yield from found


def _touch(step: Step, act: Act) -> bool:
    return act.start == step.time and all(a.lane != act.lane for a in step.acts)


def moments(run: Run) -> dict[int, str]:
    """Return the steps that a strip shows, by number, each with a title."""
    stages = [run.stages(step.time) for step in run.steps]
    last = max(e.tile or 0 for e in run.copies)
    turned = _first(stages, lambda s: (s[0].tile or 0) >= run.depth)
    come = _first(stages, lambda s: s[last % run.depth] == Stage("full", last, 1.0))
    between = _next_output(run, stages) if run.outputs > 1 else {}
    found = between | {
        _first(stages, lambda s: all(x.state == "filling" for x in s)): "The ring fills",
        _first(stages, lambda s: s[0].state == "read"): "First product",
        turned: "Once around",
        _busiest(stages, turned + 1, come): "In full swing",
        come: "Last load",
        len(stages) - 1: "End",
    }
    return dict(sorted(found.items()))


def _next_output(run: Run, stages: Sequence[tuple[Stage, ...]]) -> dict[int, str]:
    """Return the moments between two tiles of C."""
    loads = _first(stages, lambda s: any(run.begins_output(x.tile or 0) for x in s))
    read = min(x.read.start for x in run.leaving)
    leaves = next(i for i, step in enumerate(run.steps) if step.time >= read)
    return {loads: "The next tile of C", leaves: "Results leave"}


def _first(stages: Sequence[tuple[Stage, ...]], true: Callable[[tuple[Stage, ...]], bool]) -> int:
    return next(i for i, s in enumerate(stages) if true(s))


def _busiest(stages: Sequence[tuple[Stage, ...]], begin: int, end: int) -> int:
    """Return the step, behind the middle of those given, whose stages differ most."""
    middle = (begin + end) // 2
    return max(range(middle, end), key=lambda i: (len({s.state for s in stages[i]}), -i))

# SPDX-License-Identifier: Apache-2.0
"""What a tracing build writes into device memory, and the events that the host makes of it.

A recorded block has a header, then a segment for each of its threads: how many events it had, when
the last of them and the thread itself ended, and the events. A thread that speaks for its group
writes 16 bytes an instruction: which one, the clock of the SM before it and behind the one before,
where its tiles lie.

Threads see their own instructions only. When the TMA engine or the tensor cores did what they were
asked for can be seen from the outside no more exactly than this: later than it was asked for, and
earlier than some thread was past the wait for it. Such a span is an event of a lane of its own,
whose name says so. Where other blocks of a cluster are signalled, nobody here sees what they do:
copies and the phases of arrivals are left out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilus import ir
from tilus.instrument.probe import Task
from tilus.instrument.sites import Runner, Site, label
from tilus.ir import Event, Region
from tilus.options import Block, Recording
from tilus.simulator.barriers import Signal
from tilus.simulator.engines import KINDS
from tilus.timeline import SEEN

INDEX_BIT, PARITY_BIT = 12, 31
MOST_SITES, MOST_INDEX = 1 << INDEX_BIT, 1 << (PARITY_BIT - INDEX_BIT)
WORD = 4
"""Bytes that the place of a tile in its buffer is counted in: 16 bits reach 256 KiB."""
HEADER, EVENT = 32, 16

HELPERS = (
    """\
__device__ __forceinline__ unsigned trace_clock() {
  unsigned cycles;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(cycles) :: "memory");
  return cycles;
}""",
    """\
/* Where this thread writes its events, 0 where its block is not recorded. */
__device__ __forceinline__ unsigned long long trace_begin(unsigned long long buffer, int block,
                                                          unsigned threads, unsigned segment) {
  if (block < 0) return 0;
  buffer += block * (32ull + threads * segment);
  if (threadIdx.x == 0)
    asm volatile("{ .reg .u64 c, t; .reg .u32 s;\\n"
                 "mov.u64 c, %%clock64; mov.u64 t, %%globaltimer; mov.u32 s, %%smid;\\n"
                 "st.global.v2.u64 [%0], {c, t}; st.global.u32 [%0+16], s; }"
                 :: "l"(buffer) : "memory");
  return buffer + 32 + threadIdx.x * segment + 16;
}""",
    """\
/* No branch, since WGMMA wants its warps together, and nothing that waits for a result: an event is
   stored with the end of the one before, since its own is not known for some cycles, and at an
   address computed then. Outputs may share their registers with inputs of the same value, so they
   are written last. `size` counts the bytes of events so far. */
__device__ __forceinline__ void trace_event(unsigned long long trace, unsigned long long &at,
                                            unsigned &size, unsigned &ended, bool writes,
                                            unsigned what, unsigned begun, unsigned where,
                                            unsigned most) {
  asm volatile("{ .reg .pred p, q; .reg .u32 n; .reg .u64 offset;\\n"
               "setp.ne.u32 p, %4, 0;\\n"
               "setp.lt.and.u32 q, %1, %8, p;\\n"
               "@q st.global.v4.u32 [%0], {%5, %6, %2, %7};\\n"
               "mov.u32 n, %1;\\n"
               "@p add.u32 n, n, 16;\\n"
               "cvt.u64.u32 offset, n;\\n"
               "add.u64 %0, %3, offset;\\n"
               "mov.u32 %1, n;\\n"
               "@p mov.u32 %2, %%clock; }"
               : "+l"(at), "+r"(size), "+r"(ended)
               : "l"(trace), "r"((unsigned)writes), "r"(what), "r"(begun), "r"(where), "r"(most)
               : "memory");
}""",
    """\
__device__ __forceinline__ void trace_end(unsigned long long trace, unsigned size, unsigned ended) {
  if (trace)
    asm volatile("{ .reg .u32 c, t; mov.u32 c, %%clock; mov.u32 t, %%globaltimer_lo;\\n"
                 "st.global.v4.u32 [%0+-16], {%1, %2, c, t}; }"
                 :: "l"(trace), "r"(size / 16), "r"(ended) : "memory");
}""",
)
NEVER = 1 << 31
"""The size with which a thread of a block that is not recorded begins: larger than any buffer."""


def numbered(blocks: Sequence[Block]) -> str:
    """Return the number of the running block among ``blocks``, or -1, as a C expression."""
    text = "-1"
    for number, block in reversed(list(enumerate(blocks))):
        here = " && ".join(f"blockIdx.{a} == {i}" for a, i in zip("xyz", block, strict=True))
        text = f"({here}) ? {number} : {text}"
    return text


def segment_bytes(events: int) -> int:
    """Return the size of a thread's segment: its head, the events, one more for the last's end."""
    return EVENT * (2 + events)


def buffer_bytes(recording: Recording, threads: int) -> int:
    """Return the size of the buffer for blocks of ``threads`` threads; it begins as zeros."""
    return len(recording.blocks) * (HEADER + threads * segment_bytes(recording.events))


@dataclass(frozen=True)
class Clock:
    """When and where a block ran: its SM, the nanosecond it began at, and how long it took.

    ``ns`` is None where every thread left the kernel before its end. ``%globaltimer`` moves in
    steps of up to a microsecond.
    """

    block: Block
    sm: int
    began_ns: int
    cycles: float
    ns: float | None


@dataclass(frozen=True)
class Recorded:
    """What a run of a tracing build did: events in cycles since the start of their block.

    ``dropped`` events did not fit into the buffer. ``absent``: blocks asked for that did not run.
    """

    events: tuple[Event, ...]
    dropped: int
    clocks: tuple[Clock, ...]
    absent: tuple[Block, ...] = ()


def recorded(
    sites: Sequence[Site], recording: Recording, threads: int, memory: NDArray[np.uint8]
) -> Recorded:
    """Make events of a buffer that a launch has filled."""
    blocks = memory.reshape(len(recording.blocks), -1)
    events: list[Event] = []
    clocks, absent, dropped = [], [], 0
    for block, raw in zip(recording.blocks, blocks, strict=True):
        history = _History(block, raw, threads)
        if not history.began_ns:
            absent.append(block)
            continue
        events += _Decoder(sites, block).events(history.marks())
        dropped += history.dropped
        clocks.append(history.clock())
    return Recorded(tuple(events), dropped, tuple(clocks), tuple(absent))


@dataclass(frozen=True)
class Mark:
    """One recorded instruction; ``places`` are the bytes at which its tiles begin."""

    thread: int
    site: int
    index: int
    parity: int
    start: float
    end: float
    places: tuple[int, int]


class _History:
    """The memory of one block."""

    def __init__(self, block: Block, raw: NDArray[np.uint8], threads: int) -> None:
        self.block = block
        head, rest = raw[:HEADER], raw[HEADER:]
        self._began, self.began_ns = (int(x) for x in head[:16].view(np.uint64))
        self.sm = int(head[16:20].view(np.uint32)[0])
        words = rest.view(np.uint32).reshape(threads, -1, 4)
        self._heads, self._events = words[:, 0], words[:, 1:]
        most = self._events.shape[1] - 1
        counts = self._heads[:, 0].astype(np.int64)
        self._kept = np.minimum(counts, most)
        self.dropped = int((counts - self._kept).sum())

    def _clocks(self, thread: int) -> NDArray[np.uint32]:
        """Return start and end of each event of a thread."""
        kept = self._kept[thread]
        rows = self._events[thread, : kept + 1]
        ends = rows[1:, 2].copy()
        if kept == self._heads[thread, 0]:  # nobody came behind the last
            ends[-1:] = self._heads[thread, 1]
        return np.stack([rows[:kept, 1], ends], axis=1)

    def _cycles(self, clocks: Any) -> NDArray[np.int64]:
        """Return cycles since the block began, from the low words of the clock in their order.

        The words wrap every two seconds; from one to the next less has passed.
        """
        words = np.asarray(clocks, np.uint32).reshape(-1)
        before = np.concatenate([[np.uint32(self._began & 0xFFFFFFFF)], words[:-1]])
        return np.cumsum((words - before).astype(np.int64))

    def marks(self) -> list[Mark]:
        """Return all events in the order in which their instructions began."""
        found = []
        for thread in map(int, np.flatnonzero(self._kept)):
            rows = self._events[thread, : self._kept[thread]]
            times = self._cycles(self._clocks(thread)).reshape(-1, 2).tolist()
            for (what, _, _, where), (start, end) in zip(rows.tolist(), times, strict=True):
                index = what >> INDEX_BIT & (MOST_INDEX - 1)
                places = (where & 0xFFFF) * WORD, (where >> 16) * WORD
                site, parity = what & (MOST_SITES - 1), what >> PARITY_BIT
                mark = Mark(thread, site, index, parity, float(start), float(end), places)
                found.append(mark)
        return sorted(found, key=lambda mark: mark.start)  # stable: a thread's order stays

    def clock(self) -> Clock:
        """Return when the block ran, by the threads that came to its end."""
        ends = [(self._end(int(thread)), thread) for thread in np.flatnonzero(self._heads[:, 3])]
        if not ends:
            return Clock(self.block, self.sm, self.began_ns, float("nan"), None)
        cycles, last = max(ends)
        ns = (int(self._heads[last, 3]) - self.began_ns) % (1 << 32)
        return Clock(self.block, self.sm, self.began_ns, float(cycles), float(ns))

    def _end(self, thread: int) -> int:
        """Return the cycles at which a thread came to the end of the kernel."""
        clocks = np.append(self._clocks(thread), self._heads[thread, 2])
        return int(self._cycles(clocks)[-1])


@dataclass
class _Barrier:
    """What has been seen at one mbarrier so far; ``per_phase`` bytes are announced for each
    phase."""

    arrivals: int = 0
    copied: float = 0
    per_phase: float = 0
    passed: dict[int, float] = field(default_factory=dict)
    waited: dict[str, int] = field(default_factory=dict)


@dataclass
class _Asked:
    """A task of an engine, with the event it becomes when somebody has waited for it."""

    task: Task
    event: Event


class _Decoder:
    """Replays one block: in which phase each event is, and what each wait waited for."""

    def __init__(self, sites: Sequence[Site], block: Block) -> None:
        self._sites, self._block = sites, block
        self._alone = not any(site.facts.remote for site in sites)
        self._barriers: defaultdict[str, _Barrier] = defaultdict(_Barrier)
        self._open: defaultdict[tuple[str, str], list[_Asked]] = defaultdict(list)
        self._groups: defaultdict[tuple[str, str], list[list[_Asked]]] = defaultdict(list)
        self._fills: list[Event] = []
        self._latest: dict[str, Event] = {}
        self._copies: list[Event] = []
        self._events: list[Event] = []

    def events(self, marks: Sequence[Mark]) -> list[Event]:
        """Return an event for each mark, and one for each task of an engine that was waited for."""
        self._announce(marks)
        for mark in marks:
            self._play(mark)
        for copy in self._copies:
            seen = self._barriers[copy.barrier or ""].passed.get(copy.phase or 0)
            if seen is not None:
                self._events.append(replace(copy, end=max(seen, copy.start)))
        return self._events

    def _announce(self, marks: Sequence[Mark]) -> None:
        """Find out how many bytes each barrier expects in a phase."""
        arrivals: defaultdict[str, int] = defaultdict(int)
        for mark in marks:
            facts = self._sites[mark.site].facts
            if facts.barrier and facts.arrivals:
                name = label(facts.barrier, mark.index)
                if arrivals[name] < facts.barrier.array.counts[mark.index]:  # of the first phase
                    announced = math.nan if facts.announced is None else facts.announced
                    self._barriers[name].per_phase += announced
                arrivals[name] += facts.arrivals

    def _play(self, mark: Mark) -> None:
        site = self._sites[mark.site]
        runner, facts = site.runner(mark.thread), site.facts
        part = self._signal(mark, site, runner) if facts.barrier and not facts.tasks else {}
        places = dict(zip(facts.tiles, mark.places, strict=False))
        reads, writes = _regions(facts.reads, places), _regions(facts.writes, places)
        part = part or self._fill(runner.lane.role, reads, facts.kind == "compute")
        event = Event(
            lane=runner.lane.role,
            kind=facts.kind,
            start=mark.start,
            end=mark.end,
            what=site.op,
            location=runner.location,
            block=self._block,
            amount=facts.amount,
            reads=reads,
            writes=writes,
            **part,
        )
        self._events.append(event)
        for task in facts.tasks:
            self._ask(task, mark, site, event, places)
        self._group(event, site)

    def _signal(self, mark: Mark, site: Site, runner: Runner) -> dict[str, Any]:
        """Return the barrier of a wait or an arrival, and the phase it belongs to."""
        barrier, facts = site.barrier, site.facts
        assert barrier is not None
        name = label(barrier, mark.index)
        state = self._barriers[name]
        if facts.arrivals and not self._alone:
            return {"barrier": name, "stage": mark.index}
        if facts.arrivals:
            phase = state.arrivals // barrier.array.counts[mark.index]
            state.arrivals += facts.arrivals
        else:
            # From one wait to the next the parity stays (the same phase) or flips (the next one).
            before = state.waited.get(runner.lane.role, -1)
            phase = before + (before % 2 != mark.parity)
            state.waited[runner.lane.role] = phase
            state.passed[phase] = min(mark.end, state.passed.get(phase, mark.end))
        return _part(Signal(name, mark.index, phase, len(barrier.array)))

    def _ask(
        self, task: Task, mark: Mark, site: Site, event: Event, places: dict[ir.SharedTensor, int]
    ) -> None:
        """Note what an engine is asked for."""
        reads, writes = _regions(task.reads, places), _regions(task.writes, places)
        asked = replace(
            event,
            lane=SEEN[task.engine],
            kind=KINDS[task.engine],
            what=task.what,
            issued=event.start,
            issuer=event.lane,
            amount=task.amount,
            reads=reads,
            writes=writes,
            **self._fill(event.lane, reads),
        )
        if site.barrier is None:
            self._open[event.lane, task.engine].append(_Asked(task, asked))
        else:
            self._copy(asked, site.barrier, mark.index)

    def _copy(self, asked: Event, barrier: ir.Barrier, index: int) -> None:
        """Note a copy whose bytes a barrier counts."""
        name = label(barrier, index)
        state = self._barriers[name]
        if not self._alone or not state.per_phase > 0:  # nobody knows which phase it is
            return
        phase = int(state.copied // state.per_phase)
        state.copied += asked.amount
        copy = replace(asked, **_part(Signal(name, index, phase, len(barrier.array))))
        self._copies.append(copy)
        for region in copy.writes:
            self._fills = [f for f in self._fills if not any(map(region.overlaps, f.writes))]
        self._fills.append(copy)

    def _group(self, event: Event, site: Site) -> None:
        """Close tasks into a commit group, or let the ones waited for have ended with ``event``."""
        facts = site.facts
        if facts.commits:
            queue = event.lane, facts.commits
            self._groups[queue].append(self._open.pop(queue, []))
        if facts.awaits:
            engine, pending = facts.awaits
            queue = event.lane, engine
            groups = self._groups[queue]
            cut = max(0, len(groups) - pending)
            done = [asked.event for group in groups[:cut] for asked in group]
            self._events += [replace(e, end=max(event.end, e.start)) for e in done]
            self._groups[queue] = groups[cut:]

    def _fill(self, lane: str, reads: Sequence[Region], computes: bool = False) -> dict[str, Any]:
        """Return stage and tile of what is read: the copy that last came there.

        What a warp multiplies in registers is what it has read last.
        """
        found = [f for f in self._fills for r in reads if any(map(r.overlaps, f.writes))]
        if found:
            self._latest[lane] = found[-1]
        elif not computes:
            return {}
        fill = self._latest.get(lane)
        return {"stage": fill.stage, "tile": fill.tile} if fill else {}


def _part(signal: Signal) -> dict[str, Any]:
    part = {"barrier": signal.label, "stage": signal.index, "phase": signal.phase}
    return part | {"tile": signal.tile}


def _regions(
    tensors: Sequence[ir.SharedTensor], places: dict[ir.SharedTensor, int]
) -> tuple[Region, ...]:
    """Return the parts of shared memory whose place was recorded."""
    there = ((t, places[t]) for t in tensors if t in places)
    return tuple(Region(t.name, at, at + t.nbytes) for t, at in there)

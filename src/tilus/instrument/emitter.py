# SPDX-License-Identifier: Apache-2.0
"""The emitter of instrumented builds: the same code, and around it what observes it."""

from __future__ import annotations

from collections.abc import Sequence

from tilus.dtypes import uint32
from tilus.emitter import Emitter
from tilus.errors import CompileError, Location
from tilus.instrument import record, watchdog
from tilus.instrument.probe import ask
from tilus.instrument.sites import Site
from tilus.ir import (
    Barrier,
    ExprLike,
    Group,
    Instruction,
    Kernel,
    Return,
    SharedTensor,
    Stmt,
    Threads,
    Twins,
    as_expr,
    cast,
    walk,
)
from tilus.options import Instruments

OURS = """
hangs trace trace_at trace_buffer trace_size trace_ended trace_begin trace_clock trace_event
trace_end global_timer hang trap hanging_block HANG_NS LINGER_NS mbarrier_try_wait"""
"""Names that a kernel's variables must leave alone here."""


class Instrumented(Emitter):
    """The text of one kernel with its instruments; ``sites`` says who reports by which number.

    Its entry point takes two more addresses behind the function's parameters, each where asked for:
    where the watchdog reports, and where events are recorded.
    """

    def __init__(self, kernel: Kernel, instruments: Instruments) -> None:
        super().__init__(kernel)
        self._taken |= set(OURS.split())
        self.sites: list[Site] = []
        self._seconds, self._recording = instruments.watchdog, instruments.trace
        self._lane: Threads = self.threads
        self._locations: dict[Stmt, tuple[Location, ...]] = {}
        self._current: tuple[Instruction, int] | None = None
        self._parity: ExprLike = 0

    def _parameters(self) -> list[str]:
        more = []
        if self._seconds is not None:
            more.append("unsigned *hangs")
        if self._recording is not None:
            more.append("unsigned long long trace_buffer")
        return super()._parameters() + more

    def _start(self) -> list[str]:
        if self._recording is None:
            return []
        block = record.numbered(self._recording.blocks)
        size = record.segment_bytes(self._recording.events)
        begin = f"trace_begin(trace_buffer, {block}, {self.function.threads.count}, {size})"
        return [
            f"  const unsigned long long trace = {begin};",
            "  unsigned long long trace_at = trace;",
            f"  unsigned trace_size = trace ? 0 : {record.NEVER:#x}, trace_ended = 0;",
        ]

    def _body(self) -> None:
        if self._recording is not None:
            for helper in record.HELPERS:
                self.helper(helper)
        super()._body()
        self._end()

    def _end(self) -> None:
        if self._recording is not None:
            self.line("trace_end(trace, trace_size, trace_ended);")

    def _statement(self, stmt: Stmt) -> None:
        if isinstance(stmt, Return):
            self._end()
        super()._statement(stmt)

    def _group(self, stmt: Group, chained: bool) -> None:
        around = self._lane
        if stmt.threads.count >= 32:  # parts of a warp stay in the lane around them
            self._lane = stmt.threads
        super()._group(stmt, chained)
        self._lane = around

    def _member(self, twins: Twins) -> None:
        super()._member(twins)
        own = zip(*(walk(group.body) for group in twins.groups), strict=True)
        for stmt, theirs in zip(walk(twins.body), own, strict=True):
            self._locations[stmt] = tuple(s.location for s in theirs)

    def _site(self) -> int:
        """Return the number of the current instruction, which gets one when it first asks."""
        assert self._current is not None
        stmt, number = self._current
        if number < 0:
            number = len(self.sites)
            self._current = stmt, number
            twin = self._shared_by.groups[0].threads if self._shared_by else None
            places = self._locations.get(stmt, (stmt.location,))
            name = type(stmt).__name__
            self.sites.append(Site(name, ask(stmt), self.threads, self._lane, twin, places))
        return number

    def watch(self, barrier: Barrier, parity: ExprLike) -> Sequence[str]:
        self._parity = parity
        if self._seconds is None:
            return ()
        for helper in watchdog.helpers(self._seconds, self.function.warps):
            self.helper(helper)
        return self.expr(barrier.index), str(self._site()), "hangs"

    def _instruction(self, stmt: Instruction) -> None:
        self._current, self._parity, at = (stmt, -1), 0, len(self._lines)
        super()._instruction(stmt)
        if self._recording is not None and len(self._lines) > at:
            self._record(at, stmt, self._recording.events)

    def _record(self, at: int, stmt: Instruction, events: int) -> None:
        """Put the current instruction, whose code begins at line ``at``, between two looks at the
        clock."""
        number, begun = self._site(), self.fresh("begun")
        if number >= record.MOST_SITES:
            most = f"at most {record.MOST_SITES} instructions to be recorded"
            raise CompileError(f"{self.function.name}: a kernel must have {most}")
        self._lines.insert(at, "  " * self._depth + f"const unsigned {begun} = trace_clock();")
        writes = "true" if stmt.threads.count == 1 else f"{self.thread()} == 0"
        what, where = self._what(number), self._where(self.sites[number].facts.tiles)
        words = f"{writes}, {what}, {begun}, {where}, {record.EVENT * (events + 1)}"
        self.line(f"trace_event(trace, trace_at, trace_size, trace_ended, {words});")

    def _what(self, number: int) -> str:
        """Return the word that holds site, index of the barrier and parity."""
        barrier, text = self.sites[number].barrier, f"{number}u"
        if barrier is None:
            return text
        index, parity = (self.expr(cast(x, uint32)) for x in (barrier.index, self._parity))
        text += f" | {index} << {record.INDEX_BIT}"
        return text if parity == "0u" else f"{text} | {parity} << {record.PARITY_BIT}"

    def _where(self, tiles: Sequence[SharedTensor]) -> str:
        """Return the word that holds where two tiles begin in their buffers."""
        low, high = (*map(self._words, tiles[:2]), "0u", "0u")[:2]
        return low if high == "0u" else f"{low} | {high} << 16"

    def _words(self, tensor: SharedTensor) -> str:
        nbytes = as_expr(tensor.offset) * tensor.dtype.nbytes
        return self.expr(cast(nbytes // record.WORD, uint32))

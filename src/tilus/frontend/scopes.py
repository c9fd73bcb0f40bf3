# SPDX-License-Identifier: Apache-2.0
"""What scripts write for threads, loops and the launch.

``self.thread_group`` and its shorthands, ``self.range``, ``self.attrs``, ``self.blockIdx``.
Thread and warp numbers count from the first thread of the surrounding group, so that a helper
method works in any group.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tilus import ir
from tilus.errors import LanguageError
from tilus.ir import describe

WARP = 32
WARP_GROUP = 128
MAX_WARPS = 32
MAX_CLUSTER = 8  # CUDA C++ programming guide, "Thread Block Clusters": portable; 16 is not


def require(condition: bool, what: str, rule: str, value: object) -> None:
    """Raise a :class:`LanguageError` unless ``condition`` holds; the tracer adds the place."""
    if not condition:
        raise LanguageError(f"{what} must be {rule}, got {value}")


def integer(what: str, value: object, rule: str = "a compile-time integer") -> int:
    """Return ``value`` if it is an integer known while the kernel is built."""
    require(isinstance(value, int) and not isinstance(value, bool), what, rule, describe(value))
    assert isinstance(value, int)
    return value


@dataclass(frozen=True)
class Region:
    """The threads that run a piece of code; hardware elects one of ``elected_from``, where set."""

    threads: ir.Threads
    elected_from: ir.Threads | None = None
    registers: int | None = None

    @property
    def reach(self) -> ir.Threads:
        """All threads that may be among the running ones."""
        return self.elected_from or self.threads

    def overlaps(self, other: Region) -> bool:
        """Return whether one thread may be in both regions."""
        return self.reach.overlaps(other.reach)

    def contains(self, other: Region) -> bool:
        """Return whether every thread of ``other`` is surely in this region."""
        if self.elected_from:
            return False
        return self.threads.begin <= other.reach.begin and other.reach.end <= self.threads.end


class Scope:
    """What may stand behind ``with``: it narrows the threads that run the block."""

    def narrow(self, current: ir.Threads) -> Region:
        """Return the threads that run the block, of the ``current`` ones."""
        raise NotImplementedError


@dataclass(frozen=True)
class thread_group(Scope):
    """Let only ``num_threads`` threads from ``thread_begin`` run the block.

    Groups of one block run concurrently.
    ``thread_begin`` and ``num_threads`` are multiples of 32 (or ``num_threads`` is 1).
    ``registers`` sets the group's register budget (``setmaxnreg``): a multiple of 8 from 24 to 256,
    for whole aligned warp groups.
    """

    thread_begin: int
    num_threads: int
    registers: int | None = None

    def narrow(self, current: ir.Threads) -> Region:
        begin = integer("thread_begin", self.thread_begin)
        count = integer("num_threads", self.num_threads)
        require(
            count == 1 or (count % WARP == 0 and count > 0),
            "num_threads",
            "a multiple of 32, or 1",
            count,
        )
        require(count == 1 or begin % WARP == 0, "thread_begin", "a multiple of 32", begin)
        inside = begin >= 0 and begin + count <= current.count
        rule = f"among the {current.count} threads of the surrounding group"
        require(inside, "the thread group", rule, f"threads {begin} to {begin + count - 1}")
        threads = ir.Threads(current.begin + begin, count)
        return Region(threads, registers=budget(self.registers, threads))


def budget(registers: object, threads: ir.Threads) -> int | None:
    """Check a register budget for ``setmaxnreg``."""
    if registers is None:
        return None
    n = integer("registers", registers)
    require(24 <= n <= 256 and n % 8 == 0, "registers", "a multiple of 8 from 24 to 256", n)
    whole = threads.begin % WARP_GROUP == 0 and threads.count % WARP_GROUP == 0
    rule = "whole warp groups (128 threads, beginning at a multiple of 128) to set registers"
    require(whole, "the thread group", rule, threads.role)
    return n


@dataclass(frozen=True)
class warp_group(Scope):
    """Let only ``num_warps`` warps from ``warp_begin`` run the block."""

    warp_begin: int
    num_warps: int
    registers: int | None = None

    def narrow(self, current: ir.Threads) -> Region:
        begin = integer("warp_begin", self.warp_begin)
        count = integer("num_warps", self.num_warps)
        require(count > 0, "num_warps", "at least 1", count)
        return thread_group(WARP * begin, WARP * count, self.registers).narrow(current)


@dataclass(frozen=True)
class single_warp(Scope):
    """Let only warp number ``warp`` of the current group run the block."""

    warp: int = 0

    def narrow(self, current: ir.Threads) -> Region:
        return warp_group(integer("warp", self.warp), 1).narrow(current)


@dataclass(frozen=True)
class single_thread(Scope):
    """Let only thread ``thread`` of the current group run the block; hardware elects one for -1."""

    thread: int = -1

    def narrow(self, current: ir.Threads) -> Region:
        if integer("thread", self.thread) != -1:
            return thread_group(self.thread, 1).narrow(current)
        return Region(ir.Threads(current.begin, 1), elected_from=current)


class Range:
    """``self.range([start,] stop[, step], unroll=n)``: a run-time loop.

    ``unroll``: how many turns are laid out one after another, ``"all"`` of them or by default one.
    """

    def __init__(self, *bounds: ir.ExprLike, unroll: int | Literal["all"] | None = None) -> None:
        require(
            1 <= len(bounds) <= 3,
            "range",
            "called with stop, start and stop, or start, stop and step",
            bounds,
        )
        start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        self.start, self.stop, self.step = (loop_bound(x) for x in (start, stop, step))
        require(
            not (isinstance(step, int) and step == 0), "the step of a range", "other than 0", step
        )
        number = type(unroll) is int and unroll >= 1
        good = number or unroll is None or (isinstance(unroll, str) and unroll == "all")
        require(good, "unroll", 'a positive compile-time integer or "all"', describe(unroll))
        self.unroll = 0 if isinstance(unroll, str) else unroll


MOST_TURNS = 1 << 16
"""Numbers of a ``range`` that Python counts through; each turn becomes code of its own."""
INTEGERS = "integers (write a // b, or int(x))"


def counted(*bounds: Any) -> Range | range:
    """Return what ``range(...)`` is in a kernel: Python's where all of it is known, else a loop."""
    if any(isinstance(x, ir.Expr) for x in bounds):
        return Range(*bounds)
    for x in bounds:
        require(hasattr(x, "__index__"), "the bounds of a range", INTEGERS, describe(x))
    turns = range(*bounds)
    rule = f"over at most {MOST_TURNS} numbers, as each is traced; write self.range(...)"
    require(not turns[MOST_TURNS:], "a range that is known", rule, turns)
    return turns


def loop_bound(value: object, what: str = "the bounds of a range") -> ir.Expr:
    """Return a bound of a loop as an integer expression."""
    good = value.dtype.is_integer if isinstance(value, ir.Expr) else type(value) is int
    require(good, what, INTEGERS, describe(value))
    return ir.as_expr(value)  # type: ignore[arg-type]


@dataclass
class Attributes:
    """``self.attrs``: the shape of the launch, assigned once each in ``__call__``.

    ``blocks``: int or up to three, from compile-time values and kernel parameters. ``warps``: a
    compile-time int, 1 to 32. ``cluster_blocks``: compile-time, like ``blocks``, at most 8 blocks
    in all: what every GPU of the generation runs.
    """

    blocks: tuple[ir.Expr, ir.Expr, ir.Expr] | None = None
    warps: int | None = None
    cluster_blocks: tuple[int, int, int] = (1, 1, 1)
    parameters: Mapping[str, ir.Var] = field(default_factory=dict, repr=False)

    def assign(self, name: str, value: Any) -> None:
        """Check and take ``self.attrs.<name> = value``."""
        match name:
            case "blocks":
                self.blocks = triple("blocks", value, self._block)
            case "warps":
                n = integer("warps", value)
                require(1 <= n <= MAX_WARPS, "warps", f"from 1 to {MAX_WARPS}", n)
                self.warps = n
            case "cluster_blocks":
                self.cluster_blocks = triple("cluster_blocks", value, positive)
                n = math.prod(self.cluster_blocks)
                require(n <= MAX_CLUSTER, "cluster_blocks", f"at most {MAX_CLUSTER} in all", n)
            case _:
                require(
                    False, "an attribute of self.attrs", "blocks, warps or cluster_blocks", name
                )

    def _block(self, value: Any) -> ir.Expr:
        x = loop_bound(value, "blocks")
        rule = (
            "made from compile-time values and kernel parameters, since the host computes the grid"
        )
        require(
            ir.host_known(x, set(self.parameters.values())),
            "blocks",
            rule,
            "another run-time value",
        )
        return x


def positive(value: Any) -> int:
    """Return a compile-time integer of at least 1."""
    n = integer("cluster_blocks", value)
    require(n >= 1, "cluster_blocks", "at least 1", n)
    return n


def triple(what: str, value: Any, convert: Any) -> tuple[Any, Any, Any]:
    """Return one to three values as three, the missing ones 1."""
    given = tuple(value) if isinstance(value, tuple | list) else (value,)
    require(1 <= len(given) <= 3, what, "one to three integers", f"{len(given)}")
    x, y, z = (convert(v) for v in (*given, 1, 1)[:3])
    return x, y, z

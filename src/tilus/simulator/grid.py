# SPDX-License-Identifier: Apache-2.0
"""Running a kernel: arguments in, blocks of the grid one after another, a result out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilus import ir
from tilus.errors import ArgumentError, SimulationError
from tilus.ir import Event
from tilus.simulator.acting import Cluster
from tilus.simulator.group import Block, ThreadGroup
from tilus.simulator.log import Log
from tilus.simulator.machine import BlockMachine
from tilus.simulator.memory import GlobalMemory, written_units
from tilus.simulator.schedule import SCHEDULES, Schedule
from tilus.simulator.scheduler import Scheduler
from tilus.simulator.trace import Trace

MAX_STEPS = 1_000_000

Argument = int | float | bool | NDArray[Any]


@dataclass(frozen=True)
class Result:
    """What a simulation found: cycles of each block; events and barrier states where asked for.

    Cycles are estimates of the ``timed`` schedule; under the others they only order events.
    """

    blocks: Mapping[Block, float]
    events: tuple[Event, ...]
    barriers: tuple[ir.BarrierState, ...] = ()

    @property
    def cycles(self) -> float:
        """Cycles of the slowest block; 0 for an empty grid."""
        return max(self.blocks.values(), default=0.0)


def run(
    kernel: ir.Kernel,
    arguments: Mapping[str, Argument],
    *,
    schedule: str | Callable[[Random], Schedule] = "timed",
    seed: int = 0,
    blocks: Iterable[Block] | None = None,
    trace: bool = False,
    max_steps: int = MAX_STEPS,
) -> Result:
    """Execute ``kernel`` on NumPy arrays, block after block, and change the arrays it writes.

    ``arguments`` holds a number for every scalar parameter and, for every pointer, a
    one-dimensional contiguous array that begins where the pointer points. ``schedule`` is
    ``"timed"``, ``"early"``, ``"late"`` or ``"random"`` (or makes a :class:`Schedule` from a random
    generator); one ``seed`` gives one result. ``blocks`` selects blocks of the grid. Raises
    :class:`SimulationError` for a deadlock, a broken protocol, more than ``max_steps`` statements
    in one block, or what is not modelled; :class:`ArgumentError` for arguments that do not fit.
    """
    launch, make = Launch.of(kernel, arguments, max_steps), named(schedule)
    cycles: dict[Block, float] = {}
    events: list[Event] = []
    barriers: list[ir.BarrierState] = []
    for members in launch.clusters(blocks):
        orders = [make(Random(f"{seed}/{block}")) for block in members]
        try:
            cluster = launch.execute(members, orders, trace=trace)
        except SimulationError as error:
            raise _named(error, schedule, seed) from None
        for machine in cluster.machines:
            cycles[machine.block] = machine.cycles
            events += machine.trace.events
            barriers += machine.trace.barriers
    return Result(cycles, tuple(events), tuple(barriers))


def _named(error: SimulationError, schedule: object, seed: int) -> SimulationError:
    """Return the verdict with the schedule and the seed that show it again."""
    facts = error.facts | {"schedule": schedule, "seed": seed}
    told = str(error).removeprefix(f"{error.verdict}: ")
    told += f"\n  (schedule random, seed {seed})" if schedule == "random" else ""
    return SimulationError(error.verdict, told, **facts)


@dataclass(frozen=True, eq=False)
class Launch:
    """A kernel with its arguments."""

    kernel: ir.Kernel
    scalars: Mapping[ir.Var, ir.Scalar]
    memory: GlobalMemory
    max_steps: int = MAX_STEPS

    @classmethod
    def of(
        cls, kernel: ir.Kernel, arguments: Mapping[str, Argument], max_steps: int = MAX_STEPS
    ) -> Launch:
        """Check the arguments against the parameters and split them into scalars and memory."""
        scalars: dict[ir.Var, ir.Scalar] = {}
        arrays: dict[ir.Var, NDArray[Any]] = {}
        for p in kernel.function.params:
            if p.name not in arguments:
                raise ArgumentError(p.name, "given", "nothing", "Pass it in `arguments`.")
            value = arguments[p.name]
            if p.pointer:
                arrays[p.var] = _array(p, value)
            else:
                scalars[p.var] = _scalar(p, value)
        return cls(kernel, scalars, GlobalMemory(arrays, written_units(kernel.function)), max_steps)

    @property
    def grid(self) -> Block:
        """The number of blocks along x, y and z."""
        return self.kernel.function.grid(self.scalars)  # type: ignore[arg-type]

    def clusters(self, blocks: Iterable[Block] | None = None) -> list[list[Block]]:
        """Return the blocks of each cluster by their rank; a selected block brings its cluster."""
        size = self.kernel.function.cluster
        found: dict[Block, list[Block]] = {}
        for block in _selected(self.grid, blocks):
            x, y, z = (b // c * c for b, c in zip(block, size, strict=True))
            inside = product(*(range(n) for n in reversed(size)))
            found[x, y, z] = [(x + i, y + j, z + k) for k, j, i in inside]
        return list(found.values())

    def execute(
        self,
        members: Sequence[Block],
        schedules: Sequence[Schedule],
        *,
        trace: bool = False,
        log: Log | None = None,
    ) -> Cluster:
        """Run the blocks of a cluster, each with its schedule; the first one's picks the moves."""
        cluster = Cluster(self.kernel, self.memory, len(members), log)
        for block, schedule in zip(members, schedules, strict=True):
            BlockMachine(cluster, schedule, block, Trace(block, trace))
        scheduler = Scheduler(cluster, schedules[0], self.max_steps)
        for machine in cluster.machines:
            scheduler.spawn(self._root(machine), self.kernel.function.body)
        scheduler.run()
        return cluster

    def _root(self, machine: BlockMachine) -> ThreadGroup:
        """Return all threads of a block, before its first statement."""
        function = self.kernel.function
        root = ThreadGroup(function.threads, function.location, None)
        root.machine, root.key = machine, (machine.rank,)
        root.scalars = dict(self.scalars)
        root.builtins = _builtins(function, machine, self.grid)
        return root


def _array(param: ir.Param, value: Argument) -> NDArray[Any]:
    rule = f"a one-dimensional contiguous NumPy array of {param.dtype}"
    if not isinstance(value, np.ndarray):
        raise ArgumentError(param.name, rule, type(value).__name__, "Pass an array.")
    if value.ndim != 1 or value.dtype != param.dtype.numpy or not value.flags.c_contiguous:
        found = f"{value.dtype} of shape {value.shape}, strides {value.strides}"
        raise ArgumentError(param.name, rule, found, "Pass `array.reshape(-1)` of its base.")
    return value


def _scalar(param: ir.Param, value: Argument) -> ir.Scalar:
    rule = f"a value of {param.dtype}"
    if isinstance(value, np.ndarray):
        raise ArgumentError(param.name, rule, "an array", "Pass a number.")
    if not param.dtype.is_float and ir.wrap(value, param.dtype) != value:
        raise ArgumentError(param.name, rule, value, "Pass a value that fits.")
    return ir.wrap(value, param.dtype)


def _selected(grid: Block, blocks: Iterable[Block] | None) -> list[Block]:
    """Return the blocks to run, x fastest where all of them do."""
    if blocks is None:
        return [(x, y, z) for z, y, x in product(*(range(n) for n in reversed(grid)))]
    chosen = list(blocks)
    for block in chosen:
        if not all(0 <= i < n for i, n in zip(block, grid, strict=True)):
            raise ArgumentError("blocks", f"inside the grid {grid}", block, "Choose other blocks.")
    return chosen


def _builtins(function: ir.Function, machine: BlockMachine, grid: Block) -> dict[str, ir.Scalar]:
    names: dict[str, ir.Scalar] = {"clusterRank": machine.rank}
    for axis, i, n, c in zip("xyz", machine.block, grid, function.cluster, strict=True):
        names[f"blockIdx.{axis}"], names[f"gridDim.{axis}"] = i, n
        names[f"clusterBlockIdx.{axis}"], names[f"clusterDim.{axis}"] = i % c, c
    return names


def named(choice: str | Callable[[Random], Schedule]) -> Callable[[Random], Schedule]:
    """Return what makes a schedule of a random generator."""
    if not isinstance(choice, str):
        return choice
    if choice not in SCHEDULES:
        raise ArgumentError(
            "schedule", "one of " + ", ".join(SCHEDULES), repr(choice), "Choose one."
        )
    return SCHEDULES[choice]

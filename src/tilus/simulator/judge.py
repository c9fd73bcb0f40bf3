# SPDX-License-Identifier: Apache-2.0
"""Judging a kernel: many schedules, and a proof that no other order of moves matters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tilus import ir
from tilus.errors import SimulationError
from tilus.simulator.explore import Choices, Chosen, Exploration, explore
from tilus.simulator.grid import Argument, Launch, run
from tilus.simulator.group import Block
from tilus.simulator.log import Log

FIXED = ("late", "timed", "early")


@dataclass(frozen=True)
class Judgement:
    """What was found about a kernel with these arguments.

    ``error`` is the verdict, None where there is none. ``schedule`` and ``seed`` show it again
    under :func:`tilus.simulator.run`; for one that exploring found, ``schedule`` is ``"explored"``
    and ``choices`` are the moves that lead to it, in the cluster of ``block``. ``proved``: no order
    of moves has a verdict; else only ``executions`` of them were tried.
    """

    error: SimulationError | None
    executions: int
    proved: bool = False
    schedule: str | None = None
    seed: int | None = None
    choices: Choices = ()
    block: Block | None = None

    @property
    def verdict(self) -> str | None:
        """``"deadlock"``, ``"race"``, ``"protocol"`` or ``"not modelled"``; None for none."""
        return self.error.verdict if self.error else None

    @property
    def message(self) -> str:
        """What the verdict says, or how sure its absence is."""
        if self.error:
            return str(self.error)
        count = f"{self.executions} execution{'s' if self.executions > 1 else ''}"
        if self.proved:
            return f"proved: no order of moves has a verdict ({count})"
        return f"not proved: no verdict in {count}"

    @property
    def facts(self) -> dict[str, object]:
        """What the verdict's message says, in a form that tests and pages can use."""
        return self.error.facts if self.error else {}


def judge(
    kernel: ir.Kernel, arguments: Mapping[str, Argument], *, seeds: int = 20, cap: int = 200
) -> Judgement:
    """Judge ``kernel`` on copies of ``arguments``, which are as for :func:`tilus.simulator.run`.

    Runs it under the schedules ``late``, ``timed`` and ``early``, explores the orders of moves of
    each cluster with at most ``cap`` executions, and, where that is no proof, under ``random`` with
    the ``seeds`` first seeds. The first verdict ends it.
    """
    tries = [(name, 0) for name in FIXED]
    count, found = _try(kernel, arguments, tries, 0)
    if found:
        return found
    exploration, block = _explore(kernel, arguments, cap)
    count += exploration.executions
    if exploration.error:
        choices = exploration.choices
        return Judgement(exploration.error, count, False, "explored", None, choices, block)
    if exploration.proved:
        return Judgement(None, count, True)
    count, found = _try(kernel, arguments, [("random", seed) for seed in range(seeds)], count)
    return found or Judgement(None, count)


def _try(
    kernel: ir.Kernel, arguments: Mapping[str, Argument], tries: list[tuple[str, int]], count: int
) -> tuple[int, Judgement | None]:
    """Run the kernel under schedules with their seeds; return how often it ran in all, and what
    the first verdict makes of it."""
    for schedule, seed in tries:
        count += 1
        try:
            run(kernel, _copies(arguments), schedule=schedule, seed=seed)
        except SimulationError as error:
            return count, Judgement(error, count, False, schedule, seed)
    return count, None


def _explore(
    kernel: ir.Kernel, arguments: Mapping[str, Argument], cap: int
) -> tuple[Exploration, Block | None]:
    """Explore cluster after cluster until one has a verdict or the cap is hit."""
    launch, count, exhausted = Launch.of(kernel, _copies(arguments)), 0, True
    for members in launch.clusters():

        def execute(schedule: Chosen, log: Log, members: list[Block] = members) -> None:
            fresh = replace(launch, memory=launch.memory.fresh())
            fresh.execute(members, [schedule] * len(members), log=log)

        found = explore(execute, max(1, cap - count))
        count, exhausted = count + found.executions, exhausted and found.exhausted
        if found.error:
            return Exploration(count, found.error, found.choices), members[0]
    return Exploration(count, exhausted=exhausted), None


def _copies(arguments: Mapping[str, Argument]) -> dict[str, Argument]:
    return {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in arguments.items()}

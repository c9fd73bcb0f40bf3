# SPDX-License-Identifier: Apache-2.0
"""The simulator: executes a kernel's IR on the CPU, thread groups and engines concurrently.

One thread block, or one cluster of them, at a time is simulated as discrete events. Each thread
group is a coroutine with a clock of its own; TMA, the tensor cores and bulk stores are engines
whose effects land when a :class:`Schedule` says. What it computes is exact in the order the
schedule chose; what it times is a model (:class:`Costs`). What is not ordered, whatever the
schedule, is a race; :func:`judge` looks for other orders in which a kernel fails.
"""

from tilus.ir import Event
from tilus.simulator.grid import Result, run
from tilus.simulator.judge import Judgement, judge
from tilus.simulator.schedule import SCHEDULES, Costs, Early, Late, Schedule, Shuffled

__all__ = [
    "SCHEDULES",
    "Costs",
    "Early",
    "Event",
    "Judgement",
    "Late",
    "Result",
    "Schedule",
    "Shuffled",
    "judge",
    "run",
]

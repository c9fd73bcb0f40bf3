# SPDX-License-Identifier: Apache-2.0
"""Judging whole kernels: what is proved, what is not, and how to see a verdict again."""

import numpy as np
import pytest
from ring_kernel import Ring, matrices
from small import do, group, kernel

from tilus import ir, simulator
from tilus.errors import SimulationError
from tilus.simulator.explore import Chosen

BAR = ir.BarrierArray("bar", (1,))


def overtaken(pauses: int) -> ir.Kernel:
    """Two arrivals, each of which ends a phase: sound if the wait passes between them."""
    first = [do(lambda m: m.arrive(BAR[0], 1)), do(lambda m: m.wait_barrier(BAR[0], 0))]
    second = [do(lambda m: None)] * pauses + [do(lambda m: m.arrive(BAR[0], 1))]
    start = do(lambda m: m.init_barriers(BAR[0])), do(lambda m: m.wait_threads(m.threads))
    return kernel(*start, group(0, 32, *first), group(32, 32, *second))


def test_a_correct_kernel_is_proved_and_its_arguments_stay_as_they_are():
    arguments, _ = matrices(128, 8, 48)
    found = simulator.judge(Ring().kernel(), arguments)
    assert found.proved and found.verdict is None and found.executions == 3 + 2
    assert found.message == "proved: no order of moves has a verdict (5 executions)"
    assert np.isnan(arguments["c_ptr"]).all()


def test_a_verdict_says_under_which_schedule():
    arguments, _ = matrices(64, 8, 48)
    kernel = Ring(arrives=False).kernel()
    found = simulator.judge(kernel, arguments)
    assert (found.verdict, found.schedule, found.executions) == ("deadlock", "late", 1)
    with pytest.raises(SimulationError) as info:
        simulator.run(kernel, arguments, schedule=found.schedule, seed=found.seed)
    assert str(info.value) == found.message and info.value.facts["schedule"] == "late"


def test_what_schedules_miss_exploring_finds():
    it = overtaken(40)
    found = simulator.judge(it, {})
    assert (found.verdict, found.schedule, found.block) == ("protocol", "explored", (0, 0, 0))
    with pytest.raises(SimulationError) as info:
        simulator.run(it, {}, schedule=lambda _: Chosen(found.choices), blocks=[found.block])
    assert found.facts.items() <= info.value.facts.items()


def test_a_random_verdict_names_its_seed():
    it = overtaken(9)
    found = simulator.judge(it, {}, cap=1)
    assert found.schedule == "random" and f"seed {found.seed}" in found.message
    with pytest.raises(SimulationError) as info:
        simulator.run(it, {}, schedule="random", seed=found.seed)
    assert str(info.value) == found.message


def test_without_a_proof_it_says_so():
    found = simulator.judge(overtaken(40), {}, cap=1, seeds=2)
    assert found.verdict is None and not found.proved
    assert found.message == "not proved: no verdict in 6 executions"

# SPDX-License-Identifier: Apache-2.0
"""What a wait sees of what threads of other blocks did before they arrived."""

import pytest
from small import BLOCK, do, kernel, when

from tilus import ir, simulator
from tilus.errors import SimulationError

BARS = ir.BarrierArray("bars", (160, 160))
RANK = ir.Builtin("clusterRank")
FIRST, SECOND = RANK == 0, RANK == 1


def arrive(rank: int | None = None, bar: int = 0):
    return do(lambda m: m.arrive(BARS[bar], 160, rank=rank))


def wait(parity: int, cluster: bool, bar: int = 0):
    return do(lambda m: m.wait_barrier(BARS[bar], parity, cluster=cluster))


def pair(*body):
    """Two blocks of a cluster that know each other's barriers, and do not leave each other."""
    begin = do(lambda m: m.init_barriers(BARS[0])), do(lambda m: m.wait_cluster())
    return kernel(
        *begin, *body, do(lambda m: m.wait_cluster()), blocks=(2, 1, 1), cluster=(2, 1, 1)
    )


@pytest.mark.parametrize("schedule", simulator.SCHEDULES)
def test_a_wait_for_a_peer_names_the_cluster(schedule):
    def handed_over(cluster):
        waits = wait(0, cluster)
        return pair(when(FIRST, waits), when(SECOND, arrive(0))), waits

    simulator.run(handed_over(True)[0], {}, schedule=schedule)
    it, waits = handed_over(False)
    with pytest.raises(SimulationError, match="must name scope='cluster'") as info:
        simulator.run(it, {}, schedule=schedule)
    error = info.value
    assert error.verdict == "race"
    assert error.facts["line"] == waits.location.line and error.facts["block"] == (0, 0, 0)
    assert error.facts["first"]["block"] == (1, 0, 0) and error.facts["first"]["kind"] == "arrive"
    assert str(error).startswith(f"race: {waits.location}: {BLOCK.role} of block (0, 0, 0): the wa")


def test_a_phase_of_the_blocks_own_arrivals_needs_no_cluster():
    """The peer arrived in the phase before, and somebody saw that."""
    own = (wait(0, True), arrive(), wait(1, False))
    simulator.run(pair(when(FIRST, *own), when(SECOND, arrive(0))), {})


def test_an_arrival_from_afar_at_the_blocks_own_barrier_needs_no_cluster():
    simulator.run(pair(when(FIRST, arrive(0), wait(0, False))), {})

# SPDX-License-Identifier: Apache-2.0
"""Exploring orders of moves: what the reduction finds is what trying all of them finds."""

from random import Random

import pytest
from ring_kernel import Ring, matrices
from small import do, group, kernel

from tilus import ir
from tilus.errors import SimulationError
from tilus.simulator.explore import Chosen, Exploration, explore
from tilus.simulator.grid import Launch
from tilus.simulator.log import Log

BARS = ir.BarrierArray("bars", (1, 2))


def runs(it: ir.Kernel, arguments=None):
    """Return what executes the first block of a kernel by a schedule."""
    launch = Launch.of(it, arguments or {})
    members = launch.clusters()[0]
    return lambda schedule, log: launch.execute(members, [schedule], log=log)


def every_order(execute, cap: int) -> tuple[int, str | None] | None:
    """Try all orders of moves until one gives a verdict; None where there are too many."""
    nodes: list[list] = []  # what is possible, what of it has been tried
    for count in range(1, cap + 1):
        log = Log()
        try:
            execute(Chosen([possible[i] for possible, i in nodes]), log)
        except SimulationError as error:
            return count, error.verdict
        for possible, chosen in list(zip(log.possible, log.chosen, strict=True))[len(nodes) :]:
            keys = [chosen, *(key for key in possible if key != chosen)]
            nodes.append([keys, 0])
        while nodes and nodes[-1][1] == len(nodes[-1][0]) - 1:
            nodes.pop()
        if not nodes:
            return count, None
        nodes[-1][1] += 1
    return None


def arrive(i: int, count: int = 1):
    return do(lambda m: m.arrive(BARS[i], count))


def expect(i: int):
    """Announce bytes and nothing else."""
    return do(lambda m: m.arrive(BARS[i], 0, expect_bytes=16))


def arrive_and_expect(i: int):
    return do(lambda m: m.arrive(BARS[i], 1, expect_bytes=16))


def wait(i: int, parity: int):
    return do(lambda m: m.wait_barrier(BARS[i], parity))


def copy(i: int):
    def action(m):
        barrier = m.freeze_barrier(BARS[i])
        m.launch("tma", lambda: m.complete_bytes(barrier, 16), amount=16, what="copy")

    return do(action)


def tiny(*bodies) -> ir.Kernel:
    groups = [group(32 * i, 32, *body) for i, body in enumerate(bodies)]
    sync = do(lambda m: m.wait_threads(m.threads))
    return kernel(do(lambda m: m.init_barriers(BARS[0])), sync, *groups)


def pauses(count: int) -> list:
    """Let the others go ahead under the schedule that exploring begins with."""
    return [do(lambda m: None) for _ in range(count)]


OVERTAKEN = {  # sound in the first order that comes to mind, and not in another
    "an arrival that ends the next phase": (
        [arrive(0), wait(0, 0)],
        [*pauses(9), arrive(0)],
    ),
    "a wait whose next phase ends": (
        [arrive(0), wait(0, 0)],
        [wait(0, 0), *pauses(9), arrive(0)],
    ),
    "a wait that comes a phase too early": (
        [arrive(0), wait(0, 0), arrive(0), wait(0, 1)],
        [*pauses(20), wait(0, 1)],
    ),
    "bytes that are announced too late": (
        [expect(0), copy(0), wait(0, 0)],
        [*pauses(9), arrive(0)],
    ),
}


@pytest.mark.parametrize("name", OVERTAKEN)
def test_another_order_is_found(name):
    execute, log = runs(tiny(*OVERTAKEN[name])), Log()
    execute(Chosen(), log)
    assert list(log.hazards())
    found = explore(execute, 100)
    assert found.error is not None and 1 < found.executions < 50
    with pytest.raises(SimulationError) as info:  # the choices repeat it
        execute(Chosen(found.choices), Log())
    assert str(info.value) == str(found.error)


CHANGES = {wait: (0, 0), copy: (0, -1), expect: (0, 1), arrive: (1, 0), arrive_and_expect: (1, 1)}
"""What each statement adds to the arrivals that have come and to the copies that are owed."""


def program(random: Random) -> list[list]:
    """Return statements of two or three groups that pass in the order in which they are made."""
    bodies: list[list] = [[] for _ in range(random.choice([2, 2, 3]))]
    counts, phase, owed = (1, 2), [0, 0], [0, 0]
    pending = list(counts)

    def end(i):
        if pending[i] == owed[i] == 0:
            phase[i], pending[i] = phase[i] + 1, counts[i]

    def add(body, make, i):
        """Append a statement where it passes: arrivals and bytes count once they are asked for."""
        arrivals, nbytes = CHANGES[make]
        if pending[i] >= max(arrivals, nbytes) and owed[i] + nbytes >= 0:
            body.append(make(i, (phase[i] - 1) % 2) if make is wait else make(i))
            pending[i], owed[i] = pending[i] - arrivals, owed[i] + nbytes
            end(i)

    for _ in range(random.randint(2, 4)):
        add(random.choice(bodies), random.choice([*CHANGES, wait, arrive]), random.randrange(2))
    for i in (0, 1):
        while owed[i]:
            add(bodies[-1], copy, i)
        add(random.choice(bodies), wait, i)
    return [body for body in bodies if body]


SOUND = 4, 8, 13, 15, 23, 24, 31, 36, 40, 42, 46, 49
BROKEN = 20, 21, 95, 175, 212, 219, 251, 264, 296, 351  # though not in the first order tried


@pytest.mark.parametrize("seed", SOUND + BROKEN)
def test_a_verdict_is_found_if_any_order_of_moves_has_one(seed):
    execute = runs(tiny(*program(Random(seed))))
    found, (count, verdict) = explore(execute, 200), every_order(execute, 400)
    assert found.exhausted and (found.error is None) == (verdict is None) == (seed in SOUND)
    assert found.executions <= count


def ordered(rounds: int) -> ir.Kernel:
    """Two groups in turn: nothing can overtake anything."""
    first = [s for i in range(rounds) for s in (arrive(0), wait(1, i % 2))]
    second = [s for i in range(rounds) for s in (wait(0, i % 2), arrive(1, 2))]
    return tiny(first, second)


def test_one_execution_proves_what_is_ordered():
    found = explore(runs(ordered(2)), 1)
    assert found == Exploration(1) and found.proved
    count, verdict = every_order(runs(ordered(2)), 10_000)
    assert verdict is None and count > 20


def test_not_proved_where_the_cap_is_hit():
    """All orders are sound, but the two arrivals may count in either phase."""
    it = tiny([arrive(0)], [arrive(0)], [arrive(0)])
    assert explore(runs(it), 2) == Exploration(2, exhausted=False)
    found = explore(runs(it), 100)
    assert found.proved and 6 <= found.executions < 100


@pytest.mark.parametrize("stages", [2, 3])
def test_a_correct_ring_takes_one_execution(stages):
    for tiles in range(5):
        arguments, _ = matrices(64, 8, 16 * tiles)
        assert explore(runs(Ring(stages=stages).kernel(), arguments), 1).proved


@pytest.mark.parametrize("meets", [False, True])
def test_threads_of_a_group_that_may_drift_apart_are_no_proof(meets):
    """Some threads might arrive twice and end the first phase, before others have come at all."""
    both = ir.BarrierArray("both", (32,))
    arrival = do(lambda m: m.arrive(both[0], 32))
    between = [do(lambda m: m.wait_threads(m.threads))] * meets
    start = do(lambda m: m.init_barriers(both[0])), do(lambda m: m.wait_threads(m.threads))
    it = kernel(*start, group(0, 32, arrival, *between, arrival))
    found = explore(runs(it), 10)
    assert found.executions == 1 and found.error is None and found.proved == meets

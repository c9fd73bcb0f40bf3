# SPDX-License-Identifier: Apache-2.0
"""When effects land, and that one seed gives one run."""

import numpy as np
import pytest
from ring_kernel import Ring, matrices
from small import do, group, place, run

from tilus import ir, simulator
from tilus.simulator.schedule import Costs, Work

SCHEDULES = list(simulator.SCHEDULES)


def launch(log, name, engine="tma", amount=1024):
    return do(lambda m: m.launch(engine, lambda: log.append(name), amount=amount, what=name))


def stop(log, name, engine="wgmma", pending=0):
    """Wait for commit groups, then take a note."""
    return (
        do(lambda m: m.commit(engine)),
        do(lambda m: m.wait_commits(engine, pending)),
        do(lambda m: log.append(name)),
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_products_of_a_warp_group_land_in_order(schedule):
    for seed in range(10):
        log = []
        body = [launch(log, n, "wgmma") for n in range(4)]
        run(*body, *stop(log, "end"), schedule=schedule, seed=seed)
        assert log == [0, 1, 2, 3, "end"]


def test_stores_land_in_any_order():
    orders = set()
    for seed in range(20):
        log = []
        run(
            *(launch(log, n, "store") for n in range(3)),
            *stop(log, "end", "store"),
            schedule="random",
            seed=seed,
        )
        assert log[-1] == "end"
        orders.add(tuple(log[:3]))
    assert len(orders) > 3


def test_early_lands_before_the_next_instruction_and_late_only_when_needed():
    for schedule, expected in (
        ("early", ["load", "next", "end"]),
        ("late", ["next", "load", "end"]),
    ):
        log = []
        body = (
            launch(log, "load", "store"),
            do(lambda m, log=log: log.append("next")),
            *stop(log, "end", "store"),
        )
        run(*body, schedule=schedule)
        assert log == expected


def test_early_lands_before_another_group_moves():
    log = []
    first = group(0, 128, launch(log, "load", "store"), *stop(log, "end", "store"))
    run(first, group(128, 32, do(lambda m: log.append("other"))), schedule="early")
    assert log == ["load", "other", "end"]


def test_late_lands_what_is_waited_for_and_keeps_the_rest():
    """The store is older, but the group waits for the product."""
    log = []
    run(
        launch(log, "store", "store"), do(lambda m: m.commit("store")),
        launch(log, "product", "wgmma"),
        *stop(log, "multiplied"), do(lambda m: m.wait_commits("store", 0)), schedule="late",
    )  # fmt: skip
    assert log == ["product", "multiplied", "store"]


def test_late_lands_what_a_barrier_waits_for():
    """Two copies signal different barriers; the older one is not needed yet."""
    full, log = ir.BarrierArray("full", (1, 1)), []

    def copy(m, i):
        m.arrive(full[i], 1, expect_bytes=64)
        barrier = m.freeze_barrier(full[i])

        def land():
            log.append(i)
            m.complete_bytes(barrier, 64)

        m.launch("tma", land, amount=64, what="copy")

    waits = [do(lambda m, i=i: m.wait_barrier(full[i], 0)) for i in (1, 0)]
    start = do(lambda m: m.init_barriers(full[0]))
    run(start, do(lambda m: copy(m, 0)), do(lambda m: copy(m, 1)), *waits, schedule="late")
    assert log == [1, 0]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_newest_commit_groups_may_stay_in_flight(schedule):
    log = []
    body = []
    for n in range(3):
        body += [launch(log, n, "wgmma"), do(lambda m: m.commit("wgmma"))]
    middle = do(lambda m: m.wait_commits("wgmma", 2))
    run(*body, middle, do(lambda m: log.append("one")), *stop(log, "end"), schedule=schedule)
    assert log.index(0) < log.index("one") < log.index("end") == 4
    if schedule == "late":
        assert log.index("one") == 1


def test_timed_engine_is_serial_and_latency_overlaps():
    schedule = simulator.Schedule(None)
    c = Costs()
    work = 6400 / c.tma_bytes
    assert schedule.flight("tma", 10, 6400) == (10, 10 + work + c.tma_latency)
    assert schedule.flight("tma", 20, 6400) == (10 + work, 10 + 2 * work + c.tma_latency)
    assert schedule.flight("wgmma", 20, 2 * 64 * 256 * 16)[0] == 20
    assert schedule._free["wgmma"] == 20 + 128  # m64n256k16 takes 128 cycles


def test_timed_instructions_cost_what_they_move():
    schedule, c = simulator.Schedule(None), Costs()
    assert schedule.cost(Work()) == c.issue
    assert schedule.cost(Work(stored=6400)) == c.issue + 6400 / c.stored_bytes
    assert schedule.cost(Work(loaded=64)) == c.issue + 1 + c.load_latency
    assert schedule.cost(Work(shared=1280)) == c.issue + 10 + c.shared_latency


def traced(schedule, seed):
    arguments, _ = matrices(64, 8, 80)
    return simulator.run(
        Ring(stages=2).kernel(), arguments, schedule=schedule, seed=seed, trace=True
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_seed_one_run(schedule):
    assert traced(schedule, 3) == traced(schedule, 3)


def test_seeds_differ():
    assert traced("random", 1).events != traced("random", 2).events


def test_blocks_do_not_depend_on_which_others_run():
    kernel = Ring(stages=2).kernel()
    results = []
    for blocks in (None, [(1, 0, 0)]):
        arguments, _ = matrices(128, 8, 48)
        result = simulator.run(kernel, arguments, schedule="random", blocks=blocks)
        results.append(result.blocks[1, 0, 0])
        assert np.isnan(arguments["c_ptr"][: 64 * 8]).all() == (blocks is not None)
    assert results[0] == results[1]


def test_a_schedule_of_ones_own():
    """The order of moves is one choice to override: all that an exhaustive exploration needs."""
    picked = []

    class Backwards(simulator.Schedule):
        def pick(self, moves, needed):
            picked.append(len(moves))
            return moves[-1]

    log = []
    first, second = (group(b, 32, do(lambda m, b=b: log.append(b))) for b in (0, 128))
    run(first, second, schedule=Backwards)
    assert log == [128, 0] and max(picked) == 2


def test_clocks_meet_at_a_join():
    times = []
    slow = do(lambda m: setattr(m.group, "time", m.group.time + 1000))
    result = run(group(0, 128, slow), group(128, 32), do(lambda m: times.append(m.group.time)))
    assert times[0] >= 1000 and result.cycles >= 1000


def test_wait_ends_when_its_effect_lands():
    log = []
    body = (launch(log, "x", "wgmma", 4096 * 500), *stop(log, "end"))
    events = run(*body, trace=True).events
    (effect,) = [e for e in events if e.lane == "tensor cores"]
    (wait,) = [e for e in events if e.kind == "wait"]
    c = Costs()
    assert effect.end - effect.start == 500 + c.wgmma_latency
    assert wait.end == effect.end + c.wake and wait.start == 2 * c.issue
    assert place().file == wait.location.file and isinstance(wait.location, type(place()))


def test_group_without_statements_ends():
    assert run(group(0, 32), ir.Return(location=place())).cycles == 0

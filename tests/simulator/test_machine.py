# SPDX-License-Identifier: Apache-2.0
"""What instructions ask of the machine, and the verdicts on asking it wrongly."""

import pytest
from small import do, group, run, variable

from tilus import ir
from tilus.errors import SimulationError

FULL = ir.BarrierArray("full", (1, 1))
ONE = ir.Threads(128, 1)


def start():
    return do(lambda m: m.init_barriers(FULL[0]))


def verdict(*body, **options) -> SimulationError:
    with pytest.raises(SimulationError) as info:
        run(*body, **options)
    return info.value


def load(nbytes=64, engine="tma"):
    """Start a copy that signals ``full[1]``."""

    def action(m):
        barrier = m.freeze_barrier(FULL[1])
        m.launch(engine, lambda: m.complete_bytes(barrier, nbytes), amount=nbytes, what="copy")

    return do(action, ONE)


def test_barrier_before_it_is_initialised():
    error = verdict(do(lambda m: m.arrive(FULL[0], 1)))
    assert error.verdict == "protocol" and "full is used before it is initialised" in str(error)


def test_barrier_index_out_of_range():
    x = variable()
    bad = ir.Barrier(FULL, ir.as_expr(2))
    error = verdict(start(), do(lambda m: m.arrive(bad, 1)))
    assert error.facts["index"] == 2 and "must be in 0..1, got 2" in str(error)
    assert x.name == "x"


def test_parity_must_be_a_bit():
    error = verdict(start(), do(lambda m: m.wait_barrier(FULL[0], 2)))
    assert "parity of full[0] must be 0 or 1, got 2" in str(error)


def test_bytes_outstanding_at_the_end_of_the_block():
    expect = do(lambda m: m.arrive(FULL[1], 1, expect_bytes=128))
    error = verdict(
        start(), expect, load(64), do(lambda m: m.wait_barrier(FULL[1], 1)), schedule="early"
    )
    assert error.verdict == "protocol" and "full[1] still expects 64 bytes" in str(error)
    assert (error.facts["bytes_pending"], error.facts["index"]) == (64, 1)


def test_copy_in_flight_at_the_end_of_the_block():
    expect = do(lambda m: m.arrive(FULL[1], 1, expect_bytes=64))
    error = verdict(start(), expect, group(128, 1, load()), schedule="late")
    assert (error.facts["state"], error.facts["role"]) == ("in flight", "thread 128")
    assert "copy (TMA engine) is in flight when the block ends" in str(error)


@pytest.mark.parametrize("schedule", ["timed", "early", "late", "random"])
def test_store_that_nobody_waits_for(schedule):
    store = do(lambda m: m.launch("store", lambda: None, amount=64, what="tile -> c"))
    assert verdict(store, schedule=schedule).facts["state"] == "never committed"
    commit = do(lambda m: m.commit("store"))
    assert verdict(store, commit, schedule=schedule).facts["state"] == "never waited for"
    run(store, commit, do(lambda m: m.wait_commits("store", 0)), schedule=schedule)


def test_commit_groups_belong_to_their_issuer():
    """One thread's wait does not cover another's stores."""
    store = [
        do(lambda m: m.launch("store", lambda: None, amount=64, what="x")),
        do(lambda m: m.commit("store")),
    ]
    wait = do(lambda m: m.wait_commits("store", 0))
    error = verdict(group(0, 1, *store), group(32, 1, wait))
    assert (error.facts["state"], error.facts["role"]) == ("never waited for", "thread 0")


def test_effect_lands_on_behalf_of_its_issuer():
    seen = []
    effect = do(
        lambda m: m.launch(
            "store", lambda: seen.append((m.threads, m.location)), amount=1, what="x"
        )
    )
    tail = do(lambda m: m.commit("store")), do(lambda m: m.wait_commits("store", 0))
    run(group(128, 32, effect, *tail), group(0, 128, do(lambda m: None)), schedule="late")
    assert seen == [(ir.Threads(128, 32), effect.location)]


def test_frozen_values_do_not_follow_their_variables():
    seen = []

    def action(m):
        m.group.scalars[x] = 1
        barrier = m.freeze_barrier(FULL[x])
        m.group.scalars[x] = 0
        seen.append(m.value(barrier.index))

    x = variable()
    run(start(), do(action))
    assert seen == [1]


def test_thread_barrier_of_a_group_that_never_comes():
    block = ir.Threads(0, 160)
    error = verdict(group(0, 128, do(lambda m: m.wait_threads(block))))
    (wait,) = error.facts["waits"]
    assert wait["threads_missing"] == 32
    assert "the barrier of warps 0-4: 32 threads missing" in str(error)


def test_thread_barrier_of_two_groups():
    block, log = ir.Threads(0, 160), []
    sync, after = do(lambda m: m.wait_threads(block)), do(lambda m: log.append("after"))
    before = do(lambda m: log.append("before"))
    run(group(0, 128, sync, after), group(128, 32, before, sync, after))
    assert log == ["before", "after", "after"]

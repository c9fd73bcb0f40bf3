# SPDX-License-Identifier: Apache-2.0
"""The ring of V3: right at every depth under every schedule; each mistake gets its verdict."""

import numpy as np
import pytest
from ring_kernel import Ring, matrices

from tilus import simulator
from tilus.errors import SimulationError

SCHEDULES = list(simulator.SCHEDULES)


def product(ring: Ring, m: int, n: int, k: int, **options) -> tuple[np.ndarray, np.ndarray]:
    """Run the ring; return what it computed and the exact product."""
    arguments, want = matrices(m, n, k)
    simulator.run(ring.kernel(), arguments, **options)
    return arguments["c_ptr"].reshape(m, n), want


def verdict(ring: Ring, k: int, schedule: str = "timed", seed: int = 0) -> SimulationError:
    arguments, _ = matrices(64, 8, k)
    with pytest.raises(SimulationError) as info:
        simulator.run(ring.kernel(), arguments, schedule=schedule, seed=seed)
    return info.value


def wait_of(error: SimulationError, role: str) -> dict:
    (wait,) = [w for w in error.facts["waits"] if w["role"] == role]
    return wait


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("stages", range(2, 8))
def test_right_for_every_number_of_tiles(stages, schedule):
    kernel = Ring(stages=stages).kernel()
    for tiles in range(2 * stages + 2):
        arguments, want = matrices(64, 8, 16 * tiles, seed=tiles)
        simulator.run(kernel, arguments, schedule=schedule, seed=tiles)
        np.testing.assert_array_equal(arguments["c_ptr"].reshape(64, 8), want, f"{tiles} tiles")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_partial_tiles_write_nothing_outside(schedule):
    m, n, k = 70, 24, 40
    arguments, want = matrices(m, n, k)
    guard = np.full(64, 7, np.float16)
    arguments["c_ptr"] = np.concatenate([arguments["c_ptr"], guard])
    simulator.run(Ring(block_n=16).kernel(), arguments, schedule=schedule)
    np.testing.assert_array_equal(arguments["c_ptr"][: m * n].reshape(m, n), want)
    np.testing.assert_array_equal(arguments["c_ptr"][m * n :], guard)


def test_twenty_seeds():
    for seed in range(20):
        got, want = product(Ring(stages=3), 64, 8, 112, schedule="random", seed=seed)
        np.testing.assert_array_equal(got, want, f"seed {seed}")


@pytest.mark.parametrize("block", [(128, 64, 64, 3), (64, 32, 32, 4)])
def test_other_tiles_and_swizzles(block):
    m, n, k, stages = block
    ring = Ring(stages=stages, block_m=m, block_n=n, block_k=k)
    got, want = product(ring, 256, 64, 128, schedule="late")
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_missing_arrive_deadlocks(schedule):
    ring = Ring(stages=3, arrives=False)
    error = verdict(ring, 80, schedule)
    assert error.verdict == "deadlock"
    expected = dict(
        file="ring.py", line=ring.lines["producer"], block=(0, 0, 0),
        barrier="empty", index=0, parity=0, phase=0,
        arrivals_pending=128, arrivals_expected=128, bytes_pending=0,
    )  # fmt: skip
    assert wait_of(error, "warp 4").items() >= expected.items()
    assert wait_of(error, "warps 0-3")["line"] == ring.lines["consumer"]
    line = ring.lines["producer"]
    for part in (f"ring.py:{line}: warp 4: waits for empty[0], parity 0", "128 of 128 arrivals"):
        assert part in str(error)


def test_wrong_initial_phase_of_the_producer_deadlocks():
    ring = Ring(stages=3, producer_phase=0)
    error = verdict(ring, 80)
    producer, consumer = wait_of(error, "warp 4"), wait_of(error, "warps 0-3")
    assert (producer["barrier"], producer["parity"], producer["phase"]) == ("empty", 0, 0)
    assert (consumer["barrier"], consumer["parity"]) == ("full", 0)
    assert (producer["line"], consumer["line"]) == (ring.lines["producer"], ring.lines["consumer"])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_wrong_initial_phase_of_the_consumer(schedule):
    """It does not wait for the copies."""
    ring = Ring(stages=3, consumer_phase=1)
    error = verdict(ring, 80, schedule)
    assert (error.verdict, error.facts["tensor"], error.facts["stage"]) == ("race", "sa", 0)
    both = {error.facts[which]["what"]: error.facts[which] for which in ("first", "second")}
    assert both["sa x sb"]["line"] == ring.lines["mma"] and both["sa x sb"]["role"] == "warps 0-3"
    assert (both["ga -> sa"]["kind"], both["ga -> sa"]["role"]) == ("write", "thread 128")


def test_one_arrival_too_many_expected_deadlocks():
    error = verdict(Ring(stages=3, empty_count=129), 80)
    wait = wait_of(error, "warp 4")
    assert (wait["arrivals_pending"], wait["arrivals_expected"]) == (1, 129)
    assert "1 of 129 arrivals" in str(error)


def test_two_arrivals_expected_of_one_thread_deadlocks():
    wait = wait_of(verdict(Ring(stages=3, full_count=2), 80), "warps 0-3")
    assert (wait["barrier"], wait["arrivals_pending"], wait["bytes_pending"]) == ("full", 1, 0)


def test_more_arrivals_than_the_count():
    ring = Ring(stages=3, empty_count=64)
    error = verdict(ring, 80)
    assert error.verdict == "protocol"
    facts = {"barrier": "empty", "arrivals": 128, "arrivals_pending": 64, "role": "warps 0-3"}
    assert error.facts.items() >= (facts | {"line": ring.lines["arrive"]}).items()


def test_bytes_that_never_come_deadlock():
    wait = wait_of(verdict(Ring(stages=3, bytes_expected=128), 80), "warps 0-3")
    assert (wait["arrivals_pending"], wait["bytes_pending"]) == (0, 128)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bytes_left_over(schedule):
    error = verdict(Ring(stages=3, bytes_expected=-128), 80, schedule)
    assert error.verdict == "protocol" and "bytes left over at full[" in str(error)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bytes_of_one_copy_only(schedule):
    """Where A's copy lands before B's is issued, B's tile is read early; else bytes are left."""
    error = verdict(Ring(stages=3, bytes_expected=-256), 80, schedule)
    if error.verdict == "race":
        assert schedule in ("early", "random") and error.facts["tensor"] == "sb"
    else:
        assert error.verdict == "protocol" and "bytes left over at full[" in str(error)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("broken", ["commits", "waits"])
def test_products_that_nobody_makes_sure_of(broken, schedule):
    """The stage is released, and the accumulator read, while they may be in flight."""
    for k, second in ((16, "cast"), (80, "ga -> sa")):
        ring = Ring(stages=3, **{broken: False})
        error = verdict(ring, k, schedule)
        assert error.verdict == "race" and "wait_group has not made sure" in error.facts["missing"]
        assert error.facts["first"]["line"] == ring.lines["mma"]
        assert error.facts["second"]["what"] in (second, "cast")


def test_one_drain_too_many_deadlocks():
    ring = Ring(stages=3, drains=4)
    error = verdict(ring, 80)
    assert len(error.facts["waits"]) == 1 and "warps 0-3 ended" in str(error)
    assert wait_of(error, "warp 4")["line"] == ring.lines["drain"]


@pytest.mark.parametrize("right", [True, False])
def test_the_drain_keeps_the_producer_until_the_last_arrival(right):
    """Three tiles in five stages: where the loop stopped lie stages that were never filled."""
    arguments, want = matrices(64, 8, 48)
    kernel = Ring(stages=5, drains_from_zero=right).kernel()
    events = simulator.run(kernel, arguments, schedule="late", trace=True).events
    np.testing.assert_array_equal(arguments["c_ptr"].reshape(64, 8), want)
    producer_ends = max(e.end for e in events if e.lane == "warp 4")
    last_arrival = max(e.start for e in events if e.what == "arrive")
    assert (producer_ends >= last_arrival) == right

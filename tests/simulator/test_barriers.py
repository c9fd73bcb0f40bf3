# SPDX-License-Identifier: Apache-2.0
"""mbarriers: phases, arrivals and bytes as PTX defines them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilus.errors import SimulationError
from tilus.simulator.barriers import MBarrier, ThreadBarrier


def fail(verdict, message, **facts):
    raise SimulationError(verdict, message, **facts)


def barrier(count: int = 1) -> MBarrier:
    return MBarrier("full", 2, count, fail)


def test_a_fresh_barrier_passes_parity_one_and_blocks_parity_zero():
    assert barrier().over(1) and not barrier().over(0)


def test_a_phase_needs_arrivals_and_bytes_in_either_order():
    first, second = barrier(), barrier()
    first.arrive(1, 256)
    assert first.phase == 0
    first.complete(256, 0)
    second.complete(
        256, 0
    )  # the bytes may come before they are announced, as long as an arrival is pending
    assert (second.phase, second.bytes) == (0, -256)
    second.arrive(1, 256)
    assert first.phase == second.phase == 1
    assert first.over(0) and not first.over(1)


@given(counts=st.lists(st.integers(1, 9), min_size=1, max_size=20), count=st.integers(1, 9))
def test_phases_count_arrivals(counts, count):
    """Arrivals give as many phases as they fill; one too many for a phase is refused."""
    it, come = barrier(count), 0
    for n in counts:
        if come % count + n > count:
            with pytest.raises(SimulationError, match=f"too many arrivals.*{n} come") as info:
                it.arrive(n)
            assert info.value.facts["arrivals_pending"] == count - come % count
            return
        it.arrive(n)
        come += n
        assert (it.phase, it.pending) == (come // count, count - come % count)
        assert it.over(0) == ((come // count) % 2 == 1)


@given(parts=st.lists(st.integers(1, 1000), min_size=1, max_size=8))
def test_bytes_come_in_parts(parts):
    it = barrier()
    it.arrive(1, sum(parts))
    for n in parts:
        assert it.phase == 0
        it.complete(n, 0)
    assert (it.phase, it.bytes, it.pending) == (1, 0, 1)


def test_more_bytes_than_expected():
    it = barrier()
    it.arrive(1, 128)
    with pytest.raises(SimulationError, match=r"bytes left over at full\[2\]: 64 more") as info:
        it.complete(192, 0)
    assert info.value.verdict == "protocol" and info.value.facts["bytes_pending"] == -64


def test_bytes_of_an_earlier_phase():
    it = barrier()
    it.arrive(1)
    with pytest.raises(SimulationError, match="copy issued in phase 0 come in phase 1"):
        it.complete(64, 0)


def test_bytes_beyond_the_hardware_counter():
    it = barrier(2)
    it.arrive(1, 2**20 - 1)
    with pytest.raises(SimulationError, match="at most 1048575 bytes, got 1048576"):
        it.arrive(1, 1)


def test_facts_and_text():
    it = barrier(128)
    it.arrive(100, 512)
    assert it.lacks() == "phase 0 lacks 28 of 128 arrivals and 512 bytes"
    assert it.facts() == {
        "barrier": "full", "index": 2, "stage": 2, "phase": 0, "arrivals_pending": 28,
        "arrivals_expected": 128, "bytes_pending": 512,
    }  # fmt: skip


def test_thread_barrier_opens_when_all_have_come():
    it = ThreadBarrier(96)
    assert it.arrive(64) == 0 and it.generation == 0
    assert it.arrive(32) == 0 and it.generation == 1
    assert it.arrive(96) == 1 and it.generation == 2
    assert it.come == 0

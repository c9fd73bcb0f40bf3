# SPDX-License-Identifier: Apache-2.0
"""mbarriers: arrivals and phases between two groups, and what is refused."""

import numpy as np
import pytest

import tilus
from tilus import LanguageError, float32, int32, uint32


class PingPong(tilus.Script):
    """Two warps hand a turn to each other; the second stores how many it had."""

    def __init__(self, turns, arrivals=32):
        self.turns, self.arrivals = turns, arrivals

    def __call__(self, c_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        gc = self.global_view(c_ptr, dtype=float32, shape=[32, 8])
        ping = self.mbarrier.alloc(self.arrivals)
        pong = self.mbarrier.alloc([1])
        with self.thread_group(thread_begin=0, num_threads=32):
            phase: uint32 = self.mbarrier.producer_initial_phase
            for _ in self.range(self.turns):
                self.mbarrier.wait(pong[0], phase=phase)
                phase ^= 1
                self.mbarrier.arrive(ping)
        with self.thread_group(thread_begin=32, num_threads=32):
            phase: uint32 = self.mbarrier.consumer_initial_phase
            had: int32 = 0
            for _ in self.range(self.turns):
                self.mbarrier.wait(ping, phase=phase)
                phase ^= 1
                had += 1
                with self.single_thread():
                    self.mbarrier.arrive(pong[0])
            if had == self.turns:
                good = self.register_tensor(dtype=float32, shape=[32, 8], init=1.0)
                self.store_global(gc, good, offsets=[0, 0])


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_wait_and_arrive_alternate(backend, turns):
    c = np.zeros((32, 8), np.float32)
    backend.run(PingPong(turns), c)
    assert c.min() == 1.0


def test_arrive_too_seldom_is_a_deadlock():
    """33 arrivals are counted, 32 threads arrive: the second warp waits for ever."""
    tilus.option.device("sim")
    with pytest.raises(tilus.SimulationError, match="deadlock") as found:
        PingPong(1, arrivals=33)(np.zeros((32, 8), np.float32))
    tilus.option.device("auto")
    assert "ping" in str(found.value) and "warp 1" in str(found.value)


class Misused(tilus.Script):
    """One barrier instruction with a fault."""

    def __init__(self, fault, counts=1):
        self.fault, self.counts = fault, counts

    def __call__(self):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        if self.fault == "in a group":
            with self.thread_group(thread_begin=0, num_threads=32):
                self.mbarrier.alloc(1)
        barriers = self.mbarrier.alloc(self.counts)
        if self.fault == "the list":
            self.mbarrier.arrive(barriers)
        if self.fault == "phase":
            self.mbarrier.wait(barriers, phase=2)
        if self.fault == "count":
            self.mbarrier.arrive(barriers, count=0)
        if self.fault == "bytes":
            self.mbarrier.arrive_and_expect_tx(barriers, transaction_bytes=1 << 20)


@pytest.mark.parametrize("counts", [0, [], [1, 0], 1 << 20, "two"])
def test_alloc_refuses_counts(counts):
    with pytest.raises(LanguageError, match="alloc: counts must be a compile-time integer from 1"):
        Misused("none", counts).lower()


def test_alloc_refuses_a_thread_group():
    with pytest.raises(LanguageError, match="alloc: must stand outside of thread groups"):
        Misused("in a group").lower()


def test_arrive_refuses_a_list_and_zero():
    with pytest.raises(LanguageError, match="arrive: barrier must be one mbarrier"):
        Misused("the list", [1, 1]).lower()
    with pytest.raises(LanguageError, match=r"arrive: count must be .* got 0"):
        Misused("count").lower()


def test_arrive_and_expect_tx_refuses_more_bytes_than_a_barrier_counts():
    with pytest.raises(LanguageError, match="transaction_bytes must be from 0 to 1048575"):
        Misused("bytes").lower()


def test_wait_refuses_a_parity_that_is_none():
    with pytest.raises(LanguageError, match="wait: phase must be the parity 0 or 1, got 2"):
        Misused("phase").lower()

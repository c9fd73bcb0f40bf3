# SPDX-License-Identifier: Apache-2.0
"""mbarriers: arrivals and phases between two groups, and what is refused."""

import numpy as np
import pytest

import tilus
from tilus import LanguageError, SimulationError, compiler, float32, int32, uint32
from tilus.emitter import emit


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


class Signals(tilus.Script):
    """Blocks of a cluster signal each other."""

    def __init__(self, op, **arguments):
        self.op, self.arguments = op, arguments

    def __call__(self):
        self.attrs.blocks = 4
        self.attrs.cluster_blocks = 4
        self.attrs.warps = 1
        barriers = self.mbarrier.alloc([32, 32])
        self.cluster.sync()
        if self.op == "arrive_remote":
            self.mbarrier.arrive_remote(barriers[1], **self.arguments)
        if self.op == "arrive_and_expect_tx_remote":
            self.mbarrier.arrive_and_expect_tx_remote(barriers[1], **self.arguments)
        if self.op == "arrive_and_expect_tx_multicast":
            self.mbarrier.arrive_and_expect_tx_multicast(barriers[1], **self.arguments)
        self.cluster.sync()


def code(op, **arguments):
    """Return generated CUDA, and the PTX that NVRTC makes of it."""
    kernel = Signals(op, **arguments).lower()
    return emit(kernel), compiler.build(kernel).cubin.ptx


def test_arrive_remote_releases_to_the_cluster():
    cuda, ptx = code("arrive_remote", rank=3)
    assert "mbarrier_arrive_remote(smem + 8, 3u, 1);" in cuda
    assert ptx.count("mapa.shared::cluster.u32") == 1
    assert ptx.count("mbarrier.arrive.release.cluster.shared::cluster.b64") == 1


def test_arrive_and_expect_tx_remote_announces_bytes_there():
    cuda, ptx = code("arrive_and_expect_tx_remote", transaction_bytes=64, rank=0)
    assert "mbarrier_arrive_expect_tx_remote(smem + 8, 0u, 64u);" in cuda
    assert ptx.count("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64") == 1


def test_arrive_and_expect_tx_multicast_does_so_once_a_block():
    cuda, ptx = code("arrive_and_expect_tx_multicast", transaction_bytes=64, multicast_mask=13)
    assert "mbarrier_arrive_expect_tx_multicast(smem + 8, 13u, 64u);" in cuda
    assert ptx.count("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64") == 3


@pytest.mark.parametrize(
    "op, arguments, message",
    [
        ("arrive_remote", {"rank": 4}, "rank must be from 0 to 3, as the cluster has 4 blocks"),
        ("arrive_remote", {"rank": 0, "count": 0}, "count must be a compile-time integer from 1"),
        ("arrive_remote", {"rank": 0.5}, "rank must be"),
        (
            "arrive_and_expect_tx_remote",
            {"transaction_bytes": 1 << 20, "rank": 0},
            "transaction_bytes must be from 0 to 1048575, got 1048576",
        ),
        (
            "arrive_and_expect_tx_multicast",
            {"transaction_bytes": 0, "multicast_mask": 16},
            "multicast_mask must be from 1 to 15",
        ),
    ],
)
def test_remote_arrivals_refuse(op, arguments, message):
    with pytest.raises(LanguageError, match=message):
        Signals(op, **arguments).lower()


class Relay(tilus.Script):
    """The blocks of a cluster hand a turn round; each stores how often it had it."""

    def __init__(self, blocks, turns, arrivals=32, rank=None):
        self.blocks, self.turns, self.arrivals, self.rank = blocks, turns, arrivals, rank

    def __call__(self, c_ptr: ~float32):
        self.attrs.blocks = self.blocks
        self.attrs.cluster_blocks = self.blocks
        self.attrs.warps = 1
        gc = self.global_view(c_ptr, dtype=float32, shape=[8 * self.blocks, 8])
        turn = self.mbarrier.alloc(self.arrivals)
        self.cluster.sync()
        me = self.cluster.blockRank
        successor: int32 = (me + 1) % self.blocks
        had = self.register_tensor(dtype=float32, shape=[8, 8], init=0.0)
        phase: uint32 = self.mbarrier.consumer_initial_phase
        if me == 0:
            self.mbarrier.arrive_remote(turn, rank=0)
        for _ in self.range(self.turns):
            self.mbarrier.wait(turn, phase=phase, scope="cluster")
            phase ^= 1
            had += 1.0
            if self.rank is None:
                self.mbarrier.arrive_remote(turn, rank=successor)
            else:
                self.mbarrier.arrive_remote(turn, rank=successor + self.rank)
        self.store_global(gc, had, offsets=[8 * self.blockIdx.x, 0])
        self.cluster.sync()


@pytest.mark.parametrize("blocks, turns", [(1, 3), (2, 1), (2, 4), (4, 3)])
def test_arrive_remote_hands_the_turn_on(backend, blocks, turns):
    c = np.zeros((8 * blocks, 8), np.float32)
    backend.run(Relay(blocks, turns), c)
    assert np.all(c == turns)


def test_arrive_remote_too_seldom_is_a_deadlock(device):
    device("sim")
    with pytest.raises(SimulationError, match="deadlock"):
        Relay(2, 1, arrivals=33)(np.zeros((16, 8), np.float32))


def test_arrive_remote_refuses_a_rank_at_run_time(device):
    device("sim")
    with pytest.raises(SimulationError, match=r"protocol.*rank.*got 2"):
        Relay(2, 1, rank=1)(np.zeros((16, 8), np.float32))


class Announced(tilus.Script):
    """The first block of a cluster fetches a tile for the blocks of a mask, and says so to each."""

    def __init__(self, op, blocks, share=1):
        self.op, self.blocks, self.share = op, blocks, share

    def __call__(self, mask: int32, a_ptr: ~float32, c_ptr: ~float32):
        self.attrs.blocks = self.blocks
        self.attrs.cluster_blocks = self.blocks
        self.attrs.warps = 1
        ga = self.global_view(a_ptr, dtype=float32, shape=[8, 32])
        gc = self.global_view(c_ptr, dtype=float32, shape=[8 * self.blocks, 32])
        sa = self.shared_tensor(dtype=float32, shape=[8, 32])
        full = self.mbarrier.alloc(1)
        self.cluster.sync()
        if self.cluster.blockRank == 0:
            with self.single_thread():
                self.announce(full, sa.nbytes * self.share, mask)
                self.tma.global_to_shared(
                    src=ga, dst=sa, offsets=[0, 0], mbarrier=full, multicast_mask=mask
                )
        if (mask >> self.cluster.blockRank) % 2 == 1:
            self.mbarrier.wait(full, phase=0, scope="cluster")
            self.store_global(gc, self.load_shared(sa), offsets=[8 * self.blockIdx.x, 0])
        self.cluster.sync()

    def announce(self, full, nbytes, mask):
        """Tell the blocks of the mask, in one of two ways, how many bytes will come."""
        if self.op == "multicast":
            self.mbarrier.arrive_and_expect_tx_multicast(full, nbytes, multicast_mask=mask)
        else:
            for rank in range(self.blocks):
                if (mask >> rank) % 2 == 1:
                    self.mbarrier.arrive_and_expect_tx_remote(full, nbytes, rank=rank)


@pytest.mark.parametrize("op", ["remote", "multicast"])
@pytest.mark.parametrize("blocks, mask", [(1, 0b1), (2, 0b11), (2, 0b10), (4, 0b1101)])
def test_arrive_and_expect_tx_for_other_blocks(backend, op, blocks, mask):
    a = np.arange(8 * 32, dtype=np.float32).reshape(8, 32)
    c = np.zeros((blocks, 8, 32), np.float32)
    backend.run(Announced(op, blocks), mask, a, c.reshape(-1, 32))
    for rank in range(blocks):
        assert np.array_equal(c[rank], a * (mask >> rank & 1))


@pytest.mark.parametrize("op", ["remote", "multicast"])
def test_arrive_and_expect_tx_of_more_bytes_than_come_is_a_deadlock(device, op):
    device("sim")
    a, c = np.zeros((8, 32), np.float32), np.zeros((16, 32), np.float32)
    with pytest.raises(SimulationError, match="lacks 0 of 1 arrivals and 1024 bytes"):
        Announced(op, 2, share=2)(0b11, a, c)


@pytest.mark.parametrize("op", ["remote", "multicast"])
@pytest.mark.parametrize("mask, found", [(0, "mask must have a bit"), (4, r"rank .* got 2")])
def test_masks_are_judged_at_run_time(device, op, mask, found):
    device("sim")
    a, c = np.zeros((8, 32), np.float32), np.zeros((16, 32), np.float32)
    with pytest.raises(SimulationError, match=f"protocol.*{found}"):
        Announced(op, 2)(mask, a, c)

# SPDX-License-Identifier: Apache-2.0
"""What blocks of a cluster do with each other's memory, and when they end."""

import numpy as np
import pytest

import tilus
from tilus import LanguageError, SimulationError, float16, int32, simulator


class Exchange(tilus.Script):
    """Each block of a cluster writes a stage of its successor and reads one of its predecessor."""

    def __init__(self, blocks, fault=""):
        self.blocks, self.fault = blocks, fault

    def __call__(self, x_ptr: ~float16, y_ptr: ~float16):
        self.attrs.blocks = self.blocks
        self.attrs.cluster_blocks = self.blocks
        self.attrs.warps = 4
        gx = self.global_view(x_ptr, dtype=float16, shape=[16 * self.blocks, 64])
        gy = self.global_view(y_ptr, dtype=float16, shape=[32 * self.blocks, 64])
        tile = self.shared_tensor(dtype=float16, shape=[2, 16, 64])
        read = self.mbarrier.alloc(128)
        if self.fault != "begin":
            self.cluster.sync()
        me: int32 = self.cluster.blockRank
        row: int32 = me * 16
        after, before = (me + 1) % self.blocks, (me + self.blocks - 1) % self.blocks
        there = self.cluster.map_shared_addr(tile, rank=after)
        x = self.load_global(gx, offsets=[row, 0], shape=[16, 64])
        self.store_shared(tile[0], x)
        self.store_shared(there[1], x)
        self.cluster.sync()
        theirs = self.cluster.map_shared_addr(tile, rank=before)
        self.store_global(gy, self.load_shared(theirs[0]), offsets=[row * 2, 0])
        self.store_global(gy, self.load_shared(tile[1]), offsets=[row * 2 + 16, 0])
        if self.fault == "rewritten":
            self.store_shared(tile[0], x)
        if self.fault == "signalled":
            self.mbarrier.arrive_remote(read, rank=before)
            self.mbarrier.wait(read, phase=0, scope="cluster")
            self.store_shared(tile[0], x)
        if self.fault != "leaves":
            self.cluster.sync()


def exchanged(kernel):
    """Return the arguments of an exchange, and what comes of it."""
    x = np.arange(kernel.blocks * 16 * 64).astype(np.float16).reshape(kernel.blocks, 16, 64)
    before = x[[i - 1 for i in range(kernel.blocks)]]
    y = np.full((kernel.blocks, 2, 16, 64), np.nan, np.float16)
    return x, y, np.stack([before, before], 1)


@pytest.mark.parametrize("blocks", [1, 2, 4])
@pytest.mark.parametrize("fault", ["", "signalled"])
def test_map_shared_addr(backend, blocks, fault):
    kernel = Exchange(blocks, fault)
    x, y, want = exchanged(kernel)
    backend.run(kernel, x.reshape(-1, 64), y.reshape(-1, 64))
    assert np.array_equal(y, want)


@pytest.mark.parametrize(
    "fault, message",
    [
        ("begin", r"protocol.*no cluster.sync\(\) says that block \(1, 0, 0\) has begun"),
        ("rewritten", r"race.*writes tile \(stage 0\).*of block \(1, 0, 0\) reads"),
        ("leaves", r"race.*may end while warps 0-3 of block \(1, 0, 0\) still comes.*load_shared"),
    ],
)
def test_a_peers_memory_is_judged(device, fault, message):
    device("sim")
    kernel = Exchange(2, fault)
    x, y, _ = exchanged(kernel)
    with pytest.raises(SimulationError, match=message):
        kernel(x.reshape(-1, 64), y.reshape(-1, 64))


class Handed(tilus.Script):
    """A block writes a tile of its peer, which has it brought to device memory."""

    def __call__(self, y_ptr: ~float16):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 4
        gy = self.global_view(y_ptr, dtype=float16, shape=[16, 64])
        tile = self.shared_tensor(dtype=float16, shape=[16, 64])
        self.cluster.sync()
        x = self.register_tensor(dtype=float16, shape=[16, 64], init=1)
        if self.cluster.blockRank == 0:
            self.store_shared(self.cluster.map_shared_addr(tile, rank=1), x)
        self.fence.proxy_async()
        self.cluster.sync()
        if self.cluster.blockRank == 1:
            with self.single_thread():
                self.tma.shared_to_global(tile, gy, [0, 0])
                self.tma.commit_group()
                self.tma.wait_group(0)


def test_no_engine_reads_what_a_peer_has_written(device):
    device("sim")
    with pytest.raises(SimulationError, match=r"race.*proxy_async orders no write to another"):
        Handed()(np.zeros((16, 64), np.float16))


class Mapped(tilus.Script):
    """A block uses what another one has otherwise than by loads and stores."""

    def __init__(self, fault):
        self.fault = fault

    def __call__(self, a_ptr: ~float16):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 4
        ga = self.global_view(a_ptr, dtype=float16, shape=[64, 64])
        sa = self.shared_tensor(dtype=float16, shape=[64, 64])
        full = self.mbarrier.alloc(1)
        self.cluster.sync()
        there = self.cluster.map_shared_addr(full if self.fault == "barrier" else sa, rank=1)
        if self.fault == "twice":
            self.cluster.map_shared_addr(there, rank=0)
        if self.fault == "shape":
            self.reshape_shared(there, [4096])
        if self.fault == "copy":
            with self.single_thread():
                self.tma.global_to_shared(ga, there, [0, 0], full)


@pytest.mark.parametrize(
    "fault, message",
    [
        (
            "barrier",
            "x must be a tensor in .* own .*, got Barrier; arrive_remote reaches a barrier",
        ),
        ("twice", "map_shared_addr: x must be .*, got that of another block"),
        ("shape", "reshape_shared: sa must be in the block's own shared memory, got"),
        ("copy", "global_to_shared: sa must be in .* another block; self.load_shared copies it"),
    ],
)
def test_map_shared_addr_is_for_loads_and_stores(fault, message):
    with pytest.raises(LanguageError, match=message):
        Mapped(fault).lower()


class Early(tilus.Script):
    """The first block of a cluster comes ``meetings`` times to its barrier, the others more."""

    def __init__(self, blocks, meetings):
        self.blocks, self.meetings = blocks, meetings

    def __call__(self, out_ptr: ~int32):
        self.attrs.blocks = self.blocks
        self.attrs.cluster_blocks = self.blocks
        self.attrs.warps = 2
        out = self.global_view(out_ptr, dtype=int32, shape=[self.blocks])
        for _ in self.range(self.meetings):
            self.cluster.sync()
        if self.blockIdx.x > 0:
            for _ in self.range(self.blockIdx.x):
                self.cluster.sync()
        ones = self.register_tensor(dtype=int32, shape=[1], init=1)
        self.store_global(out, ones, offsets=[self.blockIdx.x])


@pytest.mark.parametrize("blocks, meetings", [(2, 0), (2, 3), (4, 1)])
def test_a_block_that_has_ended_is_not_waited_for(backend, blocks, meetings):
    out = np.zeros(blocks, np.int32)
    backend.run(Early(blocks, meetings), out)
    assert (out == 1).all()


def test_that_no_block_waits_for_one_that_has_ended_is_proved():
    kernel = Early(4, 1).lower()
    assert simulator.judge(kernel, {"out_ptr": np.zeros(4, np.int32)}).proved

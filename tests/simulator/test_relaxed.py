# SPDX-License-Identifier: Apache-2.0
"""Relaxed arrivals at a peer's barrier: they say which reads are over, and hand on no write."""

import numpy as np
import pytest

import tilus
from tilus import float32, simulator, uint32

ROWS, TURNS = 16, 3


class Mailbox(tilus.Script):
    """Block 0 writes a tile of the last block, which reads it, again and again.

    A message that the tile is full goes by way of the blocks between; that it is empty again, too.
    ``full`` and ``empty`` say how the first arrival of each is made, ``sync`` whether the readers
    meet before, ``alone`` whether one of their threads arrives for all.
    """

    def __init__(
        self, full="release", empty="release", *, blocks=2, sync=True, alone=True, scope="cluster"
    ):
        self.full, self.empty, self.scope = full, empty, scope
        self.blocks, self.meet, self.alone = blocks, sync, alone

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = self.blocks
        self.attrs.cluster_blocks = self.blocks
        self.attrs.warps = 4
        gx = self.global_view(x_ptr, dtype=float32, shape=[TURNS * ROWS, 64])
        gy = self.global_view(y_ptr, dtype=float32, shape=[TURNS * ROWS, 64])
        box = self.shared_tensor(dtype=float32, shape=[ROWS, 64])
        full = self.mbarrier.alloc(1)
        empty = self.mbarrier.alloc(1 if self.alone else 128)
        back = self.mbarrier.alloc(1)
        self.cluster.sync()
        rank, last = self.cluster.blockRank, self.blocks - 1
        there = self.cluster.map_shared_addr(box, rank=last)
        phase: uint32 = 0
        for turn in self.range(TURNS):
            if rank == 0:
                if turn > 0:
                    ready = empty if self.blocks == 2 else back
                    self.mbarrier.wait(ready, phase=phase ^ 1, scope=self.scope)
                x = self.load_global(gx, offsets=[turn * ROWS, 0], shape=[ROWS, 64])
                self.store_shared(there, x)
                self.sync()
                with self.single_thread():
                    self.mbarrier.arrive_remote(full, rank=1, sem=self.full)
            if rank == last:
                self.mbarrier.wait(full, phase=phase, scope="cluster")
                y = self.load_shared(box)
                self.store_global(gy, y, offsets=[turn * ROWS, 0])
                if self.meet:
                    self.sync()
                self.emptied(empty)
            if self.blocks == 3 and rank == 1:
                with self.single_thread():
                    self.mbarrier.wait(full, phase=phase, scope="cluster")
                    self.mbarrier.arrive_remote(full, rank=2)
                    self.mbarrier.wait(empty, phase=phase, scope=self.scope)
                    self.mbarrier.arrive_remote(back, rank=0)
            phase ^= 1
        self.cluster.sync()

    def emptied(self, empty):
        """Say that the tile has been read."""
        if self.alone:
            with self.single_thread():
                self.mbarrier.arrive_remote(empty, rank=self.blocks - 2, sem=self.empty)
        else:
            self.mbarrier.arrive_remote(empty, rank=self.blocks - 2, sem=self.empty)


def judged(**options) -> simulator.Judgement:
    x = np.arange(TURNS * ROWS * 64, dtype=np.float32)
    arguments = {"x_ptr": x, "y_ptr": np.full_like(x, np.nan)}
    return simulator.judge(Mailbox(**options).lower(), arguments)


@pytest.mark.parametrize("blocks", [2, 3])
@pytest.mark.parametrize("empty", ["release", "relaxed"])
def test_that_reads_are_over_a_relaxed_arrival_hands_on(empty, blocks):
    found = judged(empty=empty, blocks=blocks)
    assert found.proved, found.message


@pytest.mark.parametrize("blocks", [2, 3])
def test_no_write_of_threads_is_published_by_a_relaxed_arrival(blocks):
    """Nor by a release behind it: the middle block knows no more than it was told."""
    found = judged(full="relaxed", blocks=blocks)
    assert found.verdict == "race", found.message
    assert "is relaxed, and orders no write before the load_shared" in found.facts["missing"]
    assert "sem='release', and its wait scope='cluster'" in found.message
    assert (found.facts["first"]["kind"], found.facts["second"]["kind"]) == ("write", "read")

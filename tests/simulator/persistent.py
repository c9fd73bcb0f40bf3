# SPDX-License-Identifier: Apache-2.0
"""Persistent kernels in small: blocks that go on from tile to tile, and the mistakes in that.

C[m, n] = A[m, k] · B[n, k]ᵀ. Two consumer groups and a producer share a ring whose state is carried
over all tiles of a block. A group brings its half of a tile to one of two staging slots, from where
a bulk store takes it while the next tile is computed. In a cluster, two blocks compute tiles side
by side, and each fetches half of every tile of A for both; ``sem`` says how they arrive at each
other's barriers. ``fault`` names one mistake.
"""

import tilus
from tilus import float16, float32, int32, uint32
from tilus.utils import cdiv

SLOTS = 2
HALF_M, BLOCK_N, BLOCK_K = 64, 16, 16


class Pipeline(tilus.Class):
    """A ring of stages between one producer and several consumers, and where each of them is."""

    def __init__(self, num_stages, consumer_arrivals, scope):
        self.num_stages, self.scope = num_stages, scope
        self.full = self.mbarrier.alloc([1] * num_stages)
        self.empty = self.mbarrier.alloc([consumer_arrivals] * num_stages)
        self.producer_stage: int32 = 0
        self.consumer_stage: int32 = 0
        self.producer_phase: uint32 = self.mbarrier.producer_initial_phase
        self.consumer_phase: uint32 = self.mbarrier.consumer_initial_phase

    def producer_acquire(self):
        self.mbarrier.wait(
            self.empty[self.producer_stage], phase=self.producer_phase, scope=self.scope
        )

    def producer_advance(self):
        self.producer_stage = (self.producer_stage + 1) % self.num_stages
        self.producer_phase = self.producer_phase ^ (self.producer_stage == 0)

    def consumer_acquire(self):
        self.mbarrier.wait(self.full[self.consumer_stage], phase=self.consumer_phase)

    def consumer_advance(self):
        self.consumer_stage = (self.consumer_stage + 1) % self.num_stages
        self.consumer_phase = self.consumer_phase ^ (self.consumer_stage == 0)


class Persistent(tilus.Script):
    def __init__(self, fault="", blocks=2, cluster=1, num_stages=2, sem="release"):
        super().__init__()
        self.fault, self.blocks, self.cluster_size = fault, blocks, cluster
        self.num_stages, self.sem = num_stages, sem

    def __call__(
        self,
        m_size: int32,
        n_size: int32,
        k_size: int32,
        a_ptr: ~float16,
        b_ptr: ~float16,
        c_ptr: ~float16,
    ):
        size = self.cluster_size
        self.attrs.blocks = self.blocks
        self.attrs.cluster_blocks = size
        self.attrs.warps = 12  # warps 0-3 and 4-7 compute, warps 8-11 load

        first: int32 = self.blockIdx.x // size
        step = self.blocks // size
        columns: int32 = cdiv(n_size, BLOCK_N * size)  # a cluster computes `size` tiles at once
        tiles: int32 = cdiv(m_size, 2 * HALF_M) * columns

        ga = self.global_view(a_ptr, dtype=float16, shape=[m_size, k_size])
        gb = self.global_view(b_ptr, dtype=float16, shape=[n_size, k_size])
        gc = self.global_view(c_ptr, dtype=float16, shape=[m_size, n_size])
        sa = self.shared_tensor(dtype=float16, shape=[self.num_stages, 2, HALF_M, BLOCK_K])
        sb = self.shared_tensor(dtype=float16, shape=[self.num_stages, BLOCK_N, BLOCK_K])
        staging = self.shared_tensor(dtype=float16, shape=[2, SLOTS, HALF_M, BLOCK_N])

        peers = size if self.fault != "peer not counted" else 1
        scope = "cluster" if size > 1 and self.sem == "release" else "cta"
        pipeline = Pipeline(self.num_stages, 2 * peers, scope)
        if size > 1:
            self.cluster.sync()

        with (
            self.thread_group(thread_begin=256, num_threads=128, registers=40),
            self.single_thread(),
        ):
            for tile in self.range(first, self.last(tiles), step):
                offset_m, offset_n = self.place(tile, tiles, columns)
                for offset_k in self.range(0, k_size, BLOCK_K):
                    pipeline.producer_acquire()
                    stage = pipeline.producer_stage
                    full = pipeline.full[stage]
                    self.mbarrier.arrive_and_expect_tx(full, sa[stage].nbytes + sb[stage].nbytes)
                    self.tma.global_to_shared(gb, sb[stage], [offset_n, offset_k], full)
                    self.load_a(ga, sa[stage], [offset_m, offset_k], full)
                    pipeline.producer_advance()

        for half in (0, 1):
            with self.thread_group(thread_begin=128 * half, num_threads=128, registers=232):
                slot: int32 = 0
                for tile in self.range(first, self.last(tiles), step):
                    offset_m, offset_n = self.place(tile, tiles, columns)
                    acc = self.register_tensor(dtype=float32, shape=[HALF_M, BLOCK_N], init=0.0)
                    if self.fault == "phase reset":
                        pipeline.consumer_phase = self.mbarrier.consumer_initial_phase
                    for _ in self.range(0, k_size, BLOCK_K):
                        pipeline.consumer_acquire()
                        stage = pipeline.consumer_stage
                        self.wgmma.fence()
                        self.wgmma.mma(sa[stage, half], sb[stage].transpose(), acc)
                        self.wgmma.commit_group()
                        self.consumed(pipeline.empty[stage])
                        pipeline.consumer_advance()
                    at = [offset_m + half * HALF_M, offset_n]
                    self.epilogue(self.cast(acc, dtype=float16), staging[half, slot], gc, at)
                    slot = (slot + 1) % SLOTS
                if self.fault != "stores not awaited":
                    with self.single_thread():
                        self.tma.wait_group(0)

        if size > 1 and self.fault != "leaves early":
            self.cluster.sync()

    def last(self, tiles):
        """Return where the loop over tiles ends."""
        return tiles + 1 if self.fault == "tail twice" else tiles

    def place(self, tile, tiles, columns):
        """Return the first row and column of a tile of this block."""
        t = min(tile, tiles - 1)
        column = t % columns * self.cluster_size + self.cluster.blockRank
        return t // columns * 2 * HALF_M, column * BLOCK_N

    def load_a(self, ga, stage, at, full):
        """Fetch both halves of a tile of A, or the one that this block fetches for the cluster."""
        (row, column), rank = at, self.cluster.blockRank
        if self.cluster_size == 1:
            for half in (0, 1):
                self.tma.global_to_shared(ga, stage[half], [row + half * HALF_M, column], full)
        else:
            self.tma.global_to_shared(
                ga, stage[rank], [row + rank * HALF_M, column], full, multicast_mask=0b11
            )

    def consumed(self, empty):
        """Wait for a product, then release its stage."""
        if self.fault == "released early":
            self.release(empty)
        self.wgmma.wait_group(0)
        if self.fault != "released early":
            self.release(empty)

    def release(self, empty):
        """Say, by one thread of the running group, that it has done with a stage."""
        with self.single_thread():
            if self.cluster_size == 1:
                self.mbarrier.arrive(empty)
            elif self.fault == "peer not counted":
                self.mbarrier.arrive_remote(empty, rank=self.cluster.blockRank, sem=self.sem)
            else:
                for block in range(self.cluster_size):
                    self.mbarrier.arrive_remote(empty, rank=block, sem=self.sem)

    def epilogue(self, tile, slot, gc, at):
        """Bring a tile to device memory by way of a staging slot."""
        fault = self.fault
        with self.single_thread():  # the store before the last one has read its slot
            self.tma.wait_group(SLOTS if fault == "staging reused early" else 1, read=True)
        if fault != "no sync before":
            self.sync()
        if fault == "fence before":
            self.fence.proxy_async()
        self.store_shared(slot, tile)
        if fault not in ("fence missing", "fence before", "fence by one thread"):
            self.fence.proxy_async()
        if fault != "no sync behind":
            self.sync()
        with self.single_thread():
            if fault == "fence by one thread":
                self.fence.proxy_async()
            self.tma.shared_to_global(slot, gc, at)
            self.tma.commit_group()

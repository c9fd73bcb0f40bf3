# SPDX-License-Identifier: Apache-2.0
"""
Appendix, sums in float16, and tiles for four consumer groups
=============================================================

C[m, n] = A[m, k] · B[n, k]ᵀ, float16 in and out, **float16 accumulation**: a different computation
from the ladder's, and a less accurate one.
"""

import numpy as np

import tilus
from tilus import float16, int32, uint32
from tilus.demo import main
from tilus.utils import cdiv


class Pipeline(tilus.Class):
    """A ring of stages between one producer and several consumers, and where each of them is."""

    def __init__(self, num_stages, consumer_arrivals):
        self.num_stages = num_stages
        self.full = self.mbarrier.alloc([1] * num_stages)
        self.empty = self.mbarrier.alloc([consumer_arrivals] * num_stages)
        self.producer_stage: int32 = 0
        self.consumer_stage: int32 = 0
        self.producer_phase: uint32 = self.mbarrier.producer_initial_phase
        self.consumer_phase: uint32 = self.mbarrier.consumer_initial_phase

    def producer_acquire(self):
        """Wait until the producer's stage is empty."""
        self.mbarrier.wait(self.empty[self.producer_stage], phase=self.producer_phase)

    def producer_advance(self):
        """Go on to the next stage; behind the last one the ring begins anew, in the other phase."""
        self.producer_stage = (self.producer_stage + 1) % self.num_stages
        self.producer_phase = self.producer_phase ^ (self.producer_stage == 0)

    def consumer_acquire(self):
        """Wait until the consumer's stage is full."""
        self.mbarrier.wait(self.full[self.consumer_stage], phase=self.consumer_phase)

    def consumer_release(self, stage):
        """Say, by one thread of the running group, that it has done with a stage."""
        with self.single_thread():
            self.mbarrier.arrive(self.empty[stage])

    def consumer_advance(self):
        """Go on to the next stage."""
        self.consumer_stage = (self.consumer_stage + 1) % self.num_stages
        self.consumer_phase = self.consumer_phase ^ (self.consumer_stage == 0)


GROUPS = 4
"""Consumer warp groups: each computes a quarter of the tile's rows."""


class MatmulHalfSums(tilus.Script):
    def __init__(self, num_stages=3, block_n=256, group_m=16, num_blocks=128, block_k=64):
        super().__init__()
        self.num_stages = num_stages
        self.block_m = 64 * GROUPS
        self.block_n = block_n
        self.block_k = block_k
        self.group_m = group_m
        self.num_blocks = num_blocks

    def __call__(
        self,
        m_size: int32,
        n_size: int,
        k_size: int,
        a_ptr: ~float16,
        b_ptr: ~float16,
        c_ptr: ~float16,
    ):
        tiles_m, tiles_n = cdiv(m_size, self.block_m), cdiv(n_size, self.block_n)
        tiles = tiles_m * tiles_n
        self.attrs.blocks = min(self.num_blocks, tiles)
        self.attrs.warps = 4 * GROUPS + 4  # one warp of the last group loads

        ga = self.global_view(a_ptr, dtype=float16, shape=[m_size, k_size])
        gb = self.global_view(b_ptr, dtype=float16, shape=[n_size, k_size])
        gc = self.global_view(c_ptr, dtype=float16, shape=[m_size, n_size])
        sa = self.shared_tensor(dtype=float16, shape=[self.num_stages, GROUPS, 64, self.block_k])
        sb = self.shared_tensor(dtype=float16, shape=[self.num_stages, self.block_n, self.block_k])
        sc = self.shared_tensor(dtype=float16, shape=[GROUPS, 64, 64])

        pipeline = Pipeline(self.num_stages, consumer_arrivals=GROUPS)

        with self.thread_group(128 * GROUPS, num_threads=128, registers=32), self.single_warp():
            for tile in self.range(self.blockIdx.x, tiles, self.gridDim.x):
                tile_m, tile_n = self.rasterise(tile, tiles_m, tiles_n)
                offset_m: int32 = tile_m * self.block_m
                offset_n: int32 = tile_n * self.block_n
                for offset_k in self.range(0, k_size, self.block_k):
                    pipeline.producer_acquire()
                    stage = pipeline.producer_stage
                    full = pipeline.full[stage]
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(
                            full, transaction_bytes=sa[stage].nbytes + sb[stage].nbytes
                        )
                    self.tma.global_to_shared(
                        src=ga, dst=sa[stage], offsets=[offset_m, offset_k], mbarrier=full
                    )
                    self.tma.global_to_shared(
                        src=gb, dst=sb[stage], offsets=[offset_n, offset_k], mbarrier=full
                    )
                    pipeline.producer_advance()

            # Stay until every stage is empty again; those never filled are so from the start.
            for _ in self.range(self.num_stages):
                pipeline.producer_acquire()
                pipeline.producer_advance()

        for quarter in tuple(range(GROUPS)):
            with self.thread_group(thread_begin=128 * quarter, num_threads=128, registers=112):
                for tile in self.range(self.blockIdx.x, tiles, self.gridDim.x):
                    acc = self.register_tensor(dtype=float16, shape=[64, self.block_n], init=0.0)
                    previous: int32 = 0
                    for offset_k in self.range(0, k_size, self.block_k):
                        pipeline.consumer_acquire()
                        stage = pipeline.consumer_stage
                        self.wgmma.fence()
                        self.wgmma.mma(sa[stage, quarter], sb[stage].transpose(), acc)
                        self.wgmma.commit_group()
                        self.wgmma.wait_group(1)  # the product before this one has finished
                        if offset_k > 0:
                            pipeline.consumer_release(previous)
                        previous = stage
                        pipeline.consumer_advance()
                    self.wgmma.wait_group(0)
                    if k_size > 0:
                        pipeline.consumer_release(previous)

                    tile_m, tile_n = self.rasterise(tile, tiles_m, tiles_n)
                    offset_m: int32 = tile_m * self.block_m + 64 * quarter
                    offset_n: int32 = tile_n * self.block_n
                    for column in tuple(range(0, self.block_n, 64)):  # 64 columns leave at a time
                        part = self.slice(acc, offsets=[0, column], shape=[64, 64])
                        with self.single_thread():
                            self.tma.wait_group(0, read=True)  # the last ones have been read
                        self.sync()
                        self.store_shared(sc[quarter], part)
                        self.fence.proxy_async()  # each thread: what I have written, TMA will read
                        self.sync()
                        with self.single_thread():
                            self.tma.shared_to_global(
                                sc[quarter], gc, offsets=[offset_m, offset_n + column]
                            )
                            self.tma.commit_group()

                with self.single_thread():
                    self.tma.wait_group(0)  # shared memory is gone with its block

    def rasterise(self, block, tiles_m, tiles_n):
        """Return the tile of a block: groups of ``group_m`` tile rows, walked column by column."""
        group, index = self.fast_divmod(block, self.group_m * tiles_n)
        first_m = group * self.group_m
        rows = min(self.group_m, tiles_m - first_m)  # the last group may have fewer
        tile_n, row = self.fast_divmod(index, rows)
        return first_m + row, tile_n

    def reference(self, m_size, n_size, k_size, a_ptr, b_ptr, c_ptr):
        """What the kernel approximates, on NumPy arrays: sums of products, rounded once."""
        c_ptr[...] = a_ptr.astype("float32") @ b_ptr.astype("float32").T


if __name__ == "__main__":
    m, n, k = 300, 264, 200
    rng = np.random.default_rng(0)  # of integers even float16 sums are exact, up to 2048
    a, b = (rng.integers(-1, 2, (rows, k)).astype(np.float16) for rows in (m, n))
    main(MatmulHalfSums(), m, n, k, a, b, np.zeros((m, n), np.float16))

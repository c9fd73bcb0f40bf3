# SPDX-License-Identifier: Apache-2.0
"""
V7, tiles as large as registers allow, in full waves
====================================================

C[m, n] = A[m, k] · B[n, k]ᵀ, float16 in and out, float32 accumulation.
"""

import tilus
from tilus import float16, float32, int32, uint32
from tilus.utils import cdiv
from tilus.workload import main


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


@tilus.autotune("num_stages", [3, 4])
@tilus.autotune("block_m, block_n", [(128, 128), (128, 256), (256, 128), (256, 192), (256, 200)])
@tilus.autotune("group_m", [8, 11, 16])
@tilus.autotune("num_blocks", [128, 132])
class MatmulWGMMAV7(tilus.Script):
    def __init__(self, num_stages, block_m, block_n, group_m, num_blocks, block_k=64):
        super().__init__()
        self.num_stages = num_stages
        self.block_m = block_m
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
        self.attrs.warps = 12  # warps 0-3 and 4-7 compute, warp 8 loads, 9-11 give registers away

        half_m = self.block_m // 2  # each consumer group computes half of the rows

        ga = self.global_view(a_ptr, dtype=float16, shape=[m_size, k_size])
        gb = self.global_view(b_ptr, dtype=float16, shape=[n_size, k_size])
        gc = self.global_view(c_ptr, dtype=float16, shape=[m_size, n_size])
        sa = self.shared_tensor(dtype=float16, shape=[self.num_stages, 2, half_m, self.block_k])
        sb = self.shared_tensor(dtype=float16, shape=[self.num_stages, self.block_n, self.block_k])
        sc = self.shared_tensor(dtype=float16, shape=[2, 64, self.block_n])

        pipeline = Pipeline(self.num_stages, consumer_arrivals=2)

        with self.thread_group(thread_begin=256, num_threads=128, registers=24), self.single_warp():
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

        for half in (0, 1):
            with self.thread_group(thread_begin=128 * half, num_threads=128, registers=240):
                for tile in self.range(self.blockIdx.x, tiles, self.gridDim.x):
                    acc = self.register_tensor(
                        dtype=float32, shape=[half_m, self.block_n], init=0.0
                    )
                    previous: int32 = 0
                    for offset_k in self.range(0, k_size, self.block_k):
                        pipeline.consumer_acquire()
                        stage = pipeline.consumer_stage
                        self.wgmma.fence()
                        self.wgmma.mma(sa[stage, half], sb[stage].transpose(), acc)
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
                    offset_m: int32 = tile_m * self.block_m + half * half_m
                    offset_n: int32 = tile_n * self.block_n
                    for row in tuple(range(0, half_m, 64)):  # 64 rows leave at a time
                        rows = self.slice(acc, offsets=[row, 0], shape=[64, self.block_n])
                        with self.single_thread():
                            self.tma.wait_group(0, read=True)  # the last ones have been read
                        self.sync()
                        self.store_shared(sc[half], self.cast(rows, dtype=float16))
                        self.fence.proxy_async()  # each thread: what I have written, TMA will read
                        self.sync()
                        with self.single_thread():
                            self.tma.shared_to_global(
                                sc[half], gc, offsets=[offset_m + row, offset_n]
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
        """What the kernel computes, on NumPy arrays: the tuner compares with it."""
        c_ptr[...] = a_ptr.astype("float32") @ b_ptr.astype("float32").T


if __name__ == "__main__":
    main(MatmulWGMMAV7, version="v7")

# SPDX-License-Identifier: Apache-2.0
"""
Masked images: two blocks share every tile
==========================================

y[i] = x[i] * mask for a batch of images. Two blocks, one image each, form a cluster. Each of them
fetches one half of every tile of the mask and sends it to both.
"""

import numpy as np

import tilus
from tilus import float32, int32, uint32
from tilus.demo import main
from tilus.utils import cdiv

BOTH = 0b11  # a bit for each block of the cluster


class MaskImages(tilus.Script):
    def __init__(self, tile_m=32, tile_n=64, num_stages=2):
        super().__init__()
        self.tile_m = tile_m
        self.tile_n = tile_n
        self.num_stages = num_stages

    def __call__(
        self,
        images: int32,
        m: int32,
        n: int32,
        x_ptr: ~float32,
        mask_ptr: ~float32,
        y_ptr: ~float32,
    ):
        self.attrs.blocks = cdiv(images, 2) * 2, cdiv(n, self.tile_n)
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 5  # warps 0-3 compute, warp 4 loads

        image: int32 = self.blockIdx.x
        column: int32 = self.blockIdx.y * self.tile_n
        rank = self.cluster.blockRank
        half = self.tile_m // 2

        gx = self.global_view(x_ptr, dtype=float32, shape=[images, m, n])
        gm = self.global_view(mask_ptr, dtype=float32, shape=[m, n])
        gy = self.global_view(y_ptr, dtype=float32, shape=[images, m, n])
        ring = self.shared_tensor(dtype=float32, shape=[self.num_stages, 2, half, self.tile_n])

        full = self.mbarrier.alloc([1] * self.num_stages)
        empty = self.mbarrier.alloc([2] * self.num_stages)  # the readers of both blocks
        self.cluster.sync()  # now each block may use the other one's barriers

        with self.single_warp(4):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.producer_initial_phase
            for row in self.range(0, m, self.tile_m):
                self.mbarrier.wait(empty[stage], phase=phase, scope="cluster")
                with self.single_thread():  # both halves come, one of them from the other block
                    self.mbarrier.arrive_and_expect_tx(full[stage], ring[stage].nbytes)
                    self.tma.global_to_shared(
                        src=gm,
                        dst=ring[stage, rank],
                        offsets=[row + rank * half, column],
                        mbarrier=full[stage],
                        multicast_mask=BOTH,
                    )
                stage = (stage + 1) % self.num_stages
                phase = phase ^ (stage == 0)

        with self.thread_group(thread_begin=0, num_threads=128):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.consumer_initial_phase
            for row in self.range(0, m, self.tile_m):
                self.mbarrier.wait(full[stage], phase=phase)
                for part in (0, 1):
                    at = [image, row + part * half, column]
                    x = self.load_global(gx, offsets=at, shape=[half, self.tile_n])
                    y = x * self.load_shared(ring[stage, part])
                    self.store_global(gy, y, offsets=at)
                self.sync()
                with self.single_thread():  # both blocks may send the next tile
                    for block in (0, 1):
                        self.mbarrier.arrive_remote(empty[stage], rank=block)
                stage = (stage + 1) % self.num_stages
                phase = phase ^ (stage == 0)

        self.cluster.sync()  # the other block may still signal barriers of this one

    def reference(self, images, m, n, x_ptr, mask_ptr, y_ptr):
        y_ptr[...] = x_ptr * mask_ptr


if __name__ == "__main__":
    images, m, n = 3, 150, 100
    x = np.arange(images * m * n, dtype=np.float32).reshape(images, m, n)
    mask = np.random.default_rng(0).integers(0, 2, (m, n)).astype(np.float32)
    main(MaskImages(), images, m, n, x, mask, np.zeros_like(x))

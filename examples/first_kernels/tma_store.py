# SPDX-License-Identifier: Apache-2.0
"""
Scale: an engine stores what threads have staged
================================================

y = factor * x. Threads compute a tile and leave it in shared memory; one thread asks TMA to bring
it to device memory. Meanwhile all of them load the next tile.
"""

import numpy as np

import tilus
from tilus import float32, int32
from tilus.demo import main
from tilus.utils import cdiv


class Scale(tilus.Script):
    def __init__(self, tile_m=16, tile_n=64):
        super().__init__()
        self.tile_m = tile_m
        self.tile_n = tile_n

    def __call__(self, m: int32, n: int32, factor: float32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = cdiv(m, self.tile_m)
        self.attrs.warps = 4

        row: int32 = self.blockIdx.x * self.tile_m
        shape = [self.tile_m, self.tile_n]

        gx = self.global_view(x_ptr, dtype=float32, shape=[m, n])
        gy = self.global_view(y_ptr, dtype=float32, shape=[m, n])
        staging = self.shared_tensor(dtype=float32, shape=shape)

        for column in self.range(0, n, self.tile_n):
            x = self.load_global(gx, offsets=[row, column], shape=shape)

            with self.single_thread():
                self.tma.wait_group(0, read=True)  # the last tile has left shared memory
            self.sync()
            self.store_shared(staging, x * factor)
            self.fence.proxy_async()  # each thread: what I have written, an engine will read
            self.sync()

            with self.single_thread():
                self.tma.shared_to_global(staging, gy, offsets=[row, column])
                self.tma.commit_group()

        with self.single_thread():
            self.tma.wait_group(0)  # shared memory is gone with its block

    def reference(self, m, n, factor, x_ptr, y_ptr):
        y_ptr[...] = factor * x_ptr


if __name__ == "__main__":
    m, n = 100, 300
    x = np.arange(m * n, dtype=np.float32).reshape(m, n)
    main(Scale(), m, n, 0.5, x, np.zeros_like(x))

# SPDX-License-Identifier: Apache-2.0
"""
Transpose: threads exchange a tile through shared memory
========================================================

y[j, i] = x[i, j]. Neighbouring threads read neighbours of a row and write neighbours of a row, so
that device memory moves whole lines; in between the tile changes hands in shared memory.
"""

import numpy as np

import tilus
from tilus import float32, int32
from tilus.demo import main
from tilus.utils import cdiv


class Transpose(tilus.Script):
    def __init__(self, tile=32):
        super().__init__()
        self.tile = tile

    def __call__(self, m: int32, n: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = cdiv(m, self.tile), cdiv(n, self.tile)
        self.attrs.warps = 4

        i: int32 = self.blockIdx.x * self.tile
        j: int32 = self.blockIdx.y * self.tile

        gx = self.global_view(x_ptr, dtype=float32, shape=[m, n])
        gy = self.global_view(y_ptr, dtype=float32, shape=[n, m])
        shared = self.shared_tensor(dtype=float32, shape=[self.tile, self.tile])

        x = self.load_global(gx, offsets=[i, j], shape=[self.tile, self.tile])
        self.store_shared(shared, x)
        self.sync()  # every thread reads what others have written
        y = self.load_shared(shared.transpose())
        self.store_global(gy, y, offsets=[j, i])

    def reference(self, m, n, x_ptr, y_ptr):
        y_ptr[...] = x_ptr.T


if __name__ == "__main__":
    m, n = 100, 70
    x = np.arange(m * n, dtype=np.float32).reshape(m, n)
    main(Transpose(), m, n, x, np.zeros((n, m), np.float32))

# SPDX-License-Identifier: Apache-2.0
"""
Row sums: a loop that carries a tile, reduced once
==================================================

y[i] = sum of x[i, :], for rows of any length. The loop adds tiles element by element, without any
exchange between threads; one reduction follows it.
"""

import numpy as np

import tilus
from tilus import float32, int32
from tilus.demo import main
from tilus.utils import cdiv


class RowSum(tilus.Script):
    def __init__(self, rows=8, columns=256):
        super().__init__()
        self.rows = rows
        self.columns = columns

    def __call__(self, m: int32, n: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = cdiv(m, self.rows)
        self.attrs.warps = 4

        row: int32 = self.blockIdx.x * self.rows

        gx = self.global_view(x_ptr, dtype=float32, shape=[m, n])
        gy = self.global_view(y_ptr, dtype=float32, shape=[m])

        partial = self.register_tensor(dtype=float32, shape=[self.rows, self.columns], init=0.0)
        for column in self.range(0, n, self.columns):
            # Elements outside of the view are 0, which a sum does not see.
            x = self.load_global(gx, offsets=[row, column], shape=[self.rows, self.columns])
            partial += x

        # A row lies in one warp: its lanes exchange their sums without shared memory.
        self.store_global(gy, self.sum(partial, dim=1), offsets=[row])

    def reference(self, m, n, x_ptr, y_ptr):
        y_ptr[...] = x_ptr.sum(axis=1)


if __name__ == "__main__":
    m, n = 100, 1000
    x = np.random.default_rng(0).random((m, n), dtype=np.float32)
    main(RowSum(), m, n, x, np.zeros(m, np.float32))

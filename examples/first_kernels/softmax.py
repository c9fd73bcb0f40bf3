# SPDX-License-Identifier: Apache-2.0
"""
Row softmax: reductions and broadcasting
========================================

y[i, :] = exp(x[i, :]) / sum(exp(x[i, :])), for rows that fit in registers. Subtracting the largest
element first keeps exp from overflowing and changes nothing else.
"""

import numpy as np

import tilus
from tilus import float32, int32
from tilus.demo import main
from tilus.utils import cdiv


class Softmax(tilus.Script):
    def __init__(self, rows=4):
        super().__init__()
        self.rows = rows

    def __call__(self, m: int32, n: int, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = cdiv(m, self.rows)
        self.attrs.warps = 4

        row: int32 = self.blockIdx.x * self.rows
        width = 1 << (n - 1).bit_length()  # a power of two, so that threads share a row evenly

        gx = self.global_view(x_ptr, dtype=float32, shape=[m, n])
        gy = self.global_view(y_ptr, dtype=float32, shape=[m, n])

        # Behind the end of a row stands -inf: no maximum, and its exp is 0.
        x = self.load_global(gx, offsets=[row, 0], shape=[self.rows, width], outside=float("-inf"))
        x = self.exp(x - self.max(x, dim=1, keepdim=True))
        y = x / self.sum(x, dim=1, keepdim=True)
        self.store_global(gy, y, offsets=[row, 0])

    def reference(self, m, n, x_ptr, y_ptr):
        e = np.exp(x_ptr - x_ptr.max(axis=1, keepdims=True))
        y_ptr[...] = e / e.sum(axis=1, keepdims=True)


if __name__ == "__main__":
    m, n = 50, 1000
    x = np.random.default_rng(0).standard_normal((m, n), dtype=np.float32)
    main(Softmax(), m, n, x, np.zeros_like(x))

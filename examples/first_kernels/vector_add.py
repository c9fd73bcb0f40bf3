# SPDX-License-Identifier: Apache-2.0
"""
Vector add: a block of threads, a tile each
===========================================

c = a + b. A block adds 1024 elements. The last one has fewer: what lies outside of a view is loaded
as 0 and not stored.
"""

import numpy as np

import tilus
from tilus import float32, int32
from tilus.demo import main
from tilus.utils import cdiv


class VectorAdd(tilus.Script):
    def __init__(self, block=1024):
        super().__init__()
        self.block = block

    def __call__(self, n: int32, a_ptr: ~float32, b_ptr: ~float32, c_ptr: ~float32):
        self.attrs.blocks = cdiv(n, self.block)
        self.attrs.warps = 4

        start: int32 = self.blockIdx.x * self.block

        ga = self.global_view(a_ptr, dtype=float32, shape=[n])
        gb = self.global_view(b_ptr, dtype=float32, shape=[n])
        gc = self.global_view(c_ptr, dtype=float32, shape=[n])

        # Each of the 128 threads holds 8 elements of a tile, and moves four at once.
        a = self.load_global(ga, offsets=[start], shape=[self.block])
        b = self.load_global(gb, offsets=[start], shape=[self.block])
        self.store_global(gc, a + b, offsets=[start])

    def reference(self, n, a_ptr, b_ptr, c_ptr):
        c_ptr[...] = a_ptr + b_ptr


if __name__ == "__main__":
    n = 10_000
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(n, dtype=np.float32) for _ in range(2))
    main(VectorAdd(), n, a, b, np.zeros_like(a))

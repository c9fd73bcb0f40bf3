# SPDX-License-Identifier: Apache-2.0
"""
Two loads, two barriers: a kernel to break
==========================================

c = a + b, tile by tile. TMA brings both tiles in, and each load has a barrier of its own.
"""

import numpy as np

import tilus
from tilus import float16, int32
from tilus.demo import main
from tilus.utils import cdiv


class TwoLoads(tilus.Script):
    def __init__(self, rows=64, columns=64):
        super().__init__()
        self.rows = rows
        self.columns = columns

    def __call__(self, m: int32, n: int, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float16):
        self.attrs.blocks = cdiv(m, self.rows), cdiv(n, self.columns)
        self.attrs.warps = 4

        row: int32 = self.blockIdx.x * self.rows
        column: int32 = self.blockIdx.y * self.columns

        ga = self.global_view(a_ptr, dtype=float16, shape=[m, n])
        gb = self.global_view(b_ptr, dtype=float16, shape=[m, n])
        gc = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        sa = self.shared_tensor(dtype=float16, shape=[self.rows, self.columns])
        sb = self.shared_tensor(dtype=float16, shape=[self.rows, self.columns])

        a_loaded = self.mbarrier.alloc(1)
        b_loaded = self.mbarrier.alloc(1)
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(a_loaded, transaction_bytes=sa.nbytes)
            self.mbarrier.arrive_and_expect_tx(b_loaded, transaction_bytes=sb.nbytes)
            self.tma.global_to_shared(src=ga, dst=sa, offsets=[row, column], mbarrier=a_loaded)
            self.tma.global_to_shared(src=gb, dst=sb, offsets=[row, column], mbarrier=b_loaded)
        self.mbarrier.wait(a_loaded, phase=0)
        self.mbarrier.wait(b_loaded, phase=0)

        total = self.load_shared(sa) + self.load_shared(sb)
        self.store_global(gc, total, offsets=[row, column])

    def reference(self, m, n, a_ptr, b_ptr, c_ptr):
        c_ptr[...] = a_ptr + b_ptr


if __name__ == "__main__":
    m, n = 200, 136
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((m, n)).astype(np.float16) for _ in range(2))
    main(TwoLoads(), m, n, a, b, np.zeros_like(a))

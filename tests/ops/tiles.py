# SPDX-License-Identifier: Apache-2.0
"""Small kernels the tests of instructions share."""

import numpy as np

import tilus
from tilus import float16, float32, int32


class OneTile(tilus.Script):
    """C = A · Bᵀ for one tile of block_m x block_n and one K-block: TMA, WGMMA, nothing else."""

    def __init__(self, block_m, block_n, block_k, products=1):
        self.block_m, self.block_n, self.block_k = block_m, block_n, block_k
        self.products = products

    def __call__(self, m: int32, n: int, k: int, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        ga = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        gb = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        gc = self.global_view(c_ptr, dtype=float32, shape=[m, n])
        sa = self.shared_tensor(dtype=float16, shape=[self.block_m, self.block_k])
        sb = self.shared_tensor(dtype=float16, shape=[self.block_n, self.block_k])
        full = self.mbarrier.alloc(1)
        acc = self.register_tensor(dtype=float32, shape=[self.block_m, self.block_n], init=0.0)
        with self.single_warp():
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, sa.nbytes + sb.nbytes)
            self.tma.global_to_shared(src=ga, dst=sa, offsets=[0, 0], mbarrier=full)
            self.tma.global_to_shared(src=gb, dst=sb, offsets=[0, 0], mbarrier=full)
        self.mbarrier.wait(full, phase=0)
        self.wgmma.fence()
        for _ in self.range(self.products):
            self.wgmma.mma(sa, sb.transpose(), acc)
        self.wgmma.commit_group()
        self.wgmma.wait_group(0)
        self.store_global(gc, acc, offsets=[0, 0])


class Fetching(tilus.Script):
    """Kernels that begin as the one above, whose lines are golden: with two tiles."""

    def fetch(self, ga, sa, gb, sb):
        """Bring the first box of each view into its tile by TMA, and wait for both."""
        full = self.mbarrier.alloc(1)
        with self.single_warp():
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, sa.nbytes + sb.nbytes)
            self.tma.global_to_shared(src=ga, dst=sa, offsets=[0, 0], mbarrier=full)
            self.tma.global_to_shared(src=gb, dst=sb, offsets=[0, 0], mbarrier=full)
        self.mbarrier.wait(full, phase=0)


def integers(*shape, seed=0):
    """Return float16 values from {-1, 0, 1}: every partial sum of a product is exact."""
    return np.random.default_rng(seed).integers(-1, 2, shape).astype(np.float16)


def product(a, b):
    """Return A · Bᵀ in float32."""
    return a.astype(np.float32) @ b.astype(np.float32).T


def poisoned(*shape, dtype=np.float32):
    """Return an array of NaN."""
    return np.full(shape, np.nan, dtype)


class Sim:
    """The simulator, for tests that draw their cases: a fixture serves one case only."""

    name = "sim"

    def run(self, kernel, *arguments):
        """Call ``kernel``, whatever device is chosen."""
        before = tilus.option.current_device
        tilus.option.device("sim")
        try:
            kernel(*arguments)
        finally:
            tilus.option.device(before)

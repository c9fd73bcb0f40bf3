# SPDX-License-Identifier: Apache-2.0
"""
The ceiling, products and nothing else
======================================

What a GPU can do for a kernel of the ladder at best: tiles of random numbers lie in shared memory,
two consumer groups multiply them over and over, nobody loads, waits for loads or stores.
"""

import numpy as np

import tilus
from tilus import float16, float32, int32
from tilus.demo import main


class WgmmaCeiling(tilus.Script):
    """``steps`` products of [block_m, 64] by [64, block_n] in each block; tile s of A and of B is
    used in steps s, s + num_stages, s + 2 num_stages, ..."""

    def __init__(self, block_m, block_n, num_stages=3, block_k=64, num_blocks=132):
        super().__init__()
        self.block_m = block_m
        self.block_n = block_n
        self.num_stages = num_stages
        self.block_k = block_k
        self.num_blocks = num_blocks  # one for each multiprocessor

    def __call__(self, rounds: int32, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float32):
        self.attrs.blocks = self.num_blocks
        self.attrs.warps = 8

        half_m = self.block_m // 2
        rows_a, rows_b = self.num_stages * self.block_m, self.num_stages * self.block_n

        ga = self.global_view(a_ptr, dtype=float16, shape=[rows_a, self.block_k])
        gb = self.global_view(b_ptr, dtype=float16, shape=[rows_b, self.block_k])
        gc = self.global_view(c_ptr, dtype=float32, shape=self.result_shape)
        sa = self.shared_tensor(dtype=float16, shape=[self.num_stages, 2, half_m, self.block_k])
        sb = self.shared_tensor(dtype=float16, shape=[self.num_stages, self.block_n, self.block_k])

        full = self.mbarrier.alloc(1)
        with self.single_warp():
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=sa.nbytes + sb.nbytes)
            for stage in tuple(range(self.num_stages)):
                self.tma.global_to_shared(
                    src=ga, dst=sa[stage], offsets=[stage * self.block_m, 0], mbarrier=full
                )
                self.tma.global_to_shared(
                    src=gb, dst=sb[stage], offsets=[stage * self.block_n, 0], mbarrier=full
                )

        for half in (0, 1):
            with self.thread_group(thread_begin=128 * half, num_threads=128):
                acc = self.register_tensor(dtype=float32, shape=[half_m, self.block_n], init=0.0)
                self.mbarrier.wait(full, phase=self.mbarrier.consumer_initial_phase)
                for _ in self.range(rounds):
                    for stage in tuple(range(self.num_stages)):
                        self.wgmma.fence()
                        self.wgmma.mma(sa[stage, half], sb[stage].transpose(), acc)
                        self.wgmma.commit_group()
                        self.wgmma.wait_group(1)
                self.wgmma.wait_group(0)
                # All products reach the result: none that nobody reads would have to be computed.
                self.store_global(
                    gc, self.sum(acc, dim=1), offsets=[self.blockIdx.x, half * half_m]
                )

    @property
    def result_shape(self):
        """A block's result: the sums of the rows of its tile."""
        return [self.num_blocks, self.block_m]

    def reference(self, rounds, a_ptr, b_ptr, c_ptr):
        """The same in NumPy: the first rows of A belong to the first stage, and so on."""
        shape = (self.num_stages, -1, self.block_k)
        a, b = (x.astype(np.float32).reshape(shape) for x in (a_ptr, b_ptr))
        c_ptr[...] = rounds * np.einsum("smk,snk->m", a, b)

    def flops(self, rounds):
        """Return how many operations a launch does."""
        steps = rounds * self.num_stages
        return 2 * self.num_blocks * self.block_m * self.block_n * self.block_k * steps


if __name__ == "__main__":
    rng, kernel = np.random.default_rng(0), WgmmaCeiling(128, 256, num_blocks=2)
    a, b = (
        rng.integers(-1, 2, (kernel.num_stages * rows, kernel.block_k)).astype(np.float16)
        for rows in (kernel.block_m, kernel.block_n)
    )
    main(kernel, 4, a, b, np.zeros(kernel.result_shape, np.float32))

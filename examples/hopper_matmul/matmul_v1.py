# SPDX-License-Identifier: Apache-2.0
"""
V1, WGMMA: the tensor cores read shared memory themselves
=========================================================

C[m, n] = A[m, k] · B[n, k]ᵀ, float16 in and out, float32 accumulation.
"""

import tilus
from tilus import float16, float32, int32, uint32
from tilus.utils import cdiv
from tilus.workload import main


@tilus.autotune("block_m, block_n", [(64, 128), (128, 64), (128, 128)])
@tilus.autotune("block_k", [16, 32, 64])
class MatmulWGMMA(tilus.Script):
    def __init__(self, block_m, block_n, block_k):
        super().__init__()
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k

    def __call__(
        self,
        m_size: int32,
        n_size: int,
        k_size: int,
        a_ptr: ~float16,
        b_ptr: ~float16,
        c_ptr: ~float16,
    ):
        self.attrs.blocks = cdiv(m_size, self.block_m), cdiv(n_size, self.block_n)
        self.attrs.warps = 4  # one warp group

        offset_m: int32 = self.blockIdx.x * self.block_m
        offset_n: int32 = self.blockIdx.y * self.block_n

        ga = self.global_view(a_ptr, dtype=float16, shape=[m_size, k_size])
        gb = self.global_view(b_ptr, dtype=float16, shape=[n_size, k_size])
        gc = self.global_view(c_ptr, dtype=float16, shape=[m_size, n_size])
        sa = self.shared_tensor(dtype=float16, shape=[self.block_m, self.block_k])
        sb = self.shared_tensor(dtype=float16, shape=[self.block_n, self.block_k])

        barrier = self.mbarrier.alloc(1)
        phase: uint32 = 0
        acc = self.register_tensor(dtype=float32, shape=[self.block_m, self.block_n], init=0.0)

        for offset_k in self.range(0, k_size, self.block_k):
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(barrier, transaction_bytes=sa.nbytes + sb.nbytes)
                self.tma.global_to_shared(
                    src=ga, dst=sa, offsets=[offset_m, offset_k], mbarrier=barrier
                )
                self.tma.global_to_shared(
                    src=gb, dst=sb, offsets=[offset_n, offset_k], mbarrier=barrier
                )
            self.mbarrier.wait(barrier, phase=phase)
            phase ^= 1

            self.wgmma.fence()
            self.wgmma.mma(sa, sb.transpose(), acc)
            self.wgmma.commit_group()
            self.wgmma.wait_group(0)
            self.sync()  # all four warps are done with the tiles: they may be overwritten

        casted_acc = self.cast(acc, dtype=float16)
        self.store_global(gc, casted_acc, offsets=[offset_m, offset_n])

    def reference(self, m_size, n_size, k_size, a_ptr, b_ptr, c_ptr):
        """What the kernel computes, on NumPy arrays: the tuner compares with it."""
        c_ptr[...] = a_ptr.astype("float32") @ b_ptr.astype("float32").T


if __name__ == "__main__":
    main(MatmulWGMMA, version="v1")

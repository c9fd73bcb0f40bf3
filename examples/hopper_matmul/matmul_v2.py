# SPDX-License-Identifier: Apache-2.0
"""
V2, a ring of stages: loads run ahead of the tensor cores
=========================================================

C[m, n] = A[m, k] · B[n, k]ᵀ, float16 in and out, float32 accumulation.
"""

import tilus
from tilus import float16, float32, int32, uint32
from tilus.utils import cdiv
from tilus.workload import main


@tilus.autotune("max_num_stages", [2, 3, 4, 5, 6, 7])
@tilus.autotune("block_m, block_n", [(64, 128), (128, 64), (128, 128)])
@tilus.autotune("block_k", [16, 32, 64])
class MatmulWGMMAV2(tilus.Script):
    def __init__(self, max_num_stages, block_m, block_n, block_k):
        super().__init__()
        self.max_num_stages = max_num_stages
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
        # A short K does not fill the ring: take as many stages as it has tiles.
        num_stages = max(1, min(self.max_num_stages, cdiv(k_size, self.block_k)))

        ga = self.global_view(a_ptr, dtype=float16, shape=[m_size, k_size])
        gb = self.global_view(b_ptr, dtype=float16, shape=[n_size, k_size])
        gc = self.global_view(c_ptr, dtype=float16, shape=[m_size, n_size])
        sa = self.shared_tensor(dtype=float16, shape=[num_stages, self.block_m, self.block_k])
        sb = self.shared_tensor(dtype=float16, shape=[num_stages, self.block_n, self.block_k])

        barriers = self.mbarrier.alloc([1] * num_stages)
        phases = self.register_tensor(dtype=uint32, shape=[num_stages], init=0)
        acc = self.register_tensor(dtype=float32, shape=[self.block_m, self.block_n], init=0.0)

        # Prefill: every stage has a load in flight before the first product begins.
        for stage in self.range(min(num_stages, cdiv(k_size, self.block_k)), unroll="all"):
            self.load(ga, gb, sa, sb, barriers, stage, offset_m, offset_n, stage * self.block_k)

        stage: int32 = 0
        for offset_k in self.range(0, k_size, self.block_k, unroll=num_stages):
            self.mbarrier.wait(barriers[stage], phase=phases[stage])
            phases[stage] ^= 1
            self.wgmma.fence()
            self.wgmma.mma(sa[stage], sb[stage].transpose(), acc)
            self.wgmma.commit_group()
            self.wgmma.wait_group(0)
            self.sync()  # all four warps are done with the stage: refill it

            ahead: int32 = offset_k + num_stages * self.block_k
            if ahead < k_size:
                self.load(ga, gb, sa, sb, barriers, stage, offset_m, offset_n, ahead)
            stage = (stage + 1) % num_stages

        casted_acc = self.cast(acc, dtype=float16)
        self.store_global(gc, casted_acc, offsets=[offset_m, offset_n])

    def load(self, ga, gb, sa, sb, barriers, stage, offset_m, offset_n, offset_k):
        """Let one thread announce the bytes of a stage and start its two loads."""
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(
                barriers[stage], transaction_bytes=sa[stage].nbytes + sb[stage].nbytes
            )
            self.tma.global_to_shared(
                src=ga, dst=sa[stage], offsets=[offset_m, offset_k], mbarrier=barriers[stage]
            )
            self.tma.global_to_shared(
                src=gb, dst=sb[stage], offsets=[offset_n, offset_k], mbarrier=barriers[stage]
            )

    def reference(self, m_size, n_size, k_size, a_ptr, b_ptr, c_ptr):
        """What the kernel computes, on NumPy arrays: the tuner compares with it."""
        c_ptr[...] = a_ptr.astype("float32") @ b_ptr.astype("float32").T


if __name__ == "__main__":
    main(MatmulWGMMAV2, version="v2")

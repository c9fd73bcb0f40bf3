# SPDX-License-Identifier: Apache-2.0
"""
V3, warp specialisation: one warp only loads, four warps only compute
=====================================================================

C[m, n] = A[m, k] · B[n, k]ᵀ, float16 in and out, float32 accumulation.
"""

import tilus
from tilus import float16, float32, int32, uint32
from tilus.utils import cdiv
from tilus.workload import main


@tilus.autotune("num_stages", [2, 3, 4, 5, 6, 7])
@tilus.autotune("block_m, block_n", [(128, 64), (128, 128), (128, 256), (256, 128), (256, 256)])
@tilus.autotune("block_k", [16, 32, 64])
class MatmulWGMMAV3(tilus.Script):
    def __init__(self, num_stages, block_m, block_n, block_k):
        super().__init__()
        self.num_stages = num_stages
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
        self.attrs.warps = 5  # warps 0-3 compute, warp 4 loads

        offset_m: int32 = self.blockIdx.x * self.block_m
        offset_n: int32 = self.blockIdx.y * self.block_n

        ga = self.global_view(a_ptr, dtype=float16, shape=[m_size, k_size])
        gb = self.global_view(b_ptr, dtype=float16, shape=[n_size, k_size])
        gc = self.global_view(c_ptr, dtype=float16, shape=[m_size, n_size])
        sa = self.shared_tensor(dtype=float16, shape=[self.num_stages, self.block_m, self.block_k])
        sb = self.shared_tensor(dtype=float16, shape=[self.num_stages, self.block_n, self.block_k])

        # A stage is full when one thread has announced its bytes and all of them have come.
        consumer_barriers = self.mbarrier.alloc([1] * self.num_stages)
        # A stage is empty when each of the 128 consumer threads has said so.
        producer_barriers = self.mbarrier.alloc([128] * self.num_stages)

        with self.thread_group(thread_begin=128, num_threads=32):
            phases = self.register_tensor(
                dtype=uint32, shape=[self.num_stages], init=self.mbarrier.producer_initial_phase
            )
            stage: int32 = 0
            for offset_k in self.range(0, k_size, self.block_k, unroll=self.num_stages):
                self.mbarrier.wait(producer_barriers[stage], phase=phases[stage])
                phases[stage] ^= 1
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(
                        consumer_barriers[stage],
                        transaction_bytes=sa[stage].nbytes + sb[stage].nbytes,
                    )
                    self.tma.global_to_shared(
                        src=ga,
                        dst=sa[stage],
                        offsets=[offset_m, offset_k],
                        mbarrier=consumer_barriers[stage],
                    )
                    self.tma.global_to_shared(
                        src=gb,
                        dst=sb[stage],
                        offsets=[offset_n, offset_k],
                        mbarrier=consumer_barriers[stage],
                    )
                stage = (stage + 1) % self.num_stages

            # Stay until the last loads are consumed. A short K never wrapped: begin at stage 0.
            if cdiv(k_size, self.block_k) < self.num_stages:
                stage = 0
            for _ in self.range(min(self.num_stages, cdiv(k_size, self.block_k))):
                self.mbarrier.wait(producer_barriers[stage], phase=phases[stage])
                phases[stage] ^= 1
                stage = (stage + 1) % self.num_stages

        with self.thread_group(thread_begin=0, num_threads=128):
            phases = self.register_tensor(
                dtype=uint32, shape=[self.num_stages], init=self.mbarrier.consumer_initial_phase
            )
            acc = self.register_tensor(dtype=float32, shape=[self.block_m, self.block_n], init=0.0)
            stage: int32 = 0
            for _ in self.range(0, k_size, self.block_k, unroll=self.num_stages):
                self.mbarrier.wait(consumer_barriers[stage], phase=phases[stage])
                phases[stage] ^= 1
                self.wgmma.fence()
                self.wgmma.mma(sa[stage], sb[stage].transpose(), acc)
                self.wgmma.commit_group()
                self.wgmma.wait_group(0)
                self.mbarrier.arrive(producer_barriers[stage])
                stage = (stage + 1) % self.num_stages

            casted_acc = self.cast(acc, dtype=float16)
            self.store_global(gc, casted_acc, offsets=[offset_m, offset_n])

    def reference(self, m_size, n_size, k_size, a_ptr, b_ptr, c_ptr):
        """What the kernel computes, on NumPy arrays: the tuner compares with it."""
        c_ptr[...] = a_ptr.astype("float32") @ b_ptr.astype("float32").T


if __name__ == "__main__":
    main(MatmulWGMMAV3, version="v3")

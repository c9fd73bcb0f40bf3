# SPDX-License-Identifier: Apache-2.0
"""A kernel that reads an array with rows any distance apart through TMA, by NumPy and PyTorch."""

import tilus
from tilus import float16, int32, int64
from tilus.utils import cdiv


class Pitched(tilus.Script):
    """C = A, for rows of A that are ``pitch`` elements apart; what is outside of A is not read."""

    def __call__(self, m: int32, k: int32, pitch: int64, a: ~float16, c: ~float16):
        self.attrs.blocks, self.attrs.warps = (cdiv(m, 64), cdiv(k, 64)), 4
        ga = self.global_view(a, dtype=float16, shape=[m, k], strides=[pitch, 1])
        gc = self.global_view(c, dtype=float16, shape=[m, k])
        sa = self.shared_tensor(dtype=float16, shape=[64, 64])
        full = self.mbarrier.alloc(1)
        row, column = self.blockIdx.x * 64, self.blockIdx.y * 64
        with self.single_warp(), self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=sa.nbytes)
            self.tma.global_to_shared(ga, sa, offsets=[row, column], mbarrier=full)
        self.mbarrier.wait(full, phase=0)
        self.store_global(gc, self.load_shared(sa), offsets=[row, column])


FORMS = [(64, 64, 64), (100, 72, 72), (64, 64, 128), (32, 64, 128), (1, 200, 200), (64, 64, 64)]
"""Rows, columns and pitch of arrays that begin at one address, one after the other."""

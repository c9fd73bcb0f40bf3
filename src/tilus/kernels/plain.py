# SPDX-License-Identifier: Apache-2.0
"""The kernel behind :func:`tilus.kernels.matmul` that takes whatever TMA does not.

Rows at any address, any strides, any sizes: each element is looked up by its own place.
"""

import tilus
from tilus import bfloat16, float16, float32, int32, int64
from tilus.utils import cdiv


class Plain(tilus.Script):
    """C[m, n] = A[m, k] · B[k, n] by ``mma.sync``, sums in float32; strides count elements."""

    dtype = float16

    def __init__(self, block_m=64, block_n=64, block_k=32, warps=4):
        super().__init__()
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k
        self.warps = warps

    def __call__(
        self,
        m_size: int32,
        n_size: int32,
        k_size: int32,
        a_row: int64,
        a_column: int64,
        b_row: int64,
        b_column: int64,
        c_row: int64,
        c_column: int64,
        a_ptr: ~float16,
        b_ptr: ~float16,
        c_ptr: ~float16,
    ):
        steps = [a_row, a_column], [b_row, b_column], [c_row, c_column]
        self.multiply(m_size, n_size, k_size, *zip((a_ptr, b_ptr, c_ptr), steps, strict=True))

    def multiply(self, m_size, n_size, k_size, a, b, c):
        """Make the tile of C of this block; a, b and c are pointer and strides of an array."""
        self.attrs.blocks = cdiv(m_size, self.block_m) * cdiv(n_size, self.block_n)
        self.attrs.warps = self.warps
        tile_n, tile_m = self.fast_divmod(self.blockIdx.x, cdiv(m_size, self.block_m))
        offset_m: int32 = tile_m * self.block_m
        offset_n: int32 = tile_n * self.block_n

        a, b, c = (
            self.global_view(ptr, dtype=self.dtype, shape=shape, strides=strides)
            for shape, (ptr, strides) in (
                ([m_size, k_size], a),
                ([k_size, n_size], b),
                ([m_size, n_size], c),
            )
        )
        sa = self.shared_tensor(dtype=self.dtype, shape=[self.block_m, self.block_k])
        sb = self.shared_tensor(dtype=self.dtype, shape=[self.block_k, self.block_n])
        acc = self.register_tensor(dtype=float32, shape=[self.block_m, self.block_n], init=0.0)
        for offset_k in self.range(0, k_size, self.block_k):
            part_a = self.load_global(
                a, offsets=[offset_m, offset_k], shape=[self.block_m, self.block_k]
            )
            part_b = self.load_global(
                b, offsets=[offset_k, offset_n], shape=[self.block_k, self.block_n]
            )
            self.store_shared(sa, part_a)
            self.store_shared(sb, part_b)
            self.sync()
            self.dot(self.load_shared(sa), self.load_shared(sb), acc, out=acc)
            self.sync()  # all warps have read the tiles: they may be overwritten
        self.store_global(c, self.cast(acc, dtype=self.dtype), offsets=[offset_m, offset_n])


class PlainBfloat16(Plain):
    """:class:`Plain` for bfloat16."""

    dtype = bfloat16

    def __call__(
        self,
        m_size: int32,
        n_size: int32,
        k_size: int32,
        a_row: int64,
        a_column: int64,
        b_row: int64,
        b_column: int64,
        c_row: int64,
        c_column: int64,
        a_ptr: ~bfloat16,
        b_ptr: ~bfloat16,
        c_ptr: ~bfloat16,
    ):
        steps = [a_row, a_column], [b_row, b_column], [c_row, c_column]
        self.multiply(m_size, n_size, k_size, *zip((a_ptr, b_ptr, c_ptr), steps, strict=True))

# SPDX-License-Identifier: Apache-2.0
"""TMA: boxes that hang over the edge of a view, and what is refused."""

import numpy as np
import pytest
from tests.ops.tiles import OneTile, integers, poisoned, product

import tilus
from tilus import LanguageError, float16


@pytest.mark.parametrize("m, n, k", [(40, 24, 64), (64, 8, 8), (1, 1, 40)])
def test_global_to_shared_fills_zeros_outside(backend, m, n, k):
    """The tile is 64 x 32 x 64, the matrices are smaller: what lies outside counts as zero."""
    a, b, c = integers(m, k), integers(n, k, seed=1), poisoned(m, n)
    backend.run(OneTile(64, 32, 64), m, n, k, a, b, c)
    assert np.array_equal(c, product(a, b))


class Copy(tilus.Script):
    """One copy with a fault."""

    def __init__(self, threads=1, rows=64, dtype=float16, transposed=False, offsets=2):
        self.threads, self.rows, self.dtype = threads, rows, dtype
        self.transposed, self.offsets = transposed, offsets

    def __call__(self, a_ptr: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        ga = self.global_view(a_ptr, dtype=float16, shape=[512, 64])
        sa = self.shared_tensor(dtype=self.dtype, shape=[self.rows, 64])
        full = self.mbarrier.alloc(1)
        with self.thread_group(thread_begin=0, num_threads=self.threads):
            dst = sa.transpose() if self.transposed else sa
            self.tma.global_to_shared(src=ga, dst=dst, offsets=[0] * self.offsets, mbarrier=full)


@pytest.mark.parametrize(
    "fault, message",
    [
        ({"threads": 64}, "the current group must be one thread or one warp, got 64 threads"),
        ({"rows": 512}, "dst must be at most 256 rows, got 512"),
        ({"dtype": tilus.float32}, "dst must be of type float16, got float32"),
        ({"transposed": True}, "dst must be a tile that is not transposed"),
        ({"offsets": 3}, "offsets must be a list of 2, got 3"),
    ],
)
def test_global_to_shared_refuses(fault, message):
    with pytest.raises(LanguageError, match=f"global_to_shared: {message}"):
        Copy(**{"threads": 32} | fault).lower()

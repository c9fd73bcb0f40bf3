# SPDX-License-Identifier: Apache-2.0
"""Copies between shared memory and registers: any shape, type and view."""

import numpy as np
import pytest
from tests.kernels import script

import tilus
from tilus import LanguageError, float16, float32, int8, int32


class Move(tilus.Script):
    """Store a tile of ``value`` to shared memory and load it from there, either transposed."""

    def __init__(self, dtype, shape, store_transposed=False, load_transposed=False):
        self.dtype, self.shape = dtype, list(shape)
        self.store_transposed, self.load_transposed = store_transposed, load_transposed

    def __call__(self, c_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        rows, columns = self.shape
        tile = self.shared_tensor(dtype=float32, shape=[2, rows, columns])
        values = self.register_tensor(dtype=float32, shape=[rows, columns], init=1.0)
        self.store_shared(tile[1], values)
        self.sync()
        c = self.global_view(c_ptr, dtype=float32, shape=[rows, columns])
        self.store_global(c, self.load_shared(tile[1]), offsets=[0, 0])


def test_store_shared_and_load_shared(backend):
    c = np.full((32, 48), np.nan, np.float32)
    backend.run(Move(float32, (32, 48)), c)
    assert (c == 1).all()


def test_load_shared_refuses():
    def kernel(self):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        tile = self.shared_tensor(dtype=float16, shape=[2, 8, 8])
        self.load_shared(tile)

    with pytest.raises(LanguageError, match="load_shared: src must be a tile of one or two"):
        script(kernel).lower()

# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on register tiles."""

import numpy as np
import pytest

import tilus
from tilus import LanguageError, float16, float32


class Cast(tilus.Script):
    """Convert one value to float16 and store it 64 x 32 times."""

    def __init__(self, value, dtype=float16):
        self.value, self.dtype = value, dtype

    def __call__(self, c_ptr: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        gc = self.global_view(c_ptr, dtype=float16, shape=[64, 32])
        x = self.register_tensor(dtype=float32, shape=[64, 32], init=self.value)
        self.store_global(gc, self.cast(x, dtype=self.dtype), offsets=[0, 0])


@pytest.mark.parametrize("value", [1.0, 2049.0, 2051.0, 65519.0, 65520.0, -1e30, 1e-8, 3e-8])
def test_cast_rounds_to_nearest_even_and_overflows_to_infinity(backend, value):
    c = np.zeros((64, 32), np.float16)
    backend.run(Cast(value), c)
    with np.errstate(over="ignore"):
        assert np.array_equal(c, np.full_like(c, np.float32(value)))


def test_cast_refuses_what_it_cannot():
    with pytest.raises(LanguageError, match=r"cast: dtype must be float16 .* got int32"):
        Cast(1.0, tilus.int32).lower()

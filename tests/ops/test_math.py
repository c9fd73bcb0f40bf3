# SPDX-License-Identifier: Apache-2.0
"""Conversions: NumPy says what is right."""

import functools

import numpy as np
import pytest
from tests import sass
from tests.kernels import script

import tilus
from tilus import (
    LanguageError,
    bfloat16,
    boolean,
    compiler,
    float16,
    float32,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
)


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


TYPES = [boolean, int8, uint8, int16, uint16, int32, uint32, float16, bfloat16, float32]


@functools.cache
def cast_class(source, target):
    """Return the class of kernels that convert a tile from one type to another."""

    class Convert(tilus.Script):
        def __call__(self, n: int, a_ptr: ~source, c_ptr: ~target):
            self.attrs.blocks = 1
            self.attrs.warps = 1
            ga = self.global_view(a_ptr, dtype=source, shape=[n])
            gc = self.global_view(c_ptr, dtype=target, shape=[n])
            a = self.load_global(ga, offsets=[0], shape=[n])
            self.store_global(gc, self.cast(a, dtype=target), offsets=[0])

    return Convert


def numbers(dtype, n=96):
    """Return numbers of a type, its corners among them."""
    rng = np.random.default_rng(5)
    if dtype.kind == "b":
        return rng.random(n) < 0.5
    if dtype.is_float:
        values = np.concatenate([CORNERS, rng.standard_normal(n - len(CORNERS)) * 300])
        with np.errstate(over="ignore"):
            return values.astype(np.float32).astype(dtype.numpy)
    info = np.iinfo(dtype.numpy)
    return rng.integers(info.min, info.max, n, dtype.numpy, endpoint=True)


CORNERS = [0.5, -0.5, 1.5, 2.5, -2.5, 127.9, 128.0, -128.9, 255.9, -0.0, 3e9, -3e9, 5e9, 1e-8,
           np.inf, -np.inf, np.nan, 2049.0, 65519.0, 65520.0, 2147483520.0, 32768.0]  # fmt: skip


def in_numpy(values, target):
    """Return the numbers as ``target``: saturated from floats, wrapped from integers."""
    if target.is_integer and values.dtype.kind not in "iub":
        info = np.iinfo(target.numpy)
        wide = [0 if x != x else max(info.min, min(info.max, x)) for x in values.astype(float)]
        return np.array([int(x) for x in wide], target.numpy)
    with np.errstate(over="ignore"):
        wide = values.astype(np.float32) if target.is_float else values
        return wide != 0 if target.kind == "b" else wide.astype(target.numpy)


@pytest.mark.parametrize("source", TYPES, ids=str)
@pytest.mark.parametrize("target", TYPES, ids=str)
def test_cast_between_all_types(backend, source, target):
    a = numbers(source)
    c = np.zeros(a.shape, target.numpy)
    backend.run(cast_class(source, target)(), len(a), a, c)
    assert np.array_equal(c, in_numpy(a, target), equal_nan=target.is_float)


@functools.cache
def casts_class(source):
    """Return the class of kernels that convert a tile to every type."""

    class Casts(tilus.Script):
        def __call__(self, a_ptr: ~source):
            self.attrs.blocks = 1
            self.attrs.warps = 1
            for target in TYPES:
                ga = self.global_view(a_ptr, dtype=source, shape=[64])
                gc = self.global_view(a_ptr, dtype=target, shape=[64])
                a = self.load_global(ga, offsets=[0], shape=[64])
                self.store_global(gc, self.cast(a, dtype=target), offsets=[0])

    return Casts


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_casts_compile(source):
    code = compiler.build(casts_class(source)().lower()).cubin.code
    assert sass.stack(code) == 0


def test_cast_refuses_what_it_cannot():
    def wide(self, p: ~int64):
        self.attrs.blocks, self.attrs.warps = 1, 1
        self.cast(self.register_tensor(dtype=int64, shape=[64], init=1), dtype=float32)

    def no_tile(self, p: ~int64):
        self.attrs.blocks, self.attrs.warps = 1, 1
        self.cast(self.shared_tensor(dtype=float16, shape=[64, 64]), dtype=float32)

    with pytest.raises(LanguageError, match="cast: dtype must be of at most 32 bits"):
        script(wide).lower()
    with pytest.raises(LanguageError, match="cast: takes a register tile and a type"):
        script(no_tile).lower()

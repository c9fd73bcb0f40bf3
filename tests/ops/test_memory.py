# SPDX-License-Identifier: Apache-2.0
"""Stores from registers: whole tiles, edges, odd pitches and bases, any strides."""

import numpy as np
import pytest
from tests.kernels import script

import tilus
from tilus import LanguageError, float16, float32, int32
from tilus.emitter import emit

FILL = 1.5


class Store(tilus.Script):
    """Store a 64 x 32 tile of one value at an offset, through a view with any pitch."""

    def __init__(self, row_step=None, column_step=1):
        self.row_step, self.column_step = row_step, column_step

    def __call__(self, m: int32, n: int, i: int32, j: int32, c_ptr: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        strides = [n if self.row_step is None else self.row_step, self.column_step]
        gc = self.global_view(c_ptr, dtype=float16, shape=[m, n], strides=strides)
        acc = self.register_tensor(dtype=float32, shape=[64, 32], init=FILL)
        half = self.cast(acc, dtype=float16)
        self.store_global(gc, half, offsets=[i, j])


def poisoned(*shape):
    return np.full(shape, np.nan, np.float16)


@pytest.mark.parametrize("m, n, i, j", [(64, 32, 0, 0), (100, 50, 40, 20), (70, 33, 6, 1)])
def test_store_global_writes_its_box_and_nothing_else(backend, m, n, i, j):
    c, expected = poisoned(m, n), poisoned(m, n)
    backend.run(Store(), m, n, i, j, c)
    expected[i : i + 64, j : j + 32] = FILL
    assert np.array_equal(c, expected, equal_nan=True)


def test_store_global_to_transposed_view(backend):
    """Column-major: neighbours in a row lie a pitch apart, so pairs must not be stored at once."""
    m, n, pitch = 60, 40, 64
    c, expected = poisoned(n, pitch), poisoned(n, pitch)
    backend.run(Store(row_step=1, column_step=pitch), m, n, 0, 0, c[:, :m].T)
    expected[:32, :m] = FILL
    assert np.array_equal(c, expected, equal_nan=True)


@pytest.mark.parametrize("first", [0, 1, 2])
def test_store_global_leaves_what_surrounds_the_view(backend, first):
    """A pitch of 37 and a base that is not 4-byte aligned allow no pairs."""
    m, n, pitch = 64, 32, 37
    c = poisoned(m, pitch)
    backend.run(Store(row_step=pitch), m, n, 0, 0, c[:, first : first + n])
    inside = np.zeros((m, pitch), bool)
    inside[:, first : first + n] = True
    assert np.array_equal(np.isnan(c), ~inside)
    assert np.all(c[inside] == FILL)


class Wrong(tilus.Script):
    """A store of the wrong type or rank."""

    def __init__(self, fault):
        self.fault = fault

    def __call__(self, c_ptr: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        gc = self.global_view(c_ptr, dtype=float16, shape=[64, 32])
        acc = self.register_tensor(dtype=float32, shape=[64, 32], init=0.0)
        half = self.cast(acc, dtype=float16)
        if self.fault == "type":
            self.store_global(gc, acc, offsets=[0, 0])
        self.store_global(gc, half, offsets=[0])


@pytest.mark.parametrize(
    "fault, message",
    [("type", "src must be of type float16, got float32"), ("rank", "offsets must be a list of 2")],
)
def test_store_global_refuses(fault, message):
    with pytest.raises(LanguageError, match=f"store_global: {message}"):
        Wrong(fault).lower()


@pytest.mark.parametrize("i, j", [(-8, 0), (0, -4), (-70, 0), (90, -1)])
def test_store_global_leaves_out_what_lies_before_the_view(backend, i, j):
    c, expected = poisoned(100, 32), poisoned(100, 32)
    backend.run(Store(), 100, 32, i, j, c)
    expected[max(i, 0) : max(i + 64, 0), max(j, 0) : j + 32] = FILL
    assert np.array_equal(c, expected, equal_nan=True)


def test_only_offsets_that_may_be_negative_are_compared_with_0():
    assert "first_0 + " in emit(Store().lower(n=32))
    assert ">= 0" in emit(Store().lower(n=32))

    def kernel(self, m: int32, c_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        gc = self.global_view(c_ptr, dtype=float32, shape=[m, 64])
        tile = self.register_tensor(dtype=float32, shape=[64, 64], init=1.0)
        self.store_global(gc, tile, offsets=[self.blockIdx.x * 64, 0])

    assert ">= 0" not in emit(script(kernel).lower())


def test_store_global_refuses_the_tile_of_another_group():
    def kernel(self, m: int32, c_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 8
        gc = self.global_view(c_ptr, dtype=float32, shape=[m, 64])
        tile = self.register_tensor(dtype=float32, shape=[64, 64], init=1.0)
        with self.thread_group(thread_begin=0, num_threads=128):
            self.store_global(gc, tile, offsets=[0, 0])

    with pytest.raises(LanguageError, match="src must be held by warps 0-3, got warps 0-7"):
        script(kernel).lower()


def test_store_global_refuses_a_tensor_that_each_thread_holds_whole():
    def kernel(self, c_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        gc = self.global_view(c_ptr, dtype=int32, shape=[32])
        counts = self.register_tensor(dtype=int32, shape=[32], init=1)
        self.store_global(gc, counts, offsets=[0])

    with pytest.raises(LanguageError, match="src must be spread over the registers"):
        script(kernel).lower()

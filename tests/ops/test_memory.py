# SPDX-License-Identifier: Apache-2.0
"""Loads and stores of tiles: whole ones, edges, odd pitches and bases, any strides."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sass
from tests.kernels import script
from tests.ops.tiles import Sim

import tilus
from tilus import LanguageError, bfloat16, compiler, disasm, float16, float32, int8, int32
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


def test_store_global_of_a_small_integer_tensor(backend):
    """One that is indexed is held whole by each thread, another is spread as any tile."""

    def kernel(self, n: int32, c_ptr: ~int32, d_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        gc = self.global_view(c_ptr, dtype=int32, shape=[32])
        gd = self.global_view(d_ptr, dtype=int32, shape=[4, 32])
        counts = self.register_tensor(dtype=int32, shape=[32], init=1)
        for i in self.range(n):
            counts[i * 7 % 32] += i
        others = self.register_tensor(dtype=int32, shape=[32], init=5)
        self.store_global(gc, counts + others, offsets=[0])
        wide = self.register_tensor(dtype=int32, shape=[4, 32], init=1)
        self.store_global(gd, wide * counts, offsets=[0, 0])

    c, d, counts = np.zeros(32, np.int32), np.zeros((4, 32), np.int32), np.ones(32, np.int32)
    for i in range(40):
        counts[i * 7 % 32] += i
    compiler.build(script(kernel).lower())
    backend.run(script(kernel), 40, c, d)
    assert np.array_equal(c, counts + 5)
    assert np.array_equal(d, np.broadcast_to(counts, (4, 32)))


@functools.cache
def copy_class(dtype):
    """Return the class of kernels that copy a box from one view to another."""

    class Copy(tilus.Script):
        def __init__(self, shape, view, warps=1):
            self.shape, self.view, self.warps = shape, view, warps

        def __call__(self, i: int32, j: int32, a_ptr: ~dtype, c_ptr: ~dtype):
            self.attrs.blocks = 1
            self.attrs.warps = self.warps
            rank = len(self.view)
            ga = self.global_view(a_ptr, dtype=dtype, shape=self.view)
            gc = self.global_view(c_ptr, dtype=dtype, shape=self.view)
            tile = self.load_global(ga, offsets=[*[i] * (rank - 1), j], shape=self.shape)
            self.store_global(gc, tile, offsets=[*[j] * (rank - 1), i])

    return Copy


GUARD = 64  # elements before and behind an array


def guarded(dtype, shape):
    """Return an array with other memory around it, which is full of 77."""
    size = int(np.prod(shape))
    return np.full(size + 2 * GUARD, 77, dtype.numpy)[GUARD : GUARD + size].reshape(shape)


def copied(backend, dtype, shape, view, i, j, warps):
    """Copy a box and return what came out and what should have."""
    a, c = guarded(dtype, view), guarded(dtype, view)
    a[...] = np.arange(1, np.prod(view) + 1).reshape(view).astype(dtype.numpy)
    c[...] = 0
    backend.run(copy_class(dtype)(shape, view, warps), i, j, a, c)
    around = np.split(c.base, [GUARD, GUARD + c.size])
    assert (around[0] == 77).all() and (around[2] == 77).all()
    full = (1,) * (len(view) - len(shape)) + shape
    tile, wanted = np.zeros(full, a.dtype), np.zeros_like(a)
    for at in np.ndindex(full):
        place = [i + x for x in at[:-1]] + [j + at[-1]]
        if all(0 <= x < n for x, n in zip(place, view, strict=True)):
            tile[at] = a[tuple(place)]
    for at in np.ndindex(full):
        place = [j + x for x in at[:-1]] + [i + at[-1]]
        if all(0 <= x < n for x, n in zip(place, view, strict=True)):
            wanted[tuple(place)] = tile[at]
    return c, wanted


@pytest.mark.parametrize("dtype", [float32, float16, int8, bfloat16], ids=str)
@pytest.mark.parametrize(
    "shape, view, i, j",
    [
        ((64,), (100,), 0, 0),
        ((64,), (100,), 3, 60),
        ((64,), (100,), 60, 3),
        ((64,), (101,), 0, 40),
        ((64,), (101,), 40, 0),
        ((8, 16), (20, 32), 4, 24),
        ((8, 16), (20, 32), 24, 4),
        ((64,), (100,), -8, 16),
        ((8, 16), (20, 32), 4, 8),
        ((8, 16), (20, 33), 16, 17),
        ((16,), (20, 32), 5, 8),
        ((2, 4, 8), (3, 5, 16), 0, 8),
        ((2, 4, 8), (3, 5, 17), 1, 1),
    ],
    ids=str,
)
def test_load_global_and_store_global_copy_boxes(backend, dtype, shape, view, i, j):
    c, wanted = copied(backend, dtype, shape, view, i, j, warps=1)
    assert np.array_equal(c, wanted)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(1, 20), min_size=1, max_size=3)
    .map(tuple)
    .filter(lambda shape: np.prod(shape) <= 192),
    more=st.integers(0, 1),
    i=st.integers(-9, 9),
    j=st.integers(-9, 9),
    warps=st.sampled_from([1, 3, 4]),
)
def test_load_global_of_any_box(shape, more, i, j, warps):
    view = ((3,) * more if len(shape) < 3 else ()) + tuple(n + 3 for n in shape)
    c, wanted = copied(Sim(), float32, shape, view, i, j, warps)
    assert np.array_equal(c, wanted)


@pytest.mark.parametrize("dtype", [float32, float16, int8, bfloat16], ids=str)
def test_aligned_boxes_move_16_bytes_at_once(dtype):
    n = 16 // dtype.nbytes * 64
    code = compiler.build(copy_class(dtype)((n,), (4096,), 2).lower()).cubin.code
    text = disasm.sass(code)
    assert "LDG.E.128" in text and "STG.E.128" in text
    assert sass.stack(code) == 0 and not {"LDL", "STL"} & set(sass.opcodes(code))


def test_load_global_refuses():
    def view(self, a_ptr: ~float32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        self.load_global(a_ptr, offsets=[0], shape=[4])

    def rank(self, a_ptr: ~float32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        ga = self.global_view(a_ptr, dtype=float32, shape=[64])
        self.load_global(ga, offsets=[0], shape=[4, 4])

    def registers(self, a_ptr: ~float32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        ga = self.global_view(a_ptr, dtype=float32, shape=[1001])
        self.load_global(ga, offsets=[0], shape=[1001])

    for kernel, message in (
        (view, "load_global: src must be a view"),
        (rank, "load_global: src must be a tile of 1 dimensions or fewer"),
        (registers, "at most 208 registers a thread, got 1001 .*32 threads do not divide it"),
    ):
        with pytest.raises(LanguageError, match=message):
            script(kernel).lower()


@functools.cache
def edge_class(dtype):
    """Return the class of kernels that load a box at an edge, with a number outside of it."""

    class Edge(tilus.Script):
        def __init__(self, outside):
            self.outside = outside

        def __call__(self, n: int32, i: int32, a_ptr: ~dtype, c_ptr: ~dtype):
            self.attrs.blocks = 1
            self.attrs.warps = 1
            ga = self.global_view(a_ptr, dtype=dtype, shape=[4, n])
            gc = self.global_view(c_ptr, dtype=dtype, shape=[8, 64])
            tile = self.load_global(ga, offsets=[-2, i], shape=[8, 64], outside=self.outside)
            self.store_global(gc, tile, offsets=[0, 0])

    return Edge


@pytest.mark.parametrize("n", [48, 51])
@pytest.mark.parametrize(
    "dtype, outside", [(float32, float("-inf")), (float16, 1.5), (int32, -7), (int8, 100)], ids=str
)
def test_load_global_puts_a_number_outside(backend, dtype, outside, n):
    a, c = np.ones((4, n), dtype.numpy), np.zeros((8, 64), dtype.numpy)
    compiler.build(edge_class(dtype)(outside).lower())
    backend.run(edge_class(dtype)(outside), n, 16, a, c)
    wanted = np.full((8, 64), outside, dtype.numpy)
    wanted[2:6, : n - 16] = 1
    assert np.array_equal(c, wanted)


@pytest.mark.parametrize("outside", [0.5, 128, "zero"])
def test_load_global_refuses_what_its_type_does_not_hold(outside):
    with pytest.raises(LanguageError, match="outside must be a compile-time number of type int8"):
        edge_class(int8)(outside).lower()

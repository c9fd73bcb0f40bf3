# SPDX-License-Identifier: Apache-2.0
"""Reductions of register tiles: any shape, dimension and number of warps, as NumPy does."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sass
from tests.kernels import script
from tests.ops.tiles import Sim

import tilus
from tilus import LanguageError, bfloat16, boolean, compiler, float16, float32, int8, int32, uint32
from tilus.emitter import emit
from tilus.layout import blocked, wgmma_accumulator
from tilus.ops.reduce import exchange

TYPES = [float32, float16, bfloat16, int8, int32, uint32, boolean]


def result_type(op, dtype):
    """Return the type that a reduction gives."""
    return int32 if op == "sum" and dtype in (int8, boolean) else dtype


@functools.cache
def reduce_class(dtype, out):
    """Return the class of kernels that reduce one tile."""

    class Reduce(tilus.Script):
        def __init__(self, op, shape, dim, keepdim, warps):
            self.op, self.shape, self.dim, self.keepdim = op, shape, dim, keepdim
            self.warps = warps

        def __call__(self, x_ptr: ~dtype, y_ptr: ~out):
            self.attrs.blocks = 1
            self.attrs.warps = self.warps
            gx = self.global_view(x_ptr, dtype=dtype, shape=self.shape)
            x = self.load_global(gx, offsets=[0] * len(self.shape), shape=self.shape)
            y = getattr(self, self.op)(x, dim=self.dim, keepdim=self.keepdim)
            gy = self.global_view(y_ptr, dtype=out, shape=y.shape or [1])
            self.store_global(gy, y, offsets=[0] * len(gy.shape))

    return Reduce


def draw(dtype, shape, seed=1):
    rng = np.random.default_rng(seed)
    if dtype.is_float:  # sums are exact
        return rng.integers(-3, 4, shape).astype(dtype.numpy)
    if dtype.kind == "b":
        return rng.random(shape) < 0.3
    info = np.iinfo(dtype.numpy)
    return rng.integers(info.min, info.max, shape, dtype.numpy, endpoint=True)


def check(backend, op, dtype, shape, dim, keepdim, warps):
    out, x = result_type(op, dtype), draw(dtype, shape)
    wide = x.astype(np.float32) if dtype.is_float else x
    wanted = getattr(wide, op)(axis=dim, keepdims=keepdim)
    y = np.zeros(wanted.shape or 1, out.numpy)
    backend.run(reduce_class(dtype, out)(op, shape, dim, keepdim, warps), x, y)
    assert np.array_equal(y.reshape(wanted.shape), wanted.astype(out.numpy))


SHAPES = [
    ((4, 64), 1, 1), ((4, 64), 0, 4), ((1, 512), 1, 4), ((64, 4), 0, 4), ((128,), 0, 2),
    ((2, 4, 32), (0, 2), 2), ((3, 40), 1, 3), ((8, 8), None, 1), ((16, 96), -1, 3),
]  # fmt: skip


@pytest.mark.parametrize("shape, dim, warps", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_sum_of_every_type(backend, dtype, shape, dim, warps):
    check(backend, "sum", dtype, shape, dim, False, warps)


@pytest.mark.parametrize("shape, dim, warps", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [float32, bfloat16, int8, uint32, boolean], ids=str)
def test_max_of_every_type(backend, dtype, shape, dim, warps):
    check(backend, "max", dtype, shape, dim, True, warps)


@pytest.mark.parametrize("shape, dim, warps", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [float32, float16, int32, boolean], ids=str)
def test_min_of_every_type(backend, dtype, shape, dim, warps):
    check(backend, "min", dtype, shape, dim, True, warps)


@settings(max_examples=60, deadline=None)
@given(
    op=st.sampled_from(["sum", "max", "min"]),
    shape=st.lists(st.sampled_from([1, 2, 3, 4, 8, 12, 32]), min_size=1, max_size=3)
    .map(tuple)
    .filter(lambda shape: np.prod(shape) <= 512),
    chosen=st.integers(1, 7),
    keepdim=st.booleans(),
    warps=st.sampled_from([1, 2, 3, 4]),
)
def test_any_shape_and_dimension(op, shape, chosen, keepdim, warps):
    dims = tuple(d for d in range(len(shape)) if chosen >> d & 1) or None
    check(Sim(), op, float32, shape, dims, keepdim, warps)


LAYOUTS = st.builds(
    blocked,
    st.lists(st.sampled_from([1, 2, 3, 4, 8, 24, 32, 128]), min_size=1, max_size=3)
    .map(tuple)
    .filter(lambda shape: np.prod(shape) <= 1024),
    st.sampled_from([1, 32, 64, 96, 128, 160]),
    st.sampled_from([2, 4]),
) | st.builds(wgmma_accumulator, st.sampled_from([64, 128]), st.sampled_from([8, 32]))


@settings(max_examples=60, deadline=None)
@given(LAYOUTS, st.integers(1, 7))
def test_exchange_brings_each_part_to_every_thread_once(layout, chosen):
    """Carry sets of elements along the lines that the generated code takes."""
    dims = [d for d in range(len(layout.shape)) if chosen >> d & 1]
    less, found = layout.without(dims), exchange(layout, dims)
    held = layout.coordinates()
    flat = np.ravel_multi_index(tuple(np.moveaxis(held, -1, 0)), layout.shape)
    parts = [[[] for _ in range(less.registers)] for _ in range(layout.threads)]
    for r in range(layout.registers):
        into = eval(layout.register_without(dims, str(r)).replace("/", "//"))
        for t in range(layout.threads):
            parts[t][into].append(flat[t, r])
    for mask in found.lanes:
        assert mask < 32
        parts = [
            [a + b for a, b in zip(mine, parts[t ^ mask], strict=True)]
            for t, mine in enumerate(parts)
        ]
    scratch = {}
    place = np.ravel_multi_index(tuple(np.moveaxis(less.coordinates(), -1, 0)), less.shape)
    for t in range(layout.threads):
        number = eval(found.part(str(t)).replace("/", "//"))
        assert number < found.count
        for r in range(less.registers):
            values = sorted(parts[t][r])
            assert scratch.setdefault((place[t, r], number), values) == values
    every = np.arange(np.prod(layout.shape)).reshape(layout.shape)
    for at in np.ndindex(less.shape):
        index = tuple(slice(None) if d in dims else i for d, i in enumerate(at))
        where = np.ravel_multi_index(at, less.shape)
        got = sorted(x for n in range(found.count) for x in scratch[where, n])
        assert got == sorted(every[index].reshape(-1).tolist())


def test_sum_within_a_warp_takes_no_shared_memory():
    kernel = reduce_class(float32, float32)("sum", (4, 1024), 1, False, 4).lower()
    assert kernel.plan.shared_bytes == 0
    assert emit(kernel).count("__shfl_xor_sync") == 5
    code = compiler.build(kernel).cubin.code
    assert sass.opcodes(code)["SHFL"] >= 5 and sass.stack(code) == 0


def test_sum_across_warps_takes_one_float_a_warp():
    kernel = reduce_class(float32, float32)("sum", (1, 1024), 1, False, 4).lower()
    assert kernel.plan.shared_bytes == 16
    assert emit(kernel).count("__syncthreads()") == 2


@pytest.mark.parametrize("op", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_reductions_compile_without_local_memory(op, dtype):
    kernel = reduce_class(dtype, result_type(op, dtype))(op, (8, 96), (0, 1), True, 3).lower()
    code = compiler.build(kernel).cubin.code
    assert sass.stack(code) == 0 and not {"LDL", "STL"} & set(sass.opcodes(code))


def test_max_is_nan_where_an_element_is(backend):
    x, y = np.zeros((4, 64), np.float32), np.zeros(4, np.float32)
    x[2, 33] = np.nan
    backend.run(reduce_class(float32, float32)("max", (4, 64), 1, False, 2), x, y)
    assert np.array_equal(y, [0, 0, np.nan, 0], equal_nan=True)


class Normalise(tilus.Script):
    """Layer normalisation: reductions, broadcasting, a row of weights, two groups at once."""

    def __init__(self, columns):
        self.columns = columns

    def norm(self, gx, gw, gy, row):
        x = self.cast(self.load_global(gx, offsets=[row, 0], shape=[2, self.columns]), float32)
        w = self.load_global(gw, offsets=[0], shape=[self.columns])
        mean = self.sum(x, dim=1, keepdim=True) / self.columns
        x -= mean
        variance = self.sum(x * x, dim=-1, keepdim=True) / self.columns
        y = x * self.rsqrt(variance + 1e-5) * w
        self.store_global(gy, self.cast(y, float16), offsets=[row, 0])

    def __call__(self, x_ptr: ~float16, w_ptr: ~float32, y_ptr: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 8
        gx = self.global_view(x_ptr, dtype=float16, shape=[4, self.columns])
        gw = self.global_view(w_ptr, dtype=float32, shape=[self.columns])
        gy = self.global_view(y_ptr, dtype=float16, shape=[4, self.columns])
        for group in [0, 1]:
            with self.warp_group(4 * group, 4):
                self.norm(gx, gw, gy, 2 * group)


def test_sums_of_two_groups_do_not_meet(backend):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((4, 256)).astype(np.float16)
    w, y = rng.standard_normal(256).astype(np.float32), np.zeros((4, 256), np.float16)
    kernel = Normalise(256)
    assert len(set(kernel.lower().plan.scratch.values())) == 2
    compiler.build(kernel.lower())
    backend.run(kernel, x, w, y)
    wide = x.astype(np.float32)
    wide -= wide.mean(axis=1, keepdims=True)
    wanted = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-5) * w
    assert np.allclose(y.astype(np.float32), wanted, rtol=2e-3, atol=1e-4)


def test_reductions_refuse_wrong_dimensions():
    def kernel(self, dim: int):
        self.attrs.blocks, self.attrs.warps = 1, 1
        self.sum(self.register_tensor(dtype=float32, shape=[4, 32], init=0.0), dim=dim)

    with pytest.raises(LanguageError, match="sum: dim must be compile-time dimensions from -2 to"):
        script(kernel).lower(dim=2)
    with pytest.raises(LanguageError, match="max: takes a register tile, got 1"):

        def number(self):
            self.attrs.blocks, self.attrs.warps = 1, 1
            self.max(1)

        script(number).lower()

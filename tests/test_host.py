# SPDX-License-Identifier: Apache-2.0
"""What the generated CUDA of tiles computes, run on this machine's processor: what NumPy says."""

import functools
import shutil

import numpy as np
import pytest
from tests import test_carried
from tests.examples import test_first_kernels as first
from tests.host import Host
from tests.ops import elementwise
from tests.ops import test_math as math
from tests.ops import test_memory as memory
from tests.ops import test_reduce as reduce
from tests.ops import test_tile as tile

import tilus
from tilus import bfloat16, boolean, float16, float32, int8, int32, uint8

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler here")
HOST = Host()


@pytest.mark.parametrize("dtype", [*elementwise.FLOATS, *elementwise.INTEGERS, boolean], ids=str)
def test_operators(dtype):
    a = elementwise.draw(np.random.default_rng(4), dtype, (16, 64))
    c, truth = np.zeros((40, 16, 64), dtype.numpy), np.zeros((40, 16, 64), bool)
    HOST.run(elementwise.every_class(dtype)("+", dtype, (16, 64), (64,)), a, c, truth)
    for i, op in enumerate([op for op, t in elementwise.cases() if t == dtype]):
        found = truth[i] if op in elementwise.COMPARED else c[i]
        wanted = elementwise.expected(op, dtype, a, a[0])
        exact = op not in ("exp", "exp2", "log", "rsqrt")
        assert elementwise.close(found, wanted, dtype, exact), op


@functools.cache
def casts_class(source):
    """Return the class of kernels that convert a tile to every type, a row of 512 bytes each."""

    class Casts(tilus.Script):
        def __call__(self, n: int, a_ptr: ~source, c_ptr: ~uint8):
            self.attrs.blocks = 1
            self.attrs.warps = 1
            ga = self.global_view(a_ptr, dtype=source, shape=[n])
            a = self.load_global(ga, offsets=[0], shape=[n])
            for i, target in enumerate(math.TYPES):
                gc = self.global_view(c_ptr, dtype=target, shape=[20, 512 // target.nbytes])
                self.store_global(gc, self.cast(a, dtype=target), offsets=[i, 0])

    return Casts


@pytest.mark.parametrize("source", math.TYPES, ids=str)
def test_casts(source):
    a, c = math.numbers(source), np.zeros((20, 512), np.uint8)
    HOST.run(casts_class(source)(), len(a), a, c)
    for row, target in zip(c, math.TYPES, strict=False):
        wanted = math.in_numpy(a, target)
        found = row.view(target.numpy)[: len(a)]
        assert np.array_equal(found, wanted, equal_nan=target.is_float), target


@pytest.mark.parametrize(
    "dtype, shape, view, i, j, warps",
    [
        (float32, (64,), (100,), 0, 0, 1),
        (float32, (64,), (100,), 3, 60, 4),
        (float32, (64,), (100,), 60, 3, 4),
        (float32, (64,), (101,), 0, 40, 1),
        (float32, (64,), (101,), 40, 0, 1),
        (float16, (8, 16), (20, 32), 4, 24, 1),
        (float16, (8, 16), (20, 32), 24, 4, 1),
        (float16, (64,), (100,), -8, 16, 2),
        (int8, (8, 16), (20, 32), 4, 8, 1),
        (bfloat16, (8, 16), (20, 33), 16, 17, 3),
        (float32, (16,), (20, 32), 5, 8, 1),
        (float16, (2, 4, 8), (3, 5, 16), 0, 8, 2),
        (int32, (2, 4, 12), (3, 5, 17), 1, 1, 1),
        (float32, (5, 7), (9, 11), -2, 3, 2),
    ],
    ids=str,
)
def test_boxes(dtype, shape, view, i, j, warps):
    c, wanted = memory.copied(HOST, dtype, shape, view, i, j, warps)
    assert np.array_equal(c, wanted)


@pytest.mark.parametrize("shape, dim, warps", reduce.SHAPES, ids=str)
def test_reductions(shape, dim, warps):
    reduce.check(HOST, "sum", float32, shape, dim, False, warps)
    reduce.check(HOST, "max", int8, shape, dim, True, warps)
    reduce.check(HOST, "min", float16, shape, dim, True, warps)


def test_reductions_of_two_groups():
    reduce.test_sums_of_two_groups_do_not_meet(HOST)


@pytest.mark.parametrize("warps", [1, 4])
def test_moves_between_layouts(warps):
    tile.test_move_brings_a_tile_into_another_layout(HOST, warps)


def test_small_integer_tensors():
    memory.test_store_global_of_a_small_integer_tensor(HOST)


@pytest.mark.parametrize("steps", test_carried.ALL)
def test_carried_tiles(steps):
    test_carried.test_tiles_carried_by_loops_and_branches(HOST, steps, 3)


def test_first_kernels():
    first.test_vector_add(HOST, 3001)
    first.test_row_sum(HOST, 9, 256)
    first.test_softmax(HOST, 9, 100, 4)
    first.test_transpose(HOST, 70, 33)

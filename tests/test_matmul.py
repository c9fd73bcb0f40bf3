# SPDX-License-Identifier: Apache-2.0
"""tilus.kernels.matmul on the simulator: exact for any arrays, and errors that say what to do."""

import sys
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from tilus import ArgumentError, kernels, option, runtime
from tilus.kernels import Schedule, arrays
from tilus.kernels.matmul import plan


@pytest.fixture(autouse=True)
def on_the_simulator(monkeypatch):
    monkeypatch.setattr(option, "_device", "sim")


def integers(*shape, dtype=np.float16, seed=0):
    return np.random.default_rng(seed).integers(-1, 2, shape).astype(dtype)


def exact(a, b, out=None):
    """Multiply, and require the exact product."""
    c = kernels.matmul(a, b, out=out)
    assert out is None or c is out
    assert c.dtype == a.dtype
    np.testing.assert_array_equal(c.astype(float), a.astype(float) @ b.astype(float))
    return kernels.matmul.last_run


def by_columns(x):
    """Return the same matrix, column by column in memory."""
    return np.asfortranarray(x)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("b_order", [by_columns, np.ascontiguousarray], ids=["weights", "rows"])
def test_both_types_and_both_orders_of_b_go_to_the_fast_kernel(dtype, b_order):
    a, b = integers(72, 136, dtype=dtype), integers(136, 200, dtype=dtype, seed=1)
    assert exact(a, b_order(b)).kernel == "product"


@pytest.mark.parametrize("size", [(33, 35, 37), (1, 1, 1), (5, 7, 100)], ids=str)
@pytest.mark.parametrize("a_order", [np.ascontiguousarray, by_columns])
def test_what_tma_cannot_address_goes_to_the_plain_kernel(size, a_order):
    m, n, k = size
    ran = exact(a_order(integers(m, k)), integers(k, n, seed=1))
    assert ran.kernel == ("product" if size == (1, 1, 1) else "plain")


def test_k_of_0_gives_zeros_and_results_without_elements_run_nothing():
    assert exact(np.empty((8, 0), np.float16), np.empty((0, 8), np.float16)).kernel == "plain"
    assert exact(np.empty((0, 8), np.float16), integers(8, 8)).kernel == "none"


class Tensor:
    """One of PyTorch."""

    __module__ = "torch"
    dtype, device = "torch.float16", "cuda:1"


class Subclass(Tensor):
    """One of somebody else's, as PyTorch lets them be made."""


class Other:
    """An array of a library that we do not know."""

    __module__ = "jax.numpy"


@pytest.mark.parametrize("kind", [Tensor, Subclass])
def test_a_new_result_comes_from_the_library_of_a(kind, monkeypatch):
    made = SimpleNamespace(empty=lambda shape, dtype, device: (shape, dtype, device))
    monkeypatch.setitem(sys.modules, "torch", made)
    assert arrays.new(kind(), (2, 3)) == ((2, 3), "torch.float16", "cuda:1")


def test_a_result_of_an_unknown_library_must_be_given():
    with pytest.raises(ArgumentError, match=r"^out must be given, since arrays of jax"):
        arrays.new(Other(), (2, 3))


def test_results_go_to_rows_columns_and_parts_of_arrays():
    a, b = integers(40, 64), integers(64, 48, seed=1)
    assert exact(a, b, np.empty((48, 40), np.float16).T).kernel == "product"
    whole = np.full((40, 64), 7, np.float16)
    assert exact(a, b, whole[:, 8:56]).kernel == "product"
    assert (whole[:, :8] == 7).all() and (whole[:, 56:] == 7).all()
    assert exact(a, b, np.empty((80, 96), np.float16)[::2, ::2]).kernel == "plain"


SCHEDULES = [
    Schedule(128, 64, 2, num_blocks=2, swapped=swapped, turns=turns, split_k=split)
    for swapped in (False, True)
    for turns, split in ((False, 1), (True, 1), (False, 2))
]
SCHEDULES.append(Schedule(128, 64, 2, num_blocks=2, cluster=2))


@pytest.mark.parametrize("n", [136, 75])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_every_kind_of_schedule_for_results_that_tma_can_store_and_others(schedule, n):
    a, b = integers(40, 200), by_columns(integers(200, n, seed=1))
    out = np.full((40, n), np.nan, np.float16)
    made = plan(*(runtime.describe(x, "array") for x in (a, b, out)), "sim", 0, schedule)
    for step in made.steps:
        step.run(0)
    assert made.ran.schedule == schedule
    np.testing.assert_array_equal(out.astype(float), a.astype(float) @ b.astype(float))


@pytest.mark.parametrize(
    "a, b, out, names",
    [
        ((4, 8), (8, 4, 2), None, ["b must be of 2 dimensions", "[8, 4, 2]"]),
        ((4, 8), (9, 4), None, ["b must be of shape [8, N]", "[9, 4]", "b.T"]),
        ((4, 8), (8, 4), (4, 5), ["out must be of shape [4, 4]", "[4, 5]"]),
    ],
)
def test_shapes_that_do_not_fit(a, b, out, names):
    arrays = [np.zeros(shape, np.float16) if shape else None for shape in (a, b, out)]
    with pytest.raises(ArgumentError) as caught:
        kernels.matmul(*arrays)
    assert all(name in str(caught.value) for name in names)


def test_types_that_do_not_fit():
    a, b = integers(8, 8), integers(8, 8)
    with pytest.raises(ArgumentError, match=r"a must be of float16 or bfloat16, got float32"):
        kernels.matmul(a.astype(np.float32), b)
    with pytest.raises(ArgumentError, match=r"b must be of float16, as 'a' is, got bfloat16"):
        kernels.matmul(a, b.astype(ml_dtypes.bfloat16))
    with pytest.raises(ArgumentError, match=r"out must be of float16, as 'a' is, got float32"):
        kernels.matmul(a, b, np.zeros((8, 8), np.float32))
    with pytest.raises(ArgumentError, match=r"a must be an array .* got a list"):
        kernels.matmul([[1]], b)


def test_results_that_cannot_be_written():
    a, b, c = integers(8, 8), integers(8, 8), np.zeros((8, 8), np.float16)
    with pytest.raises(ArgumentError, match="out must be apart from 'b' in memory"):
        kernels.matmul(a, b, b)
    c.flags.writeable = False
    with pytest.raises(ArgumentError, match="out must be a writable array"):
        kernels.matmul(a, b, c)
    one = np.lib.stride_tricks.as_strided(np.zeros(8, np.float16), (8, 8), (0, 2))
    with pytest.raises(ArgumentError, match="out must be an array whose elements have a place"):
        kernels.matmul(a, b, one)
    with pytest.raises(ArgumentError, match="a must be without negative strides"):
        kernels.matmul(a[::-1], b)

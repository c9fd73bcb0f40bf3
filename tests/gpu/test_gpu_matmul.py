# SPDX-License-Identifier: Apache-2.0
"""tilus.kernels.matmul on the GPU: every kind of kernel, every order of arrays, exact."""

import ml_dtypes
import numpy as np
import pytest

from tilus import kernels, runtime
from tilus.kernels import Schedule
from tilus.kernels.arrays import transposed
from tilus.kernels.matmul import plan
from tilus.runtime import DeviceArray

FLOAT16, BFLOAT16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
KINDS = [
    Schedule(256, 200, 3, num_blocks=5, group_m=2),
    Schedule(192, 128, 3, num_blocks=5, consumers=3),
    Schedule(64, 96, 6, num_blocks=5, consumers=1),
    Schedule(128, 128, 4, num_blocks=5, turns=True),
    Schedule(128, 64, 2, num_blocks=1, turns=True),
    Schedule(256, 64, 5, num_blocks=5, swapped=True),
    Schedule(128, 128, 4, num_blocks=5, split_k=2),
    Schedule(256, 64, 5, num_blocks=5, swapped=True, split_k=2),
    Schedule(256, 160, 3, num_blocks=4, group_m=2, cluster=2),
    Schedule(128, 64, 2, num_blocks=2, cluster=2),
]


def integers(m, n, k, dtype):
    """Return factors of -1, 0 and 1, and their product, which is exact in either type."""
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.integers(-1, 2, shape).astype(dtype) for shape in ((m, k), (k, n)))
    return a, b, (a.astype(np.float32) @ b.astype(np.float32)).astype(dtype)


def by_columns(x):
    """Return the same matrix on the GPU, column by column in memory."""
    there = DeviceArray.from_numpy(np.ascontiguousarray(x.T))
    return there.view(x.shape, there.strides[::-1])


def by_rows(x):
    return DeviceArray.from_numpy(np.ascontiguousarray(x))


@pytest.mark.parametrize("size", [(520, 424, 520), (96, 1000, 648), (129, 72, 200)], ids=str)
@pytest.mark.parametrize("schedule", KINDS, ids=str)
def test_every_kind_is_exact(gpu, schedule, size):
    a, b, want = integers(*size, FLOAT16)
    left, right = by_rows(a), by_columns(b)
    out = DeviceArray(want.shape, left.dtype)
    for _ in range(3):
        out.fill_bytes(0xFF)
        arrays = (left.described, right.described, out.described)
        for step in plan(*arrays, f"cuda:{gpu.index}", 0, schedule).steps:
            step.run(0)
        np.testing.assert_array_equal(out.to_numpy(), want)


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize("order", [by_rows, by_columns])
def test_pairs_take_every_order_and_type(gpu, order, dtype):
    """Rows of C of 150 bytes, which TMA cannot store; one order needs 64 columns of B a panel."""
    a, b, want = integers(520, 75, 136, dtype)
    wide = order(np.pad(b, ((0, 0), (0, 5))))  # its rows begin at multiples of 16 bytes
    right = wide.view(b.shape, wide.strides)
    schedule = Schedule(256, 64, 4, num_blocks=4, cluster=2)
    out = DeviceArray(want.shape, right.dtype)
    arrays = (order(a).described, right.described, out.described)
    for step in plan(*arrays, f"cuda:{gpu.index}", 0, schedule).steps:
        step.run(0)
    np.testing.assert_array_equal(out.to_numpy().astype(float), want.astype(float))


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize("b_order", [by_rows, by_columns])
@pytest.mark.parametrize("a_order", [by_rows, by_columns])
@pytest.mark.parametrize(
    "size",
    [(256, 512, 320), (16, 4096, 1024), (200, 136, 72), (33, 35, 37), (64, 50, 128)],
    ids=str,
)
def test_every_order_and_type_is_exact(gpu, size, a_order, b_order, dtype):
    a, b, want = integers(*size, dtype)
    found = kernels.matmul(a_order(a), b_order(b))
    np.testing.assert_array_equal(found.to_numpy().astype(float), want.astype(float))
    assert kernels.matmul.last_run.device == f"cuda:{gpu.index}"


def test_results_leave_what_lies_beside_them(gpu):
    a, b, want = integers(70, 48, 64, FLOAT16)
    whole = DeviceArray((70, 64), by_rows(a).dtype)
    whole.fill_bytes(0xFF)
    kernels.matmul(by_rows(a), by_columns(b), whole.view((70, 48), whole.strides, offset=16))
    after = whole.to_numpy()
    np.testing.assert_array_equal(after[:, 8:56], want)
    assert np.isnan(after[:, :8]).all() and np.isnan(after[:, 56:]).all()


def test_the_transpose_of_a_result_is_a_result(gpu):
    a, b, want = integers(72, 136, 64, FLOAT16)
    out = by_columns(np.zeros_like(want))
    kernels.matmul(by_rows(a), by_columns(b), out)
    np.testing.assert_array_equal(out.to_numpy(), want)
    assert transposed(runtime.describe(out, "out")).strides[1] == 2


def test_other_arrays_at_the_same_address_are_no_old_ones(gpu):
    memory = DeviceArray((4096,), by_rows(np.zeros((8, 8), FLOAT16)).dtype)
    a, b, want = integers(64, 64, 64, FLOAT16)
    kernels.matmul(by_rows(a), by_columns(b), memory.view((64, 64)))
    np.testing.assert_array_equal(memory.view((64, 64)).to_numpy(), want)
    a, b, want = integers(32, 128, 64, FLOAT16)
    kernels.matmul(by_rows(a), by_columns(b), memory.view((32, 128)))
    np.testing.assert_array_equal(memory.view((32, 128)).to_numpy(), want)


def test_pytorch_makes_the_result_where_its_arrays_are(gpu):
    torch = pytest.importorskip("torch")
    x = torch.randint(-1, 2, (64, 256), device="cuda").to(torch.bfloat16)
    weight = torch.randint(-1, 2, (96, 256), device="cuda").to(torch.bfloat16)
    y = kernels.matmul(x, weight.T)
    assert y.device == x.device and y.dtype == torch.bfloat16
    assert torch.equal(y, x @ weight.T)

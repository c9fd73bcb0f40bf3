# SPDX-License-Identifier: Apache-2.0
"""V3 on the GPU: exact on integers, at awkward sizes and at every depth of its ring."""

import numpy as np
import pytest
from tests.kernels import load_v3

from tilus.dtypes import float16
from tilus.errors import ArgumentError
from tilus.runtime import DeviceArray

GUARD = 128


@pytest.fixture(scope="module")
def v3(gpu):
    return load_v3()


def check(kernel, m, n, k):
    """Multiply matrices of -1, 0 and 1; the product must be exact and nothing else be touched."""
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.integers(-1, 2, (rows, k)).astype(np.float16) for rows in (m, n))
    a_gpu, b_gpu = DeviceArray.from_numpy(a), DeviceArray.from_numpy(b)
    memory = DeviceArray((m * n + 2 * GUARD,), float16)
    memory.fill_bytes(0xFF)
    kernel(m, n, k, a_gpu, b_gpu, memory.view((m, n), offset=2 * GUARD))
    after = memory.to_numpy()
    assert kernel.last_run.device.startswith("cuda")
    expected = (a.astype(np.float32) @ b.T.astype(np.float32)).astype(np.float16)
    assert np.array_equal(after[GUARD:-GUARD].reshape(m, n), expected)
    assert np.isnan(after[:GUARD]).all() and np.isnan(after[-GUARD:]).all()
    assert np.array_equal(a_gpu.to_numpy(), a) and np.array_equal(b_gpu.to_numpy(), b)


@pytest.mark.parametrize("size", [(256, 256, 256), (1000, 904, 520), (1, 8, 8), (129, 1032, 2056)])
def test_sizes(v3, size):
    check(v3(4, 128, 128, 64), *size)


@pytest.mark.parametrize("stages", [2, 3, 4, 5, 6, 7])
def test_every_depth_with_every_length_of_k(v3, stages):
    kernel = v3(stages, 128, 64, 64)
    for tiles in range(1, 2 * stages + 2):
        check(kernel, 128, 64, 64 * tiles)


@pytest.mark.parametrize("block", [(128, 64, 16), (128, 64, 32), (128, 128, 16), (128, 128, 32)])
def test_tiles(v3, block):
    check(v3(3, *block), 392, 264, 200)


def test_nothing_to_do(v3):
    kernel = v3(2, 128, 64, 64)
    check(kernel, 0, 64, 64)
    check(kernel, 128, 64, 0)


def test_a_host_array_is_refused(v3):
    arrays = [np.zeros((64, 64), np.float16) for _ in range(3)]
    with pytest.raises(ArgumentError, match="a_ptr must be in GPU memory"):
        v3(2, 128, 64, 64)(64, 64, 64, *arrays)


def test_pytorch(v3):
    torch = pytest.importorskip("torch")
    kernel = v3(4, 128, 128, 64)
    a, b = (torch.randint(-1, 2, (512, 320), device="cuda").half() for _ in range(2))
    c = torch.full((512, 512), float("nan"), device="cuda").half()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        kernel(512, 512, 320, a, b, c)
    side.synchronize()
    assert torch.equal(c, (a.float() @ b.float().T).half())

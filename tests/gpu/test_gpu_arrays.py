# SPDX-License-Identifier: Apache-2.0
"""Arrays on the GPU: our own, and those of PyTorch and CuPy where they are installed."""

import math

import numpy as np
import pytest

from tilus.dtypes import bfloat16, float16, float32, int32
from tilus.errors import ArgumentError
from tilus.runtime import DeviceArray, describe, stream_handle


class Interface:
    """An array that offers nothing but ``__cuda_array_interface__``."""

    def __init__(self, array):
        self.__cuda_array_interface__ = array.__cuda_array_interface__


@pytest.fixture
def cupy(gpu):
    return pytest.importorskip("cupy")


def test_there_and_back(gpu):
    array = np.random.default_rng(0).standard_normal((100, 33)).astype(np.float16)
    there = DeviceArray.from_numpy(array)
    assert np.array_equal(there.to_numpy(), array)
    there.view((50, 33), (132, 2)).fill_bytes(0xFF)
    assert np.isnan(there.to_numpy()).sum() == 99 * 33  # up to the last element of the view


def test_the_protocol_gives_what_our_own_array_says(gpu):
    view = DeviceArray((8, 16), float16).view((4, 5), (64, 2), offset=32)
    found = describe(Interface(view), "a")
    assert found == view.described
    assert found.device == f"cuda:{gpu.index}"


def test_memory_is_freed(gpu):
    nbytes = gpu.memory_bytes // 4
    for _ in range(8):  # twice what there is
        DeviceArray((nbytes // 4,), float32)


def test_pytorch(torch):
    tensor = torch.randn(64, 48, device="cuda").half()[::2, 8:40]
    found = describe(tensor, "a")
    assert (found.address, found.shape, found.strides) == (tensor.data_ptr(), (32, 32), (192, 2))
    assert (found.dtype, found.device) == (float16, "cuda:0")
    assert describe(Interface(tensor), "a") == found
    assert describe(torch.zeros(3, dtype=torch.int32), "a").device == "cpu"
    assert describe(torch.zeros(3, dtype=torch.int32).pin_memory(), "a").device == "cpu"
    learnt = torch.zeros(3, requires_grad=True, device="cuda")
    with torch.no_grad():
        assert describe(learnt, "a").dtype is float32
    assert describe(learnt.detach(), "a").dtype is float32
    with pytest.raises(ArgumentError, match="a must be a tensor that needs no gradient"):
        describe(learnt, "a")
    assert describe(torch.zeros(0, 5, device="cuda"), "a").shape == (0, 5)


def test_pytorchs_bfloat16(torch):
    assert describe(torch.zeros(3, device="cuda", dtype=torch.bfloat16), "a").dtype == bfloat16


def test_pytorchs_other_tensors_are_refused(torch):
    with pytest.raises(ArgumentError, match="complex64"):
        describe(torch.zeros(3, device="cuda", dtype=torch.complex64), "a")
    with pytest.raises(ArgumentError, match="a must be"):
        describe(torch.zeros(3, 3, device="cuda").to_sparse(), "a")
    with pytest.raises(ArgumentError, match="a must be"):
        describe(torch.zeros(3, device="meta"), "a")


def test_pytorch_reads_our_arrays(torch):
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    there = DeviceArray.from_numpy(array)
    tensor = torch.as_tensor(there, device="cuda")
    assert tensor.data_ptr() == there.described.address
    assert tensor.sum().item() == array.sum()


def test_pytorchs_current_stream(torch):
    tensor, side = torch.zeros(3, device="cuda"), torch.cuda.Stream()
    assert stream_handle(None, [tensor], 0) == torch.cuda.current_stream().cuda_stream
    with torch.cuda.stream(side):
        assert stream_handle(None, [tensor], 0) == side.cuda_stream
    assert stream_handle(side, [tensor], 0) == side.cuda_stream


def test_cupy(cupy):
    array = cupy.arange(24, dtype=cupy.int32).reshape(4, 6)[:, 1:4]
    found = describe(array, "a")
    assert (found.address, found.shape, found.strides) == (array.data.ptr, (4, 3), (24, 4))
    assert (found.dtype, found.device) == (int32, "cuda:0")
    side = cupy.cuda.Stream(non_blocking=True)
    with side:
        assert stream_handle(None, [array], 0) == side.ptr


def test_jax(gpu, monkeypatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or it takes all memory
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU backend")
    found = describe(jax.numpy.ones((4, 6), jax.numpy.float32), "a")
    assert (found.shape, found.strides, found.dtype) == ((4, 6), (24, 4), float32)
    assert found.device == "cuda:0"
    assert math.prod(found.shape) == 24

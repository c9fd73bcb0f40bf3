# SPDX-License-Identifier: Apache-2.0
"""Tensors as kernels see those of PyTorch, calls with them, and what launches hand the driver."""

import ctypes
from collections import namedtuple

from tests.runtime.fake_driver import argument
from tests.test_script import Copy

A, C = 0x10000, 0x80000
COPY = Copy()


class Alike:
    """What a kernel sees of a tensor of PyTorch."""

    requires_grad = False

    def __init__(self, address, shape):
        self.address, self.shape, self.strides = address, shape, (*shape[1:], 1)
        self.dtype, self.device = "torch.float16", Device("cuda", 0)

    @property
    def is_cuda(self):
        return self.device.type == "cuda"

    def data_ptr(self):
        return self.address

    def is_neg(self):
        return False

    def stride(self):
        return self.strides

    def get_device(self):
        return self.device.index


class Tensor(Alike):
    """One that is of PyTorch."""

    __module__ = "torch"


Device = namedtuple("Device", "type index")


def seen(made):
    """Return what a launch of Copy hands its kernel: the map's numbers, m, k, addresses."""
    pointers = ctypes.cast(made.pointers, ctypes.POINTER(ctypes.c_void_p))
    words = tuple((ctypes.c_uint64 * 3).from_address(pointers[0]))
    kinds = (ctypes.c_int32, ctypes.c_int32, ctypes.c_uint64, ctypes.c_uint64)
    return (*words, *(argument(made, i + 1, kind) for i, kind in enumerate(kinds)))


def pair(m=64, k=64, a=A, c=C):
    """Return the arguments of a call of Copy."""
    return m, k, Tensor(a, (m, k)), Tensor(c, (m, 64))

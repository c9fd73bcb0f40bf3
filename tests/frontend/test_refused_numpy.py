# SPDX-License-Identifier: Apache-2.0
"""What arrays of NumPy can and tensors of a kernel cannot: the message says what to write."""

import numpy as np
from tests.frontend.faulty import refused

from tilus import float32, int32


@refused("'exp' runs while the kernel is built", "cannot take a register tile; write self.exp(x)")
def a_function_of_numpy_on_a_tile(self):
    self.attrs.blocks = self.attrs.warps = 1
    t = self.register_tensor(dtype=float32, shape=[32, 32], init=0)
    t = np.exp(t)  # np.exp(t)


@refused("'sum' runs while the kernel is built", "write self.sum(x, dim")
def a_reduction_of_numpy(self):
    self.attrs.blocks = self.attrs.warps = 1
    t = self.register_tensor(dtype=float32, shape=[32, 32], init=0)
    t = np.sum(a=t, axis=1)  # np.sum(a=t, axis=1)


@refused("'stack' runs while the kernel is built", "use operators on it; docs/reference/")
def an_array_of_tiles(self):
    self.attrs.blocks = self.attrs.warps = 1
    t = self.register_tensor(dtype=float32, shape=[32, 32], init=0)
    t = np.stack([t, t])  # np.stack([t, t])


@refused("cannot take a SharedTensor; load it to a register tile")
def a_function_of_numpy_on_shared_memory(self):
    self.start()
    s = self.shared_tensor(float32, [32, 32])
    self.use(np.sum(s))  # np.sum(s)


@refused("'minimum' runs while the kernel is built", "use the operators of the language, min, max")
def a_function_of_numpy_on_a_number(self, n: int32):
    self.start()
    self.use(np.minimum(n, 4))  # np.minimum(n, 4)


def applied(function, x):
    """Call a function where the tracer does not see it."""
    return function(x)


@refused("does not support ufuncs")
def numpy_out_of_sight(self):
    self.attrs.blocks = self.attrs.warps = 1
    t = self.register_tensor(dtype=float32, shape=[32, 32], init=0)
    t = applied(np.exp, t)  # applied(np.exp, t)


@refused("NumPy runs while the kernel is built and cannot take a RegisterTensor")
def an_array_out_of_sight(self):
    self.attrs.blocks = self.attrs.warps = 1
    t = self.register_tensor(dtype=float32, shape=[32, 32], init=0)
    t = applied(np.array, [t, t])  # applied(np.array, [t, t])


@refused("NumPy runs while the kernel is built and cannot take a run-time value (int32)")
def an_array_of_numbers_out_of_sight(self, n: int32):
    self.start()
    self.use(applied(np.array, [n, 1]))  # applied(np.array, [n, 1])


@refused("b must be a register tile or a number or None, got a ndarray")
def an_array_beside_a_tile(self):
    self.attrs.blocks = self.attrs.warps = 1
    t = self.register_tensor(dtype=float32, shape=[4, 4], init=0)
    t = t + np.ones((4, 4))  # t + np.ones((4, 4))


@refused("'t' has no 'T'", "self.load_shared(s.transpose())")
def a_tile_transposed(self):
    self.attrs.blocks = self.attrs.warps = 1
    t = self.register_tensor(dtype=float32, shape=[32, 32], init=0)
    t = t.T  # t.T


@refused("'s' has no 'T'; write .transpose(), which moves no data")
def a_shared_tile_transposed(self):
    self.start()
    s = self.shared_tensor(float32, [32, 32])
    s = s.T  # s.T


@refused("'v' has no 'T'", "self.global_view, shape and strides exchanged")
def a_view_transposed(self, p: ~float32):
    self.start()
    v = self.global_view(p, dtype=float32, shape=[32, 32])
    v = v.T  # v.T


@refused("'t' has no 'sum'; write self.sum(x, dim")
def a_method_of_arrays(self):
    self.attrs.blocks = self.attrs.warps = 1
    t = self.register_tensor(dtype=float32, shape=[32, 32], init=0)
    t = t.sum(axis=1)  # t.sum

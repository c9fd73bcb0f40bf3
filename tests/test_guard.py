# SPDX-License-Identifier: Apache-2.0
"""A launch in a child process: arrays come back, and whatever ends it is said here."""

import numpy as np
import pytest

import tilus
from tilus import DeviceError, float32, int32, runtime
from tilus.autotune import guard
from tilus.errors import ArgumentError


class Twice(tilus.Script):
    """C = 2 A, by one warp; with n = 1 it has no end, with n = 2 it waits for ever."""

    def __call__(self, n: int32, a_ptr: ~float32, c_ptr: ~float32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        while n == 1:
            self.sync()
        if n == 2:
            self.mbarrier.wait(self.mbarrier.alloc(1), phase=0)
        a = self.global_view(a_ptr, dtype=float32, shape=[n])
        c = self.global_view(c_ptr, dtype=float32, shape=[n])
        self.store_global(c, self.load_global(a, offsets=[0], shape=[32]) * 2.0, offsets=[0])


def in_child(n):
    a, c = np.arange(n, dtype=np.float32), np.full(2 * n, np.nan, np.float32)
    a.flags.writeable = False
    kernel = Twice()
    done = guard.in_child(kernel.lower(), "sim", kernel.bind(n, a, c[:n]), 0.1)
    return done, a, c


def test_what_a_child_leaves_in_the_arrays_comes_back():
    done, a, c = in_child(8)
    assert done.device == "sim" and done.blocks == (1, 1, 1)
    assert (c[:8] == 2 * a).all() and np.isnan(c[8:]).all()


def test_a_child_that_does_not_end_is_stopped(monkeypatch):
    monkeypatch.setattr(guard, "START_LIMIT_S", 4.0)
    with pytest.raises(DeviceError, match="Twice hangs, and no wait on an mbarrier has said so"):
        in_child(1)


def test_a_child_that_fails_says_why():
    with pytest.raises(DeviceError, match=r"Twice failed in its child process: .*waits for alloc"):
        in_child(2)


def test_only_arrays_of_the_host_are_watched(monkeypatch):
    monkeypatch.setattr(runtime, "require_gpu", lambda: None)
    there = type("There", (), {})()
    there.__cuda_array_interface__ = {"typestr": "<f4", "shape": (8,), "data": (0, False)}
    with pytest.raises(ArgumentError, match="a_ptr must be in host memory to be watched"):
        tilus.watched(Twice(), 8, there, there)


def test_without_a_gpu_nothing_is_watched(monkeypatch):
    def missing():
        raise DeviceError("no GPU that will do")

    monkeypatch.setattr(runtime, "require_gpu", missing)
    with pytest.raises(DeviceError, match="no GPU that will do"):
        tilus.watched(Twice(), 8, np.zeros(8, np.float32), np.zeros(8, np.float32))

# SPDX-License-Identifier: Apache-2.0
"""Barriers of thread groups: one warp, several warps, the whole block."""

import numpy as np
import pytest

import tilus
from tilus import float32
from tilus.emitter import emit


class Meet(tilus.Script):
    """Each of two groups meets itself, then the block meets and stores."""

    def __init__(self, threads):
        self.threads = threads

    def __call__(self, c_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 8
        gc = self.global_view(c_ptr, dtype=float32, shape=[64, 32])
        for begin in (0, 128):
            with self.thread_group(thread_begin=begin, num_threads=self.threads):
                self.sync()
        self.sync()
        good = self.register_tensor(dtype=float32, shape=[64, 32], init=1.0)
        self.store_global(gc, good, offsets=[0, 0])


@pytest.mark.parametrize("threads", [32, 128])
def test_sync_lets_all_go_on(backend, threads):
    c = np.zeros((64, 32), np.float32)
    backend.run(Meet(threads), c)
    assert c.min() == 1.0


def test_sync_of_two_groups_uses_two_hardware_barriers():
    text = emit(Meet(128).lower())
    assert '"bar.sync %0, 128;" :: "r"(member == 0 ? 1 : 2)' in text  # their code is shared
    assert text.count("__syncthreads();") == 1


def test_sync_of_a_warp_is_a_warp_barrier():
    assert emit(Meet(32).lower()).count("__syncwarp();") == 2

# SPDX-License-Identifier: Apache-2.0
"""Proxy fences."""

import numpy as np
import pytest

import tilus
from tilus import LanguageError, float16
from tilus.emitter import emit
from tilus.errors import SimulationError


class Fence(tilus.Script):
    """One fence."""

    def __init__(self, space):
        self.space = space

    def __call__(self):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        self.fence.proxy_async(space=self.space)


def test_proxy_async_is_one_instruction():
    assert emit(Fence("shared").lower()).count("fence.proxy.async.shared::cta;") == 1


def test_proxy_async_refuses_other_spaces():
    with pytest.raises(LanguageError, match="space must be 'shared', got 'global'"):
        Fence("global").lower()


class Returned(tilus.Script):
    """TMA loads what threads have just written to device memory."""

    def __call__(self, x_ptr: ~float16):
        self.attrs.blocks, self.attrs.warps = 1, 4
        gx = self.global_view(x_ptr, dtype=float16, shape=[16, 64])
        tile = self.shared_tensor(dtype=float16, shape=[16, 64])
        full = self.mbarrier.alloc(1)
        x = self.register_tensor(dtype=float16, shape=[16, 64], init=1)
        self.store_global(gx, x, offsets=[0, 0])
        self.fence.proxy_async()
        self.sync()
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, tile.nbytes)
            self.tma.global_to_shared(gx, tile, offsets=[0, 0], mbarrier=full)
        self.mbarrier.wait(full, phase=0)


def test_proxy_async_says_nothing_of_device_memory(device):
    """What is emitted names shared memory."""
    device("sim")
    with pytest.raises(SimulationError, match=r"race.*orders no write to device memory before"):
        Returned()(np.zeros((16, 64), np.float16))

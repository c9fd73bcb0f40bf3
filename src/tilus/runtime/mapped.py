# SPDX-License-Identifier: Apache-2.0
"""Memory of the host that a kernel can write: what stands there survives the kernel's end, however
that comes."""

from __future__ import annotations

import ctypes
import weakref
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from tilus.errors import DeviceError
from tilus.runtime.driver import binding, check, on


class MappedMemory:
    """Zeroed, pinned memory: ``address`` is where a GPU finds it, ``words`` what is in it."""

    def __init__(self, words: int, device: int) -> None:
        driver, nbytes = binding(), 4 * words
        with on(device):
            doing = f"allocating {nbytes} bytes that the GPU can write"
            pointer = int(check(doing, driver.cuMemHostAlloc(nbytes, _flags())))
            weakref.finalize(self, _free, pointer, device).atexit = False
            self.address = int(check(doing, driver.cuMemHostGetDevicePointer(pointer, 0)))
        raw = (ctypes.c_uint32 * words).from_address(pointer)
        self.words: NDArray[np.uint32] = np.ctypeslib.as_array(raw)
        self.words[:] = 0


def _flags() -> int:
    # Driver API: CU_MEMHOSTALLOC_PORTABLE and CU_MEMHOSTALLOC_DEVICEMAP.
    driver = binding()
    return int(driver.CU_MEMHOSTALLOC_PORTABLE) | int(driver.CU_MEMHOSTALLOC_DEVICEMAP)


def _free(pointer: int, device: int) -> None:
    with suppress(DeviceError), on(device):
        binding().cuMemFreeHost(pointer)

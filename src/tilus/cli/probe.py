# SPDX-License-Identifier: Apache-2.0
"""The smallest kernel that proves a backend: it fills a tile."""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from tilus import compiler, runtime, simulator
from tilus.dtypes import float32
from tilus.launch import Cuda
from tilus.script import Script


class Fill(Script):
    """Write 7.5 to every element of a small matrix."""

    @no_type_check  # a kernel is Python to the frontend only
    def __call__(self, out_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        out = self.global_view(out_ptr, dtype=float32, shape=[16, 8])
        tile = self.register_tensor(dtype=float32, shape=[16, 8], init=7.5)
        self.store_global(out, tile, offsets=[0, 0])


def on_simulator() -> bool:
    """Trace the kernel, run it on the simulator, and return whether it did its work."""
    out = np.zeros((16, 8), np.float32)
    simulator.run(Fill().lower(), {"out_ptr": out.reshape(-1)})
    return bool((out == 7.5).all())


def compiled() -> compiler.Program:
    """Compile the kernel with NVRTC, which needs no GPU."""
    return compiler.build(Fill().lower())


def on_gpu(gpu: runtime.Gpu) -> bool:
    """Run the kernel on a GPU, and return whether it did its work."""
    kernel, out = Fill(), runtime.DeviceArray((16, 8), float32, gpu.index)
    out.fill_bytes(0)
    Cuda(compiled(), gpu.index)(kernel.bind(out))
    return bool((out.to_numpy() == 7.5).all())

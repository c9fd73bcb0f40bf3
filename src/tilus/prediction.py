# SPDX-License-Identifier: Apache-2.0
"""One block of a matmul on the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilus import simulator


def one_block(script: Any, tiles: int, *, trace: bool = True) -> simulator.Result:
    """Run ``script`` on a matmul of one block and ``tiles`` tiles of K; all numbers are zero.

    ``script`` is a step of the ladder with its schedule: it has ``block_m``, ``block_n`` and
    ``block_k``, and the parameters that :mod:`tilus.workload` passes.
    """
    m, n, k = script.block_m, script.block_n, tiles * script.block_k
    kernel = script.lower(n_size=n, k_size=k)
    elements = {"a_ptr": m * k, "b_ptr": n * k, "c_ptr": m * n}
    pointers = [p for p in kernel.function.params if p.pointer]
    arrays = {p.name: np.zeros(elements[p.name], p.dtype.numpy) for p in pointers}
    return simulator.run(kernel, {"m_size": m, **arrays}, trace=trace)

# SPDX-License-Identifier: Apache-2.0
"""The ladder's kernels by version, and products of integers on the simulator that must be exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tilus
from tilus import ir, loader, simulator

FOLDER = Path(__file__).parents[1] / "examples" / "hopper_matmul"
VERSIONS = ("v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7")

SMALL = {  # the smallest tiles each version takes, so that many of them are simulated quickly
    "v0": {"warps": 4, "block_m": 32, "block_n": 16, "block_k": 16},
    "v1": {"block_m": 64, "block_n": 8, "block_k": 16},
    "v2": {"max_num_stages": 3, "block_m": 64, "block_n": 8, "block_k": 16},
    "v3": {"num_stages": 3, "block_m": 64, "block_n": 8, "block_k": 16},
    "v4": {"num_stages": 3, "block_m": 128, "block_n": 8, "block_k": 16, "group_m": 2},
    "v5": {"num_stages": 3, "block_m": 128, "block_n": 8, "block_k": 16, "group_m": 2},
    "v6": {"num_stages": 3, "block_m": 128, "block_n": 8, "block_k": 16, "group_m": 2},
    "v7": {"num_stages": 3, "block_m": 256, "block_n": 8, "block_k": 16, "group_m": 2},
}
for persistent in ("v6", "v7"):
    SMALL[persistent]["num_blocks"] = 2  # fewer than tiles, so that a block has several


def version(name: str) -> type[tilus.Script]:
    """Return the class of a version, from its file, which runs anew."""
    return loader.find(FOLDER / f"matmul_{name}.py", tilus.Script)


def execute(kernel: ir.Kernel, m: int, n: int, k: int, **options) -> simulator.Result:
    """Run the kernel on entries from {-1, 0, 1} and require the exact product and nothing else."""
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-1, 2, shape).astype(np.float16) for shape in ((m, k), (n, k)))
    c = np.full(m * n + 64, np.nan, np.float16)
    before = a.copy(), b.copy()
    arguments = {"m_size": m, "a_ptr": a.reshape(-1), "b_ptr": b.reshape(-1), "c_ptr": c}
    result = simulator.run(kernel, arguments, **options)
    want = a.astype(np.int64) @ b.astype(np.int64).T
    np.testing.assert_array_equal(c[: m * n].reshape(m, n), want)
    assert np.isnan(c[m * n :]).all()
    assert (a == before[0]).all() and (b == before[1]).all()
    return result

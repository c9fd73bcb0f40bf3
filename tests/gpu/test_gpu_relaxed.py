# SPDX-License-Identifier: Apache-2.0
"""Two blocks that share tiles, and tell each other by relaxed arrivals that they have read them.

A stage that is filled again too early gives wrong numbers. One of the blocks may dawdle.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from persistent import Persistent

from tilus import ir
from tilus.dtypes import float16
from tilus.runtime import DeviceArray

RUNS, NAP_NS = 50, 400
GUARD = 128


@dataclass(frozen=True, eq=False, kw_only=True)
class _nap(ir.Instruction):
    """Sleep for about ``ns`` nanoseconds; the simulator's schedules need no sleep."""

    ns: int

    def emit(self, e: ir.Emitter) -> None:
        e.line(f"__nanosleep({self.ns});")

    def simulate(self, m: ir.Machine) -> None:
        pass


class Uneven(Persistent):
    """Block ``slow`` of each pair sleeps before it gives a stage back; -1 is none."""

    nap = _nap

    def __init__(self, slow, num_stages):
        super().__init__(blocks=4, cluster=2, num_stages=num_stages, sem="relaxed")
        self.slow = slow

    def consumed(self, empty):
        self.wgmma.wait_group(0)
        if self.cluster.blockRank == self.slow:
            self.nap(NAP_NS)
        self.release(empty)


@pytest.mark.parametrize("slow", [-1, 0, 1])
@pytest.mark.parametrize("stages", [2, 5])
def test_every_run_is_exact(gpu, stages, slow):
    m, n, k = 300, 88, 4096  # four or five tiles for each pair, 256 steps of K each
    rng = np.random.default_rng(slow + stages)
    a, b = (rng.integers(-1, 2, (rows, k)).astype(np.float16) for rows in (m, n))
    want = (a.astype(np.float32) @ b.T.astype(np.float32)).astype(np.float16)
    kernel = Uneven(slow, stages)
    left, right = DeviceArray.from_numpy(a), DeviceArray.from_numpy(b)
    memory = DeviceArray((m * n + 2 * GUARD,), float16)
    for run in range(RUNS):
        memory.fill_bytes(0xFF)
        kernel(m, n, k, left, right, memory.view((m, n), offset=2 * GUARD))
        after = memory.to_numpy()
        np.testing.assert_array_equal(after[GUARD:-GUARD].reshape(m, n), want, f"run {run}")
        assert np.isnan(after[:GUARD]).all() and np.isnan(after[-GUARD:]).all()
    assert kernel.last_run.device.startswith("cuda")

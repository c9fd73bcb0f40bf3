# SPDX-License-Identifier: Apache-2.0
"""A tracing build on the GPU: the same events as on the simulator, and the same product."""

import numpy as np
import pytest
from tests.instrument.events import coded, told
from tests.products import SMALL, VERSIONS, version

import tilus
from tilus import float16, simulator
from tilus.runtime import DeviceArray


@pytest.fixture
def debug():
    yield tilus.option.debug
    tilus.option.debug.trace(None)


@pytest.mark.parametrize("name", VERSIONS)
def test_each_role_does_what_the_simulator_says_it_does(gpu, debug, name):
    """Instruction by instruction: place, barrier, stage, phase, tile, amount, shared memory."""
    kernel = version(name)(**SMALL[name])
    rows, n, depth = (SMALL[name][f"block_{axis}"] for axis in "mnk")
    m, k, block = 3 * rows, 9 * depth, (1, 0, 0)
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-1, 2, (size, k)).astype(np.float16) for size in (m, n))
    c = DeviceArray((m, n), float16)
    debug.trace([block], events=400)
    kernel(m, n, k, DeviceArray.from_numpy(a), DeviceArray.from_numpy(b), c)
    run = kernel.last_run
    assert np.array_equal(c.to_numpy(), a.astype(np.int64) @ b.astype(np.int64).T)
    assert run.device.startswith("cuda") and run.dropped == 0

    flat = {"a_ptr": a.reshape(-1), "b_ptr": b.reshape(-1), "c_ptr": np.zeros(m * n, np.float16)}
    planned = kernel.lower(n_size=n, k_size=k)
    simulated = simulator.run(planned, {"m_size": m, **flat}, trace=True, blocks=[block])
    mine, theirs = told(run.events), told(coded(simulated.events))
    assert mine.keys() == theirs.keys()
    for lane in mine:
        assert mine[lane] == theirs[lane], lane

    (clock,) = run.clocks
    assert 0 <= clock.sm < gpu.sms and 0 < clock.cycles < 1e6 and clock.ns < 1e6
    assert all(0 <= e.start <= e.end <= clock.cycles for e in run.events)


def test_what_does_not_fit_is_counted(gpu, debug):
    name = "v1"
    rows, n, depth = (SMALL[name][f"block_{axis}"] for axis in "mnk")
    k, counts = 9 * depth, []
    a, b, c = (DeviceArray(shape, float16) for shape in ((rows, k), (n, k), (rows, n)))
    for events in (400, 10):
        kernel = version(name)(**SMALL[name])
        debug.trace(events=events)
        kernel(rows, n, k, a, b, c)
        own = [e for e in kernel.last_run.events if not e.issuer]
        counts.append(len(own) + kernel.last_run.dropped)
    assert counts[0] == counts[1] and kernel.last_run.dropped > 0

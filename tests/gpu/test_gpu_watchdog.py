# SPDX-License-Identifier: Apache-2.0
"""The watchdog on the GPU: what hangs says where, in a child, and this process goes on."""

import time

import numpy as np
import pytest
from tests.instrument.hanging import Handover, expected, told

import tilus
from tilus import DeviceError, compiler, float32
from tilus.autotune.judge import judge
from tilus.autotune.trial import Trial, images
from tilus.options import Instruments
from tilus.runtime import DeviceArray

BLOCKS = 300
"""More than run at once, so that some blocks end while one hangs."""


@pytest.fixture
def debug():
    yield tilus.option.debug
    tilus.option.debug.watchdog(None)


def works_here():
    """Run a kernel in this process."""
    c = DeviceArray((3,), float32)
    Handover(-1)(3, c)
    return c.to_numpy().tolist() == [1, 1, 1]


def test_a_kernel_that_ends_is_left_alone(gpu, debug):
    debug.watchdog(2)
    assert works_here()
    c = np.zeros(BLOCKS, np.float32)
    run = tilus.watched(Handover(-1), BLOCKS, c)
    assert (c == 1).all() and run.blocks == (BLOCKS, 1, 1)


@pytest.mark.hang
@pytest.mark.parametrize("block", [0, 150])
def test_a_kernel_that_hangs_says_where_and_this_process_goes_on(gpu, block):
    assert works_here()
    c, begin = np.zeros(BLOCKS, np.float32), time.monotonic()
    with pytest.raises(DeviceError, match=r"Handover hangs: waits that took more than 0\.5 s") as e:
        tilus.watched(Handover(block), BLOCKS, c, seconds=0.5)
    print(e.value)
    assert told(e.value.hangs) == expected(block)
    assert [h.thread // 32 for h in e.value.hangs] == [0, 1, 2, 3, 4]
    assert time.monotonic() - begin < 60
    assert works_here()


@pytest.mark.hang
def test_a_candidate_that_hangs_says_where_and_the_next_is_judged(gpu):
    arrays = DeviceArray((3,), float32)
    call = Handover(-1).bind(3, arrays)
    before = images(call, {"c_ptr"}, "exact")
    after = {"c_ptr": before["c_ptr"].copy()}
    after["c_ptr"].elements[...] = 1
    trial = Trial(f"cuda:{gpu.index}", call.constants, call.scalars, before, after)
    programs = [
        compiler.build(Handover(missing).lower(), Instruments(watchdog=0.5))
        for missing in (-1, 1, -1)
    ]
    right, hanging, again = judge(programs, trial)
    assert right is None and again is None
    for role, barrier, parity, line, block in expected(1):
        said = f"hanging.py:{line}: {role} of block {block}, thread"
        assert said in hanging and f"waits for {barrier}, parity {parity}" in hanging

# SPDX-License-Identifier: Apache-2.0
"""Launches of instrumented builds, on a driver without a GPU: memory, waiting, what is raised."""

import gc

import numpy as np
import pytest
from tests.instrument.hanging import Handover
from tests.runtime.fake_driver import CONTEXT, argument

import tilus
from tilus import launch, runtime
from tilus.errors import ArgumentError, DeviceError
from tilus.instrument import record, watchdog
from tilus.runtime import MappedMemory

WARPS, THREADS = 5, 160


def test_mapped_memory_is_zeroed_and_freed(fake):
    memory = MappedMemory(6, 0)
    assert list(memory.words) == [0] * 6 and fake.host_flags == 3
    assert memory.address in fake.memory
    del memory
    gc.collect()
    assert not fake.memory


def call(blocks=3):
    kernel = Handover(1)
    kernel(blocks, runtime.DeviceArray((blocks,), tilus.float32))
    return kernel.last_run


def words(made, index):
    """Return the memory behind argument ``index`` of a launch, as words."""
    address = argument(made, index, np.ctypeslib.ctypes.c_uint64)
    return np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint32 * 200).from_address(address))


def test_without_instruments_the_launch_waits_for_nothing(gpu):
    assert call().events == ()
    assert "cuCtxSynchronize" not in gpu.calls and "cuMemHostAlloc" not in gpu.calls


def test_a_watched_launch_waits_and_a_report_is_raised(gpu):
    def hang(made):
        slot = words(made, 2)[watchdog.WORDS * (1 * WARPS + 0) :]  # the second wait, first warp
        slot[:7] = 1, 2, 0, 1, 0, 0, 31
        gpu.failing["cuCtxSynchronize"] = gpu.CUresult.CUDA_ERROR_LAUNCH_FAILED

    tilus.option.debug.watchdog(2.5)
    assert call().device == "cuda:0"
    assert gpu.calls.count("cuCtxSynchronize") == 1 and gpu.launches[0].context == CONTEXT
    gpu.read = hang
    with pytest.raises(DeviceError) as caught:
        call()
    (found,) = caught.value.hangs
    assert (found.barrier, found.parity, found.role, found.block, found.thread) == (
        "full[2]", 0, "warps 0-1", (1, 0, 0), 31,
    )  # fmt: skip
    said = str(caught.value)
    assert said.startswith("Handover hangs: waits that took more than 2.5 s\n")
    assert (
        f"\n  {found.location}: warps 0-1 of block (1, 0, 0), thread 31: waits for full[2]" in said
    )
    assert "mend: go on in a new process" in said and "tilus.watched" in said


def test_a_kernel_that_fails_without_a_report_raises_what_the_driver_says(gpu):
    tilus.option.debug.watchdog(1)
    gpu.failing["cuCtxSynchronize"] = gpu.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DeviceError, match="ILLEGAL_ADDRESS") as caught:
        call()
    assert caught.value.hangs == ()


def test_a_traced_launch_has_events_and_says_what_was_dropped(gpu):
    def run(made):
        memory = words(made, 2)
        assert not memory.any()
        memory[:4].view(np.uint64)[:] = 1000, 5 * 10**9
        segment = memory[record.HEADER // 4 :]
        segment[:4] = 7, 1800, 1900, 5 * 10**9 + 600 & 0xFFFFFFFF
        segment[4:12] = 0, 1010, 0, 0, 0, 1030, 1020, 0

    gpu.read = run
    tilus.option.debug.trace([(2, 0, 0)], events=1)
    done = call()
    (event,) = done.events
    assert (event.start, event.end, event.block, event.lane) == (10, 20, (2, 0, 0), "warps 0-4")
    assert event.what == "alloc" and event.location.file.endswith("hanging.py")
    assert done.dropped == 6
    assert done.clocks[0].ns == 600 and done.clocks[0].cycles == 900


def test_both_instruments_get_their_memory_in_order(gpu):
    gpu.read = lambda made: [argument(made, i, np.ctypeslib.ctypes.c_uint64) for i in (2, 3)]
    tilus.option.debug.watchdog(1)
    tilus.option.debug.trace()
    assert call().clocks == ()  # nothing ran
    report, buffer = gpu.launches[0].arguments
    assert report != buffer and min(report, buffer) > 0


def test_a_block_outside_the_grid_is_refused_before_the_launch(gpu):
    tilus.option.debug.trace([(3, 0, 0)])
    with pytest.raises(ArgumentError, match=r"inside the grid \(3, 1, 1\), got \(3, 0, 0\)"):
        call()
    assert gpu.launches == []


def test_programs_with_and_without_instruments_are_kept_apart(gpu):
    kernel, c = Handover(-1), runtime.DeviceArray((3,), tilus.float32)
    for seconds in (None, 1, 2, 1, None):
        tilus.option.debug.watchdog(seconds)
        kernel(3, c)
    assert len(kernel._launcher._programs) == 3
    assert launch.Run("cuda:0", (3, 1, 1)) == kernel.last_run

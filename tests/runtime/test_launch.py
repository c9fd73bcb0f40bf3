# SPDX-License-Identifier: Apache-2.0
"""Launches: what the driver is handed, and how little is done twice."""

import ctypes
import gc
import itertools
import struct
import time
import weakref
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.fake_driver import CONTEXT, H200, argument
from tests.runtime.threads import together

from tilus import dtypes
from tilus.dtypes import boolean, float16, float32, int8, int32, uint64
from tilus.errors import ArgumentError, DeviceError
from tilus.runtime import Function, Launch, TensorMap, launch, load
from tilus.runtime.launch import format_of, offsets

FUNCTION = Function("v3", 100_000, H200, SimpleNamespace(handle=0x3000))


def test_the_driver_gets_grid_block_stream_and_cluster(fake):
    run = Launch(FUNCTION, 0, [], threads=160, cluster=(2, 1, 1))
    run((4, 3, 1), [], [], stream=0x77)
    (made,) = fake.launches
    assert (made.grid, made.block, made.clusters) == ((4, 3, 1), (160, 1, 1), [(2, 1, 1)])
    assert (made.shared_bytes, made.stream, made.function) == (100_000, 0x77, 0x3000)


def test_clusters_that_never_fit_are_refused(fake):
    fake.active_clusters = 0
    run = Launch(FUNCTION, 0, [], threads=384, cluster=(8, 1, 1))
    with pytest.raises(ArgumentError, match=r"resident.*384 threads and 100000 bytes.*\(8, 1, 1\)"):
        run((16, 1, 1), [], [])
    assert not fake.launches


def test_the_driver_is_asked_once_how_many_clusters_are_active(fake):
    run = Launch(FUNCTION, 0, [], threads=384, cluster=(2, 1, 1))
    for _ in range(2):
        run((4, 1, 1), [], [])
    assert fake.calls.count("cuOccupancyMaxActiveClusters") == 1 and len(fake.launches) == 2
    assert run.active_clusters((4, 1, 1)) == 66
    Launch(FUNCTION, 0, [], threads=384)((4, 1, 1), [], [])
    assert fake.calls.count("cuOccupancyMaxActiveClusters") == 2  # none without clusters


def test_the_driver_is_asked_how_many_blocks_an_sm_holds(fake, monkeypatch):
    asked = []
    monkeypatch.setattr(
        type(fake),
        "_cuOccupancyMaxActiveBlocksPerMultiprocessor",
        lambda self, *words: asked.append((int(words[0]), *words[1:], self.current[-1])) or 2,
    )
    assert FUNCTION.blocks_per_sm(160) == 2
    assert asked == [(0x3000, 160, 100_000, CONTEXT)]


def test_without_a_cluster_there_is_no_attribute(fake):
    Launch(FUNCTION, 0, [], threads=32)((1, 1, 1), [], [])
    assert fake.launches[0].clusters == []


def test_maps_come_first_then_scalars_each_as_its_type(fake):
    maps = [TensorMap(), TensorMap()]
    for number, made in enumerate(maps, start=1):
        ctypes.memset(made.address, number, 128)
    kinds = [ctypes.c_uint64] * 2 + [
        ctypes.c_int32, ctypes.c_uint64, ctypes.c_bool, ctypes.c_float, ctypes.c_int8,
    ]  # fmt: skip
    fake.read = lambda made: [argument(made, i, kind) for i, kind in enumerate(kinds)]
    run = Launch(FUNCTION, 2, [int32, uint64, boolean, float32, int8], threads=32)
    run((1, 1, 1), maps, [-7, 2**63 + 1, True, 2.5, -1])
    run((1, 1, 1), maps[::-1], [8, 3, False, -1.0, 1])
    ones, twos = int("01" * 8, 16), int("02" * 8, 16)
    assert fake.launches[0].arguments == [ones, twos, -7, 2**63 + 1, True, 2.5, -1]
    assert fake.launches[1].arguments == [twos, ones, 8, 3, False, -1.0, 1]


def test_what_is_ready_keeps_its_tensor_maps(fake):
    class Map(TensorMap):
        """One that can be watched."""

    run, made = Launch(FUNCTION, 1, [], threads=32), Map()
    ready, watched = run.ready((1, 1, 1), [made], []), weakref.ref(made)
    del made
    gc.collect()
    assert watched() is not None
    del ready
    gc.collect()
    assert watched() is None


def test_each_launch_has_its_own_grid_and_stream(fake):
    run = Launch(FUNCTION, 0, [], threads=32)
    for grid, stream in [((1, 1, 1), 5), ((2, 1, 1), 5), ((2, 1, 1), 6), ((1, 1, 1), 5)]:
        run(grid, [], [], stream)
    seen = [(made.grid[0], made.stream) for made in fake.launches]
    assert seen == [(1, 5), (2, 5), (2, 6), (1, 5)]


def test_the_gpus_context_is_current_during_a_launch_and_the_callers_after_it(fake):
    run = Launch(FUNCTION, 0, [], threads=32)
    fake.current = [0xBEEF]
    run((1, 1, 1), [], [])
    assert (fake.launches[0].context, fake.current) == (CONTEXT, [0xBEEF])


def test_a_thread_without_a_context_keeps_ours(fake):
    run = Launch(FUNCTION, 0, [], threads=32)
    run((1, 1, 1), [], [])
    assert fake.current == [CONTEXT]
    fake.calls.clear()
    run((1, 1, 1), [], [])
    assert fake.current == [CONTEXT] and "cuCtxSetCurrent" not in fake.calls


def test_threads_do_not_mix_their_arguments(fake):
    def slow(made):
        time.sleep(0.0005)  # another thread may run before the arguments are read
        return [argument(made, i, ctypes.c_int32) for i in range(8)]

    fake.read = slow
    run = Launch(FUNCTION, 0, [int32] * 8, threads=32)

    def work(number):
        for _ in range(20):
            run((number + 1, 1, 1), [], [number] * 8)

    together(*(partial(work, n) for n in range(4)))
    assert len(fake.launches) == 80
    assert all(set(made.arguments) == {made.grid[0] - 1} for made in fake.launches)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ((0, 1, 1), "^grid of v3 must be from 1 to"),
        ((1, 65536, 1), "^grid of v3 must be from 1 to.*65535.*got .1, 65536"),
        ((2**31, 1, 1), "^grid of v3 must be from 1 to"),
        ((3, 1, 1), r"^grid of v3 must be a multiple of the cluster \(2, 1, 1\)"),
    ],
)
def test_grids_that_no_gpu_takes_are_refused(fake, grid, message):
    run = Launch(FUNCTION, 0, [], threads=32, cluster=(2, 1, 1))
    for _ in range(2):
        with pytest.raises(ArgumentError, match=message):
            run(grid, [], [])
    assert fake.launches == []


def test_values_that_do_not_fit_are_refused(fake):
    run = Launch(FUNCTION, 0, [int32], threads=32)
    with pytest.raises(ArgumentError, match="kernel arguments must be"):
        run((1, 1, 1), [], [2**31])
    with pytest.raises(ArgumentError, match="kernel arguments must be"):
        run((1, 1, 1), [], [1, 2])
    assert fake.launches == []


def test_a_failing_launch_names_the_kernel_and_the_status(fake):
    run = Launch(FUNCTION, 0, [], threads=32)
    fake.failing["cuLaunchKernelEx"] = fake.CUresult.CUDA_ERROR_LAUNCH_FAILED
    with pytest.raises(DeviceError, match="launching v3: CUDA_ERROR_LAUNCH_FAILED: as the test"):
        run((1, 1, 1), [], [])


def test_shared_memory_beyond_the_gpus_limit_is_refused_before_loading(fake):
    with pytest.raises(ArgumentError, match=r"^shared memory of v3 must be at most 232448"):
        load(b"", "v3", 232449)
    assert fake.calls == []


def test_loading_raises_the_limit_of_shared_memory(fake, monkeypatch):
    kernel = SimpleNamespace(handle=0x3000)
    code = SimpleNamespace(get_kernel=lambda name: kernel)
    cuda = SimpleNamespace(ObjectCode=SimpleNamespace(from_cubin=lambda code_, name: code))
    monkeypatch.setattr(launch, "core", lambda: cuda)
    code.get_kernel = lambda name: kernel
    assert load(b"", "v3", 200_000).kernel is kernel
    assert fake.shared_bytes == 200_000


@given(st.lists(st.sampled_from(dtypes.ALL), max_size=12))
def test_arguments_lie_where_c_puts_them(types):
    """Each at a multiple of its size, none over another."""
    places = list(zip(offsets(tuple(types)), (t.nbytes for t in types), strict=True))
    assert all(place % size == 0 for place, size in places)
    assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(places))
    assert not places or sum(places[-1]) == struct.calcsize("@" + "".join(map(format_of, types)))


def test_every_type_has_a_format_of_its_size():
    for dtype in dtypes.ALL:
        assert struct.calcsize(format_of(dtype)) == dtype.nbytes
    assert format_of(float16) == "e"

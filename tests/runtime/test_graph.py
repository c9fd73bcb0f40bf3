# SPDX-License-Identifier: Apache-2.0
"""Launches that come again are queued as CUDA graphs: when, on which streams, and never wrongly."""

import ctypes
import gc
import signal
import sys
import threading
import time
import warnings
import weakref
from functools import partial
from types import SimpleNamespace

import pytest
from tests.runtime.fake_driver import CONTEXT, H200, argument
from tests.runtime.threads import together

from tilus.dtypes import int32
from tilus.errors import DeviceError
from tilus.runtime import PER_THREAD, Function, Launch
from tilus.runtime.graph import Graph

FUNCTION = Function("v3", 100_000, H200, SimpleNamespace(handle=0x3000))
RELAXED = 2
SIDE = 0x70
RESULT = object()


@pytest.fixture
def ready(fake):
    """A launch of clusters with the argument 8; it returns RESULT."""
    fake.read = lambda made: argument(made, 0, ctypes.c_int32)
    fake.current = [CONTEXT]
    launch = Launch(FUNCTION, 0, [int32], threads=160, cluster=(2, 1, 1))
    return launch.ready((4, 1, 1), [], [8], result=RESULT)


def kinds(fake):
    """Return what the driver was handed: kernels or graphs."""
    return ["graph" if made.graph else "kernel" for made in fake.launches]


@pytest.mark.parametrize("stream", [0, SIDE])
def test_the_third_launch_on_a_stream_is_a_graphs_and_the_same(fake, ready, stream):
    assert [ready(stream) for _ in range(4)] == [RESULT] * 4
    assert kinds(fake) == ["kernel", "kernel", "graph", "graph"] and fake.executables == 1
    assert fake.calls.count("cuGraphDestroy") == 1  # what the executable was made from
    same = ("grid", "block", "clusters", "shared_bytes", "function", "arguments", "context")
    first = fake.launches[0]
    assert (first.clusters, first.arguments, first.context) == ([(2, 1, 1)], 8, CONTEXT)
    for made in fake.launches:
        assert [getattr(made, x) for x in same] == [getattr(first, x) for x in same]
        assert made.stream == stream


def test_each_stream_has_a_graph_of_its_own(fake, ready):
    for _ in range(3):
        for stream in (0, 5, 6):
            ready(stream)
    assert [made.stream for made in fake.launches] == [0, 5, 6] * 3 and fake.executables == 3
    assert kinds(fake)[6:] == ["graph"] * 3


def test_streams_that_are_too_many_are_forgotten_with_their_graphs(fake, ready):
    for stream in range(ready.STREAMS + 1):
        for _ in range(2):
            ready(stream)
    gc.collect()
    assert fake.executables == 1
    ready(0)
    assert kinds(fake)[-1] == "kernel"


def test_a_captured_stream_gets_kernels(fake, ready):
    """The driver refuses to queue a graph there, and ends the capture."""
    fake.captured = {SIDE}
    for _ in range(3):
        ready(SIDE)
    assert kinds(fake) == ["kernel"] * 3 and fake.executables == 0
    fake.captured = set()
    ready(SIDE)
    ready(SIDE)
    assert kinds(fake)[3:] == ["kernel", "graph"]
    fake.captured = {SIDE}
    ready(SIDE)
    assert kinds(fake)[5:] == ["kernel"]


@pytest.mark.parametrize("stream", [SIDE, SIDE + 1])
def test_a_kernel_that_was_captured_stays_loaded(fake, stream):
    """The program's graph has it, long after the last one who could launch it has gone."""
    fake.captured = {SIDE}
    function = Function("v3", 100_000, H200, SimpleNamespace(handle=0x3000))
    Launch(function, 0, [], threads=160)((1, 1, 1), [], [], stream)
    loaded = weakref.ref(function)
    del function
    gc.collect()
    assert (loaded() is not None) is (stream == SIDE)


@pytest.mark.parametrize("stream", [0, 1])  # 1: CU_STREAM_LEGACY
def test_the_default_stream_is_never_asked(fake, ready, stream):
    """It cannot be captured, and the driver calls the question itself an error at times."""
    for _ in range(3):
        ready(stream)
    assert "cuStreamIsCapturing" not in fake.calls


@pytest.mark.parametrize("current", [[0xBEEF], [0]])
def test_where_another_context_is_current_the_kernel_is_queued_in_its_own(fake, ready, current):
    """The driver would queue the graph on the default stream of that context."""
    for _ in range(3):
        ready(0)
    fake.current = list(current)
    ready(0)
    assert kinds(fake)[3:] == ["kernel"] and fake.launches[-1].context == CONTEXT
    assert fake.current == [current[0] or CONTEXT]  # a thread without one is given ours


def test_there_are_so_many_graphs_at_most(fake, ready, monkeypatch):
    monkeypatch.setattr(Graph, "MOST", len(Graph.alive) + 2)
    for stream in (5, 6, 7):
        for _ in range(3):
            ready(stream)
    assert kinds(fake)[-3:] == ["kernel"] * 3 and fake.executables == 2
    ready._graphs.clear()
    gc.collect()
    assert fake.executables == 0 and Graph.room()


def test_a_graph_may_be_made_and_freed_while_other_streams_are_captured(fake, ready):
    before = fake.mode
    for _ in range(2):
        ready(0)
    assert fake.modes == [RELAXED] * 2 and fake.mode == before
    fake.current = [0xBEEF]
    ready._graphs.clear()
    assert fake.freed_in == CONTEXT and fake.current == [0xBEEF]
    assert fake.modes == [RELAXED] * 3 and fake.mode == before and fake.executables == 0


def test_a_driver_that_is_gone_is_no_error_where_a_graph_is_freed(fake, ready, monkeypatch):
    lost = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    for _ in range(2):
        ready(0)
    fake.failing["cuThreadExchangeStreamCaptureMode"] = fake.CUresult.CUDA_ERROR_NOT_INITIALIZED
    ready._graphs.clear()
    assert "cuGraphExecDestroy" not in fake.calls and not lost


def test_a_graph_that_fails_names_the_kernel_and_the_status(fake, ready):
    for _ in range(2):
        ready(0)
    fake.failing["cuGraphLaunch"] = fake.CUresult.CUDA_ERROR_LAUNCH_FAILED
    with pytest.raises(DeviceError, match="launching v3: CUDA_ERROR_LAUNCH_FAILED: as the test"):
        ready(0)


def test_where_a_graph_cannot_be_made_that_is_said_once_and_kernels_are_queued(fake, ready):
    ready(0)
    fake.failing["cuGraphInstantiate"] = fake.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.warns(RuntimeWarning, match="CUDA_ERROR_OUT_OF_MEMORY.*launch of v3 takes") as seen:
        for _ in range(3):
            ready(0)
    assert len(seen) == 1 and kinds(fake) == ["kernel"] * 4 and not fake.graphs
    assert "cuStreamDestroy" in fake.calls and fake.current == [CONTEXT]


def test_threads_queue_a_graph_one_after_another(fake, ready):
    """The driver does not lock it."""
    inside, most = [0], [0]

    def slow(made):
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.002)
        inside[0] -= 1

    ready(0)
    ready(0)
    fake.read = slow
    fake.current = [CONTEXT]
    together(*[lambda: [ready(0) for _ in range(5)]] * 4)
    assert kinds(fake)[2:] == ["graph"] * 20 and most == [1]


def test_threads_that_have_a_default_stream_each_do_not_wait_for_each_other(fake, ready):
    """They know their streams by one handle, and launches of one graph follow one another."""
    for _ in range(4):
        ready(PER_THREAD)
    assert kinds(fake) == ["kernel"] * 4 and fake.executables == 0


def test_a_stream_of_a_part_of_the_gpu_gets_kernels(fake, ready):
    """A graph would leave the part: it runs in the context that it was captured in."""
    fake.contexts[SIDE] = 0xBEEF
    for _ in range(4):
        ready(SIDE)
    assert kinds(fake) == ["kernel"] * 4 and fake.calls.count("cuStreamGetCtx") == 1


def test_a_driver_that_cannot_say_which_context_is_current_is_named(fake, ready):
    """As in a process forked off one that has used the GPU."""
    for _ in range(3):
        ready(0)
    fake.failing["cuCtxGetCurrent"] = fake.CUresult.CUDA_ERROR_NOT_INITIALIZED
    with pytest.raises(DeviceError, match="context is current: CUDA_ERROR_NOT_INITIALIZED"):
        ready(0)


def test_a_handler_of_signals_may_launch_what_it_has_interrupted(fake, ready):
    for _ in range(2):
        ready(0)
    before = signal.signal(signal.SIGUSR1, lambda *_: ready(0))
    handled = []
    fake.read = lambda made: handled or handled.append(0) or signal.raise_signal(signal.SIGUSR1)
    ready(0)
    signal.signal(signal.SIGUSR1, before)
    assert kinds(fake)[2:] == ["graph"] * 2


def test_threads_on_different_streams_do_not_wait_for_each_other(fake, ready):
    inside = threading.Barrier(2)
    for stream in (5, 6):
        ready(stream)
        ready(stream)
    fake.read = lambda made: inside.wait(10)  # raises where the other one does not come
    fake.current = [CONTEXT]
    together(*(partial(ready, stream) for stream in (5, 6)))
    assert kinds(fake)[4:] == ["graph"] * 2


def test_what_a_graph_that_cannot_be_made_was_made_of_is_freed(fake, ready):
    ready(0)
    fake.failing["cuGraphInstantiate"] = fake.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="OUT_OF_MEMORY"):
            ready(0)
        ready(0)  # and nobody tries again
    assert fake.calls.count("cuGraphDestroy") == fake.calls.count("cuGraphInstantiate") == 1

# SPDX-License-Identifier: Apache-2.0
"""Launches on the GPU: arguments, grids, clusters, streams, events, failures, costs."""

import functools
import gc
import subprocess
import sys
import time

import numpy as np
import pytest
from tests.kernels import load_v3
from tests.runtime.pitched import FORMS, Pitched
from tests.runtime.threads import together

from tilus import kernels, nvrtc
from tilus.dtypes import boolean, float32, int8, int32, uint64
from tilus.errors import ArgumentError, DeviceError
from tilus.layout import Swizzle
from tilus.runtime import (
    DeviceArray,
    Event,
    Launch,
    Tiling,
    encode_tensor_map,
    load,
    synchronize,
)

#: Each block writes its arguments and place; shared memory is touched at its far end.
ECHO = """
struct alignas(64) Map { unsigned long long words[16]; };
extern "C" __global__ void echo(const __grid_constant__ Map map, int i, bool b, float f,
                                signed char c, double* out, int shared_bytes) {
  extern __shared__ __align__(1024) unsigned char memory[];
  memory[shared_bytes - 1] = 1;
  unsigned cluster, rank;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(cluster));
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  double* mine = out + 10 * (blockIdx.x + gridDim.x * blockIdx.y);
  if (threadIdx.x == blockDim.x - 1) {
    mine[0] = i; mine[1] = b; mine[2] = f; mine[3] = c; mine[4] = blockIdx.x; mine[5] = blockIdx.y;
    mine[6] = blockDim.x; mine[7] = cluster; mine[8] = rank; mine[9] = (unsigned)map.words[0];
  }
}
"""

#: Burns ``cycles`` of the SM's clock, then adds one.
SLOW = """
extern "C" __global__ void slow(int* out, int cycles) {
  long long start = clock64();
  while (clock64() - start < cycles) {}
  out[0] = out[0] + 1;
}
"""

CRASH = """
from tilus import nvrtc, runtime
from tilus.dtypes import uint64
from tilus.errors import ArgumentError, DeviceError

source = 'extern "C" __global__ void bad(int* p) { *p = 1; }'
run = runtime.Launch(runtime.load(nvrtc.compile(source, name="bad").code, "bad", 0), 0, [uint64],
                     threads=32)
run((1, 1, 1), [], [16])
try:
    runtime.synchronize()
except DeviceError as error:
    print(error)
"""


def function(source, name, shared_bytes=0):
    return load(nvrtc.compile(source, name=name).code, name, shared_bytes)


@pytest.mark.parametrize("cluster", [1, 2])
def test_arguments_and_places_arrive(gpu, cluster):
    out = DeviceArray.from_numpy(np.zeros((3, 4, 10)))
    types = [int32, boolean, float32, int8, uint64, int32]
    echo = function(ECHO, "echo", gpu.shared_bytes)
    run = Launch(echo, 1, types, threads=96, cluster=(cluster, 1, 1))
    tensor_map = encode_tensor_map(
        Tiling(0x10000, float32, (64, 64), (256, 4), (8, 32), Swizzle.B128)
    )
    first_word = int.from_bytes(bytes(tensor_map)[:4], "little")
    values = [-5, True, 2.5, -7, out.described.address, gpu.shared_bytes]
    run((4, 3, 1), [tensor_map], values)
    found = out.to_numpy()
    for y, x in np.ndindex(3, 4):
        rank = x % cluster
        expected = [-5, 1, 2.5, -7, x, y, 96, cluster, rank, first_word]
        assert found[y, x].tolist() == expected


def test_a_stream_is_waited_for_and_timed(gpu):
    out = DeviceArray.from_numpy(np.zeros(1, np.int32))
    run = Launch(function(SLOW, "slow"), 0, [uint64, int32], threads=1)
    start, end = Event(), Event()
    start.record()
    run((1, 1, 1), [], [out.described.address, 20_000_000])
    end.record()
    begun = time.perf_counter()
    end.synchronize()
    waited = (time.perf_counter() - begun) * 1000
    assert 8 < end.since(start) < 200  # 20 million cycles at 0.1 to 2.5 GHz
    assert abs(waited - end.since(start)) < 10
    assert out.to_numpy().tolist() == [1]


def test_launches_go_to_the_stream_given(gpu):
    torch = pytest.importorskip("torch")
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    side = torch.cuda.Stream()
    run = Launch(function(SLOW, "slow"), 0, [uint64, int32], threads=1)
    torch.cuda.synchronize()
    for _ in range(3):
        run((1, 1, 1), [], [out.data_ptr(), 30_000_000], side.cuda_stream)
    assert not side.query()
    side.synchronize()
    assert out.item() == 3


def test_a_failing_kernel_is_a_device_error(gpu):
    done = subprocess.run([sys.executable, "-c", CRASH], capture_output=True, text=True)
    assert "waiting for the GPU: CUDA_ERROR_ILLEGAL_ADDRESS" in done.stdout, done.stderr


def test_what_the_driver_refuses_is_a_device_error(gpu):
    code = nvrtc.compile(SLOW, name="slow").code
    with pytest.raises(DeviceError, match="loading fast"):
        load(code, "fast", 0)
    with pytest.raises(DeviceError, match="loading slow"):
        load(b"\x7fELF" + bytes(1000), "slow", 0)
    run = Launch(function(SLOW, "slow"), 0, [uint64, int32], threads=4096)
    with pytest.raises(DeviceError, match="launching slow: CUDA_ERROR_INVALID_VALUE"):
        run((1, 1, 1), [], [0, 0])
    synchronize()  # none of it left the context broken


def test_what_a_launch_costs(gpu, record_property):
    """The bar for a whole call from Python is 6 microseconds; the launch is a large part of it."""
    out = DeviceArray.from_numpy(np.zeros(1, np.int32))
    run = Launch(function(SLOW, "slow"), 0, [uint64, int32], threads=1)
    ready = run.ready((1, 1, 1), [], [out.described.address, 0])
    costs = []
    for _ in range(20):
        synchronize()
        begun = time.perf_counter()
        for _ in range(200):
            ready()
        costs.append((time.perf_counter() - begun) / 200 * 1e6)
    record_property("launch_us", round(min(costs), 2))
    print(f"a launch costs {min(costs):.2f} us")
    assert min(costs) < 10


# Calls of a kernel that are like one before


M, N, K = 256, 384, 320


def factors(torch, seed):
    """Return integers to multiply, exactly, and a place for the product that holds NaN."""
    draw = torch.Generator("cuda").manual_seed(seed)
    a, b = (
        torch.randint(-1, 2, (rows, K), device="cuda", generator=draw).half() for rows in (M, N)
    )
    return a, b, torch.full((M, N), float("nan"), device="cuda").half()


def product(a, b):
    return (a.float() @ b.float().T).half()


def test_an_address_with_another_form_has_another_map(torch):
    """One pool, so that addresses are the same for certain: only forms differ."""
    kernel = Pitched()
    pool = torch.randn(1 << 14, device="cuda").half()
    for m, k, pitch in FORMS * 3:
        a = pool.as_strided((m, k), (pitch, 1))
        c = torch.full((m, k), float("nan"), device="cuda").half()
        kernel(m, k, pitch, a, c)
        assert torch.equal(c, a), (m, k, pitch)
    with pytest.raises(ArgumentError, match="a must be an array of float16, got one of int16"):
        kernel(64, 64, 64, pool.view(torch.int16)[:4096].view(64, 64), c)


def test_memory_that_was_freed_and_given_out_again(torch):
    kernel, seen = Pitched(), []
    for turn in range(60):
        m, k = [(64, 256), (256, 64), (128, 128), (100, 136)][turn % 4]
        a = torch.randn(m, k, device="cuda").half()
        c = torch.empty_like(a)
        kernel(m, k, k, a, c)
        assert torch.equal(c, a), turn
        seen.append(a.data_ptr())
        del a, c
    assert len(set(seen)) < len(seen)  # or it would be no test


def test_tensors_that_change_in_place_are_seen(torch):
    kernel = Pitched()
    a, c = torch.randn(64, 128, device="cuda").half(), torch.empty(64, 128, device="cuda").half()
    kernel(64, 128, 128, a, c)
    a.set_(torch.randn(64, 128, device="cuda").half())
    kernel(64, 128, 128, a, c)
    assert torch.equal(c, a)
    with pytest.raises(ArgumentError, match="a must be of shape"):
        kernel(64, 128, 128, a.resize_(128, 64), c)


def test_memory_is_not_held_by_what_is_cached(torch):
    kernel = Pitched()
    torch.cuda.synchronize()
    gc.collect()
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        a = torch.randn(512, 512, device="cuda").half()
        kernel(512, 512, 512, a, torch.empty_like(a))
        del a
    gc.collect()
    assert torch.cuda.memory_allocated() == before


@pytest.mark.parametrize("given", [False, True])
def test_a_call_waits_for_its_stream_alone(torch, v3, given):
    """The stream is busy when the call comes; inputs are written only then."""
    a, b, c = factors(torch, 0)
    new, side = factors(torch, 1)[0], torch.cuda.Stream()
    v3(M, N, K, a, b, c)  # known from now on, by the default stream
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        a.copy_(new)
        if not given:
            v3(M, N, K, a, b, c)
    if given:
        v3(M, N, K, a, b, c, stream=side)
    assert not side.query()  # neither has the host waited
    side.synchronize()
    assert torch.equal(c, product(new, b))


def test_a_cuda_graph_replays_calls_on_what_is_there_then(torch, v3):
    a, b, c = factors(torch, 2)
    v3(M, N, K, a, b, c)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        v3(M, N, K, a, b, c)
    c.fill_(float("nan"))
    torch.cuda.synchronize()
    assert c.isnan().all()  # capturing runs nothing
    for seed in (3, 4):
        new_a, new_b, _ = factors(torch, seed)
        a.copy_(new_a)
        b.copy_(new_b)
        c.fill_(float("nan"))
        graph.replay()
        assert torch.equal(c, product(new_a, new_b))


@pytest.mark.parametrize("size", [(256, 384, 320), (64, 128, 8192), (63, 65, 67)], ids=str)
def test_a_cuda_graph_replays_products_of_every_kind(torch, size):
    """The second splits K, and so has a workspace for each stream: the capture's is a new one."""
    m, n, k = size
    draw = functools.partial(torch.randint, -1, 2, device="cuda")
    a, b = draw(size=(m, k)).half(), draw(size=(n, k)).half()
    c, columns, graph = torch.zeros(m, n, device="cuda").half(), b.T, torch.cuda.CUDAGraph()
    kernels.matmul(a, columns, c)  # compiled and loaded before
    assert torch.equal(c, product(a, b))
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        kernels.matmul(a, columns, c)
    for _ in range(2):
        a.copy_(draw(size=(m, k)).half())
        c.fill_(float("nan"))
        graph.replay()
        assert torch.equal(c, product(a, b))


def test_what_is_captured_may_be_new_and_depend_on_another_launch(torch, v3):
    """Tensor maps are made while the stream is captured, for tensors that no call had before."""
    v3(M, N, K, *factors(torch, 0))
    kernel, (a, b, c), graph = Pitched(), factors(torch, 5), torch.cuda.CUDAGraph()
    copy = torch.full((M, K), float("nan"), device="cuda").half()
    kernel(M, K, K, factors(torch, 6)[0], copy)  # compiled and loaded before
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        kernel(M, K, K, a, copy)
        v3(M, N, K, copy, b, c)
    new = factors(torch, 7)[0]
    a.copy_(new)
    graph.replay()
    graph.replay()
    assert torch.equal(c, product(new, b)) and torch.equal(copy, new)


def test_a_graph_holds_its_arguments_itself(torch, v3):
    """A captured launch outlives the cache that it came from."""
    a, b, c = factors(torch, 8)
    kernel, graph = load_v3()(4, 128, 128, 64), torch.cuda.CUDAGraph()
    kernel(M, N, K, a, b, c)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        kernel(M, N, K, a, b, c)
    kernel._launcher.known.kept.clear()
    encode_tensor_map.cache_clear()
    gc.collect()
    for _ in range(100):  # other calls' arguments, where those of the graph may have been
        v3(M, N, K, *factors(torch, 9))
    c.fill_(float("nan"))
    graph.replay()
    assert torch.equal(c, product(a, b))


def test_threads_without_a_context_can_call(torch, v3):
    """They do nothing else: PyTorch would give them one."""
    each = [factors(torch, seed) for seed in range(4)]
    torch.cuda.synchronize()

    def work(a, b, c):
        for _ in range(20):
            v3(M, N, K, a, b, c, stream=0)

    together(*(functools.partial(work, *arrays) for arrays in each))
    synchronize()
    assert [torch.equal(c, product(a, b)) for a, b, c in each] == [True] * 4


def test_the_arrays_gpu_is_used_whatever_is_current(torch):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    kernel = Pitched()
    for _ in range(2):
        for index in (0, 1, 1, 0):
            a = torch.randn(64, 64, device=f"cuda:{index}").half()
            c = torch.empty_like(a)
            kernel(64, 64, 64, a, c)
            assert torch.equal(c, a) and kernel.last_run.device == f"cuda:{index}"
            assert torch.cuda.current_device() == 0


def test_what_a_cached_call_costs(torch, v3, record_property):
    """``scripts/launch-times`` measures it; here only what has gone wrong altogether is noticed."""
    a, b, c = factors(torch, 0)
    costs = []
    for _ in range(20):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(200):
            v3(M, N, K, a, b, c)
        costs.append((time.perf_counter() - begun) / 200 * 1e6)
    record_property("call_us", round(min(costs), 2))
    print(f"a cached call costs {min(costs):.2f} us")
    assert min(costs) < 15

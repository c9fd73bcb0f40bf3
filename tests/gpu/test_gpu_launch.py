# SPDX-License-Identifier: Apache-2.0
"""Launches on the GPU: arguments, grids, clusters, streams, events, failures, costs."""

import subprocess
import sys
import time

import numpy as np
import pytest

from tilus import nvrtc
from tilus.dtypes import boolean, float32, int8, int32, uint64
from tilus.errors import DeviceError
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
from tilus.errors import DeviceError

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
    """The bar for a whole call from Python is 6 microseconds; the launch is its largest part."""
    out = DeviceArray.from_numpy(np.zeros(1, np.int32))
    run = Launch(function(SLOW, "slow"), 0, [uint64, int32], threads=1)
    costs = []
    for _ in range(20):
        synchronize()
        begun = time.perf_counter()
        for _ in range(200):
            run((1, 1, 1), [], [out.described.address, 0])
        costs.append((time.perf_counter() - begun) / 200 * 1e6)
    record_property("launch_us", round(min(costs), 2))
    print(f"a launch costs {min(costs):.2f} us")
    assert min(costs) < 20

# SPDX-License-Identifier: Apache-2.0
"""The energy timer on a GPU: its clock is one that a GPU can have, and waiting takes little."""

from tilus import nvrtc, runtime
from tilus.dtypes import int32
from tilus.energy import EnergyTimer

#: Waits for ``cycles`` of the SM's clock.
WAIT = """
extern "C" __global__ void wait(int cycles) {
  long long start = clock64();
  while (clock64() - start < cycles) {}
}
"""
CYCLES = 1_000_000


def test_cycles_counted_are_cycles_waited(gpu):
    function = runtime.load(nvrtc.compile(WAIT, name="wait").code, "wait", 0, gpu.index)
    launch = runtime.Launch(function, 0, [int32], threads=32)
    timer = EnergyTimer(gpu)

    def wait():
        launch((gpu.sms, 1, 1), [], [CYCLES])

    each_ms = timer.run(wait, 200).latency_ms
    count = round(1000 / each_ms)
    window = timer.run(wait, count, count * each_ms)
    waited = CYCLES / window.latency_ms / 1000  # MHz, but for what a launch takes besides
    assert waited * 0.99 < window.sm_mhz < waited * 1.05
    assert 50 < window.power_w < 700 and 200 < window.nvml_mhz < 2100

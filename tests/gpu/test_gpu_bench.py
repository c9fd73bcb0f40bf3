# SPDX-License-Identifier: Apache-2.0
"""``tilus.utils.benchmark_func`` with the GPU's own clock."""

import tilus
from tilus import runtime


def test_benchmark_func_sees_a_larger_copy_take_longer(gpu):
    small, large = (runtime.DeviceArray((n,), tilus.float32, gpu.index) for n in (2**18, 2**28))
    times = [tilus.utils.benchmark_func(lambda x=x: x.fill_bytes(0)) for x in (small, large)]
    assert 0.0005 < times[0] < times[1] / 4 < 10  # 1 GiB takes a quarter of a millisecond or more

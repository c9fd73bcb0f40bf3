# SPDX-License-Identifier: Apache-2.0
"""A GPU played by NumPy: memory is the host's, launches make time pass, contenders have a pace."""

import numpy as np

from tilus import baseline, bench, runtime

H200 = runtime.Gpu(0, "NVIDIA H200", (9, 0), 132, 232448, 2**25, 2**37, (13, 0), "580.0")
FACTS = {
    **{"threads": 160, "registers": 168, "shared_bytes": 4096},
    **{"blocks_per_sm": 1, "compile_s": 0.4},
}


class Stage:
    """A GPU: memory is NumPy's, time passes by launches, each contender has its pace."""

    def __init__(self):
        self.now, self.launches = 0.0, []

    def play(self, monkeypatch):
        monkeypatch.setattr(runtime, "require_gpu", lambda: H200)
        monkeypatch.setattr(runtime, "find_gpu", lambda: H200)
        monkeypatch.setattr(runtime, "DeviceArray", HostArray)
        monkeypatch.setattr(
            runtime, "telemetry", lambda gpu: runtime.Telemetry(1500, 3201, 650.0, 700.0, 60)
        )
        monkeypatch.setattr(bench, "CudaTimer", lambda gpu: self)
        return self

    def pace(self, name, milliseconds):
        def ran():
            self.launches.append(name)
            self.now += milliseconds

        return ran

    def rest(self, seconds):
        pass

    def run(self, launch, count, expected_ms=0.0):
        before = self.now
        for _ in range(count):
            launch()
        return bench.Window(self.now - before, count, 1500.0, 650.0)


class HostArray:
    """A DeviceArray in host memory."""

    def __init__(self, array):
        self.array = array

    @classmethod
    def from_numpy(cls, array, device=0):
        return cls(array.copy())

    def view(self, shape, strides=None, offset=0):
        return HostArray(np.ndarray(shape, self.array.dtype, self.array, offset, strides))

    def copy_from(self, array):
        self.array[...] = array

    def fill_bytes(self, value):
        self.array.view(np.uint8)[...] = value

    def to_numpy(self):
        return self.array.copy()


def multiply(a, b, c):
    c.array[...] = a.array.astype(np.float32) @ b.array.astype(np.float32).T


def kernel_like(v3, ran, multiply=multiply):
    """Return a script whose kernel is NumPy, and which tells ``ran`` of each launch."""

    class Played(v3):
        def __new__(cls):
            self = object.__new__(Fake)
            self.schedule = {"num_stages": 4, "block_m": 128, "block_n": 128, "block_k": 64}
            return self

    class Fake:
        def bind(self, m, n, k, a, b, c):
            return v3(2, 128, 64, 16).bind(m, n, k, a.array, b.array, c.array)

        def lower(self, **constants):
            return None

        def __call__(self, m, n, k, a, b, c):
            multiply(a, b, c)
            ran()

    Played.__name__ = "MatmulWGMMAV3"
    return Played


def rivals(monkeypatch, stage, paces, multiply=multiply):
    def contenders(a, b, c):
        def contender(name, milliseconds):
            ran = stage.pace(name, milliseconds)

            def launch():
                multiply(a, b, c)
                ran()

            return baseline.Contender(name, launch, "numpy", "1.0", lambda: f"sm90_{name}")

        return [contender(name, ms) for name, ms in paces.items()]

    monkeypatch.setattr(baseline, "contenders", contenders)

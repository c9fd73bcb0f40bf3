# SPDX-License-Identifier: Apache-2.0
"""A kernel that does more or less what it should, and a rig that tunes it on the simulator."""

import functools

import numpy as np

import tilus
from tilus import bench, float32, int32, option
from tilus.autotune import Tuner
from tilus.autotune.judge import judge
from tilus.frontend import kernel_function
from tilus.launch import bind
from tilus.utils import cdiv

ROWS, COLUMNS, PITCH = 64, 64, 72


@tilus.autotune("behaviour", ["right", "right slow"])
@tilus.autotune("rows", [32, 64])
class Fill(tilus.Script):
    """Fills C with ones, more or less."""

    def __init__(self, behaviour, rows):
        super().__init__()
        self.behaviour, self.rows = behaviour, rows

    def __call__(self, m: int32, n: int, a: ~float32, c: ~float32):
        self.attrs.blocks, self.attrs.warps = cdiv(m, self.rows), 4
        gc = self.global_view(c, dtype=float32, shape=[m, n], strides=[PITCH, 1])
        ga = self.global_view(a, dtype=float32, shape=[m, n], strides=[n, 1])
        value = 2.0 if self.behaviour == "wrong" else 1.0
        tile = self.register_tensor(dtype=float32, shape=[self.rows, 64], init=value)
        offset: int32 = self.blockIdx.x * self.rows
        if self.behaviour == "right slow":
            for _ in self.range(20):
                self.sync()
        if self.behaviour == "deadlock":
            self.mbarrier.wait(self.mbarrier.alloc(1), phase=0)
        if self.behaviour == "endless":
            i: int32 = 0
            while i < 1:
                i = i * 2
        if self.behaviour == "input":
            self.store_global(ga, tile, offsets=[offset, 0])
        if self.behaviour == "beyond":
            wide = self.global_view(c, dtype=float32, shape=[m - 1, PITCH])
            self.store_global(wide, tile, offsets=[offset, 64])
        if self.behaviour != "nothing":
            self.store_global(gc, tile, offsets=[offset, 0])
        if self.behaviour == "late deadlock":
            self.mbarrier.wait(self.mbarrier.alloc(1), phase=0)

    def reference(self, m, n, a, c):
        c[...] = 1


class CycleTimer:
    """Takes the simulator's cycles for milliseconds."""

    def rest(self, seconds):
        pass

    def run(self, launch, count, expected_ms=0.0):
        return bench.Window(sum(launch().cycles for _ in range(count)), count)


class Simulated:
    """A rig whose GPU is the simulator."""

    device = "sim"
    found = {"capability": [9, 0], "sms": 132, "driver": "580", "nvrtc": "13.0"}

    def __init__(self, device, refuse=lambda kernel: False):
        assert device == "cuda:0"

    def facts(self):
        return dict(self.found)

    def build(self, kernel):
        return kernel

    def timer(self):
        return CycleTimer()


def set_options(patch, cache):
    patch.setattr(option, "_cache_dir", str(cache))
    patch.setattr(option, "_device", "sim")
    patch.setattr(option, "_workers", "2")
    return cache


def made_arrays():
    a, c = np.full((ROWS, COLUMNS), 7, np.float32), np.full((ROWS, PITCH), 8, np.float32)
    return a, c


def call_of(cls, arrays):
    a, c = arrays
    return bind(kernel_function(cls), (len(c), COLUMNS, a, c[:, :COLUMNS]), {})


def tune(cls, arrays, rig=Simulated, limit=30.0, **given):
    tuner = Tuner(cls, given, rig, functools.partial(judge, limits=(120.0, limit)))
    tuner.choose(call_of(cls, arrays), "cuda:0")
    return tuner.last


def space(*behaviours, rows=(64,)):
    """Return the script with other schedules."""

    class Other(Fill):
        autotune_space = (
            (("behaviour",), tuple((b,) for b in behaviours)),
            (("rows",), tuple((r,) for r in rows)),
        )

    return Other

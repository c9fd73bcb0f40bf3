# SPDX-License-Identifier: Apache-2.0
"""Tuning on the GPU: what is wrong is set aside there too, and the tuner survives what is not."""

import functools

import pytest

import tilus
from tilus import float32, int32, option
from tilus.autotune import Tuner
from tilus.autotune.judge import judge
from tilus.frontend import kernel_function
from tilus.launch import bind
from tilus.runtime import DeviceArray
from tilus.utils import cdiv

ROWS, COLUMNS, PITCH = 256, 64, 72


@tilus.autotune("behaviour", ["wrong", "nothing", "beyond", "right"])
@tilus.autotune("rows", [32, 64])
class Fill(tilus.Script):
    """Fills C with ones, more or less."""

    def __init__(self, behaviour, rows):
        super().__init__()
        self.behaviour, self.rows = behaviour, rows

    def __call__(self, m: int32, n: int, c: ~float32):
        self.attrs.blocks, self.attrs.warps = cdiv(m, self.rows), 4
        gc = self.global_view(c, dtype=float32, shape=[m, n], strides=[PITCH, 1])
        value = 2.0 if self.behaviour == "wrong" else 1.0
        tile = self.register_tensor(dtype=float32, shape=[self.rows, 64], init=value)
        offset: int32 = self.blockIdx.x * self.rows
        if self.behaviour == "deadlock":
            self.mbarrier.wait(self.mbarrier.alloc(1), phase=0)
        if self.behaviour == "beyond":
            wide = self.global_view(c, dtype=float32, shape=[m - 1, PITCH])
            self.store_global(wide, tile, offsets=[offset, 64])
        if self.behaviour != "nothing":
            self.store_global(gc, tile, offsets=[offset, 0])

    def reference(self, m, n, c):
        c[...] = 1


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(option, "_cache_dir", str(tmp_path))


def tune(gpu, cls, limits=(120.0, 20.0)):
    memory = DeviceArray((ROWS, PITCH), float32, gpu.index)
    memory.fill_bytes(0)
    array = memory.view((ROWS, COLUMNS), (4 * PITCH, 4))
    call = bind(kernel_function(cls), (ROWS, COLUMNS, array), {})
    tuner = Tuner(cls, {}, judge=functools.partial(judge, limits=limits))
    tuner.choose(call, f"cuda:{gpu.index}")
    assert not memory.to_numpy().any(), "the caller's array was touched"
    return tuner.last


def test_only_right_schedules_are_kept(gpu):
    tuning = tune(gpu, Fill)
    assert {schedule["behaviour"] for schedule, _ in tuning.ranking} == {"right"}
    assert len(tuning.ranking) == 2 and sum(tuning.aside.values()) == 6
    assert tune(gpu, Fill).origin == "stored"


@pytest.mark.hang
def test_a_schedule_that_hangs_is_set_aside(gpu):
    class Hanging(Fill):
        autotune_space = (
            (("behaviour",), (("deadlock",), ("right",))),
            (("rows",), ((64,),)),
        )

    tuning = tune(gpu, Hanging, limits=(120.0, 5.0))
    assert tuning.schedule["behaviour"] == "right"
    assert dict(tuning.aside) == {"hangs: not done after 5 s": 1}

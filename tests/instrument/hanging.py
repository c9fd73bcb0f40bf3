# SPDX-License-Identifier: Apache-2.0
"""A small kernel with a barrier at which somebody may forget to arrive."""

import tilus
from tilus import float32, int32

SECONDS = 0.3
"""Limit of the watchdog in tests; a wait that does end takes microseconds."""


class Handover(tilus.Script):
    """Warp 4 hands a stage to two groups, which hand it back; block x writes element x.

    ``missing``: the block that forgets to fill the last stage, -1 where all is well.
    """

    def __init__(self, missing, stages=3):
        super().__init__()
        self.missing, self.stages = missing, stages

    def __call__(self, n: int32, c_ptr: ~float32):
        self.attrs.blocks, self.attrs.warps = n, 5
        view = self.global_view(c_ptr, dtype=float32, shape=[n])
        full = self.mbarrier.alloc([1] * self.stages)
        empty = self.mbarrier.alloc([2] * self.stages)
        with self.thread_group(thread_begin=128, num_threads=32):
            for stage in self.range(self.stages):
                if stage != self.stages - 1 or self.blockIdx.x != self.missing:
                    with self.single_thread():
                        self.mbarrier.arrive(full[stage])
            for stage in self.range(self.stages):
                self.mbarrier.wait(empty[stage], phase=0)
        for half in (0, 1):
            with self.thread_group(thread_begin=64 * half, num_threads=64):
                for stage in self.range(self.stages):
                    self.mbarrier.wait(full[stage], phase=0)
                    with self.single_thread():
                        self.mbarrier.arrive(empty[stage])
        self.sync()
        tile = self.register_tensor(dtype=float32, shape=[1], init=1.0)
        self.store_global(view, tile, offsets=[self.blockIdx.x])


def line(text):
    """Return the number of the line of this file that holds ``text``."""
    with open(__file__) as file:
        return 1 + next(i for i, each in enumerate(file) if text in each)


def expected(block):
    """Return what the waits of a block that hangs say: role, barrier, parity, line."""
    waits = [("warps 0-1", "full"), ("warps 2-3", "full"), ("warp 4", "empty")]
    return [
        (role, f"{barrier}[2]", 0, line(f"wait({barrier}[stage]"), (block, 0, 0))
        for role, barrier in waits
    ]


def told(hangs):
    """Return the same of what was reported, each role once, by its first thread."""
    found = {}
    for hang in hangs:
        found.setdefault(hang.role, hang)
    return [(h.role, h.barrier, h.parity, h.location.line, h.block) for h in found.values()]

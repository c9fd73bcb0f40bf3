# SPDX-License-Identifier: Apache-2.0
"""Moves of whole tiles: what assignments and disagreeing layouts become."""

import numpy as np
import pytest
from tests import sass
from tests.kernels import script

import tilus
from tilus import LanguageError, compiler, disasm, float32, int32
from tilus.emitter import emit
from tilus.layout import wgmma_accumulator


def test_assign_gives_a_carried_tile_new_values(backend):
    def kernel(self, c_ptr: ~float32):
        self.attrs.blocks, self.attrs.warps = 1, 2
        gc = self.global_view(c_ptr, dtype=float32, shape=[16, 32])
        a = self.load_global(gc, offsets=[0, 0], shape=[8, 32])
        same = a
        for _ in self.range(1):
            a += 1
            a *= a
        self.store_global(gc, a, offsets=[0, 0])
        self.store_global(gc, same, offsets=[8, 0])

    c = np.full((16, 32), np.nan, np.float32)
    c[:8] = before = np.arange(256, dtype=np.float32).reshape(8, 32)
    wanted = np.concatenate([(before + 1) ** 2, before])
    backend.run(script(kernel), c)
    assert np.array_equal(c, wanted)


def test_assign_refuses_another_group():
    def kernel(self):
        self.attrs.blocks, self.attrs.warps = 1, 8
        a = self.register_tensor(dtype=float32, shape=[64], init=1.0)
        with self.thread_group(0, 128):
            a += 1

    with pytest.raises(LanguageError, match="a must be held by warps 0-3, got warps 0-7"):
        script(kernel).lower()


class Outer(tilus.Script):
    """A table that is indexed lies in every thread; a product with a spread tile moves it."""

    def __init__(self, warps):
        self.warps = warps

    def __call__(self, at: int32, a_ptr: ~int32, c_ptr: ~int32):
        self.attrs.blocks, self.attrs.warps = 1, self.warps + 1
        ga = self.global_view(a_ptr, dtype=int32, shape=[16, 32])
        gc = self.global_view(c_ptr, dtype=int32, shape=[16, 32])
        with self.thread_group(32, 32 * self.warps):
            table = self.register_tensor(dtype=int32, shape=[32], init=1)
            table[at] = 5
            for i in self.range(2):
                a = self.load_global(ga, offsets=[i * 8, 0], shape=[8, 32])
                self.store_global(gc, a * table, offsets=[i * 8, 0])


@pytest.mark.parametrize("warps", [1, 4])
def test_move_brings_a_tile_into_another_layout(backend, warps):
    a = np.arange(512, dtype=np.int32).reshape(16, 32)
    c, table = np.zeros_like(a), np.ones(32, np.int32)
    table[3] = 5
    backend.run(Outer(warps), 3, a, c)
    assert np.array_equal(c, a * table)


def test_move_takes_shared_memory_between_two_barriers():
    kernel = Outer(4).lower()
    assert kernel.plan.shared_bytes == 128
    text = emit(kernel)
    body = text[text.index("move") : text.index("operate")]
    assert body.count("bar.sync") == 2
    assert "% 128 == 0) {" in body
    assert sass.stack(compiler.build(kernel).cubin.code) == 0


class Slices(tilus.Script):
    """Cut a tile into boxes and put them together in another order."""

    def __init__(self, boxes, shape=(128, 64)):
        self.boxes, self.shape = boxes, shape

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks, self.attrs.warps = 1, 4
        x = self.global_view(x_ptr, dtype=float32, shape=self.shape)
        y = self.global_view(y_ptr, dtype=float32, shape=self.shape)
        tile = self.register_tensor(dtype=float32, shape=self.shape, init=0.0)
        self.annotate_layout(tile, wgmma_accumulator(*self.shape))
        tile += self.load_global(x, offsets=[0, 0], shape=self.shape)
        for offsets, shape in self.boxes:
            self.store_global(y, self.slice(tile, offsets, shape) * 2, offsets=offsets)


@pytest.mark.parametrize(
    "boxes",
    [
        [((0, 8 * i), (128, 8)) for i in range(8)],
        [((64 * i, 0), (64, 64)) for i in range(2)],
        [((64 * i, 32 * j), (64, 32)) for i in range(2) for j in range(2)],
        [((0, 0), (128, 40)), ((0, 40), (128, 24))],
        [((0, 0), (128, 64))],
    ],
    ids=["columns", "rows", "quarters", "unequal", "whole"],
)
def test_slices_make_up_the_tile(backend, boxes):
    x = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
    y = np.full_like(x, np.nan)
    kernel = Slices(boxes)
    backend.run(kernel, x, y)
    assert np.array_equal(y, 2 * x)
    text = disasm.sass(compiler.build(kernel.lower()).cubin.code)
    assert "LDL" not in text and "STL" not in text and "LDS" not in text


@pytest.mark.parametrize(
    "box, message",
    [
        (
            ((0, 4), (128, 8)),
            "cut between registers of a thread, got .128, 8. at .0, 4. of .128, 64",
        ),
        (((0, 0), (32, 64)), "cut between registers of a thread"),
        (((0, 0), (128, 4)), "cut between registers of a thread"),
        (((0, 32), (128, 64)), "shape must be that of a box inside of .128, 64."),
        (((0, 0), (128,)), "shape must be 2 compile-time integers"),
        (((-8, 0), (8, 64)), "offsets must be 2 compile-time integers"),
        (((0, 0), (0, 64)), "shape must be that of a box inside of"),
    ],
)
def test_slice_refuses(box, message):
    with pytest.raises(LanguageError, match=f"slice: .*{message}"):
        Slices([box]).lower()

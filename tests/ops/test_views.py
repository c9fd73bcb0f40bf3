# SPDX-License-Identifier: Apache-2.0
"""Shared memory in other shapes, freed and reused, in layouts of the author's."""

import numpy as np
import pytest
from tests.kernels import script

import tilus
from tilus import LanguageError, compiler, float16, float32, int32
from tilus.layout import SharedLayout, Swizzle, blocked


class Reshape(tilus.Script):
    """Write a tile into one shape and read it in another."""

    def __init__(self, shape, source=(2, 16, 32)):
        self.shape, self.source = shape, source

    def __call__(self, n: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks, self.attrs.warps = 1, 2
        r, c = self.source[-2:]
        x = self.global_view(x_ptr, dtype=float32, shape=[2 * r, c])
        y = self.global_view(y_ptr, dtype=float32, shape=self.shape[-2:])
        s = self.shared_tensor(dtype=float32, shape=self.source)
        for i in range(2):
            self.store_shared(s[i], self.load_global(x, offsets=[i * r, 0], shape=[r, c]))
        self.sync()
        view = self.reshape_shared(s, self.shape)
        tile = self.load_shared(view[n]) if len(self.shape) > 2 else self.load_shared(view)
        self.store_global(y, tile, offsets=[0, 0])


@pytest.mark.parametrize("shape", [(32, 32), (64, 16), (4, 8, 32), (2, 1, 16, 32), (8, 4, 32)])
def test_reshape_shared_keeps_the_order_of_elements(backend, shape):
    x = np.arange(1024, dtype=np.float32).reshape(32, 32)
    y = np.zeros(shape[-2:], np.float32)
    kernel = Reshape(shape) if len(shape) != 4 else ReshapeTiles()
    n = 1 if len(shape) > 2 else 0
    backend.run(kernel, n, x, y)
    wanted = x.reshape(shape)
    assert np.array_equal(y, wanted[n].reshape(y.shape) if len(shape) > 2 else wanted)
    assert compiler.build(kernel.lower()).cubin.code


class ReshapeTiles(tilus.Script):
    """Count tiles in another way: no demand on their layout."""

    def __call__(self, n: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks, self.attrs.warps = 1, 2
        x = self.global_view(x_ptr, dtype=float32, shape=[32, 32])
        y = self.global_view(y_ptr, dtype=float32, shape=[16, 32])
        s = self.shared_tensor(dtype=float32, shape=[2, 16, 32])
        view = self.reshape_shared(s, [2, 1, 16, 32])
        for i in range(2):
            self.store_shared(view[i, 0], self.load_global(x, offsets=[16 * i, 0], shape=[16, 32]))
        self.sync()
        self.store_global(y, self.load_shared(s[n]), offsets=[0, 0])


class Rows(tilus.Script):
    """Fetch the rows of B's tile as two halves, multiply with the whole of it."""

    def __init__(self, block_k=64):
        self.block_k = block_k

    def __call__(self, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float32):
        self.attrs.blocks, self.attrs.warps = 1, 4
        ga = self.global_view(a_ptr, dtype=float16, shape=[64, self.block_k])
        gb = self.global_view(b_ptr, dtype=float16, shape=[32, self.block_k])
        gc = self.global_view(c_ptr, dtype=float32, shape=[64, 32])
        sa = self.shared_tensor(dtype=float16, shape=[64, self.block_k])
        sb = self.shared_tensor(dtype=float16, shape=[32, self.block_k])
        halves = self.reshape_shared(sb, [2, 16, self.block_k])
        full = self.mbarrier.alloc(1)
        with self.single_thread(0):
            self.mbarrier.arrive_and_expect_tx(full, sa.nbytes + sb.nbytes)
            self.tma.global_to_shared(ga, sa, offsets=[0, 0], mbarrier=full)
            for half in (0, 1):
                self.tma.global_to_shared(gb, halves[half], offsets=[16 * half, 0], mbarrier=full)
        self.mbarrier.wait(full, phase=0)
        acc = self.register_tensor(dtype=float32, shape=[64, 32], init=0.0)
        self.wgmma.fence()
        self.wgmma.mma(sa, sb.transpose(), acc)
        self.wgmma.commit_group()
        self.wgmma.wait_group(0)
        self.store_global(gc, acc, offsets=[0, 0])


def test_reshape_shared_deals_swizzled_rows_to_other_tiles(backend):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((64, 64), (32, 64)))
    c = np.full((64, 32), np.nan, np.float32)
    backend.run(Rows(), a, b, c)
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)
    plan = Rows().lower().plan
    assert {layout.swizzle for layout in plan.shared.values()} == {Swizzle.B128}


def test_reshape_shared_refuses_rows_of_several_panels():
    """Their first panel holds all rows of the tile: the halves' panels would lie elsewhere."""
    with pytest.raises(LanguageError, match="sb must have one layout"):
        Rows(block_k=128).lower()


class RowsOfRows(tilus.Script):
    """Fetch a tile as the last of several views of it, read it as all of them."""

    def __init__(self, rows):
        self.rows = rows

    def __call__(self, a_ptr: ~float16, c_ptr: ~float16):
        self.attrs.blocks, self.attrs.warps = 1, 4
        ga, gc = (self.global_view(p, dtype=float16, shape=[64, 64]) for p in (a_ptr, c_ptr))
        first = self.shared_tensor(dtype=float16, shape=[64, 64])
        second = self.reshape_shared(first, [2, 32, 64])
        third = self.reshape_shared(second, [64 // self.rows, self.rows, 64])
        full = self.mbarrier.alloc(1)
        with self.single_thread(0):
            self.mbarrier.arrive_and_expect_tx(full, third.nbytes)
            self.tma.global_to_shared(ga, third, offsets=[0, 0], mbarrier=full)
        self.mbarrier.wait(full, phase=0)
        self.store_global(gc, self.load_shared(second[0]), offsets=[0, 0])
        for i in range(32, 64, self.rows):
            self.store_global(gc, self.load_shared(third[i // self.rows]), offsets=[i, 0])


def test_views_of_views_have_the_swizzle_that_one_of_them_needs(backend):
    a = np.arange(4096, dtype=np.float16).reshape(64, 64)
    c = np.full_like(a, np.nan)
    backend.run(RowsOfRows(16), a, c)
    assert np.array_equal(a, c)


class Part(tilus.Script):
    """Reshape one of several stages, whose number is known at run time."""

    def __call__(self, n: int32, y_ptr: ~float32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        y = self.global_view(y_ptr, dtype=float32, shape=[8, 8])
        s = self.shared_tensor(dtype=float32, shape=[3, 4, 16])
        for i in (0, 1, 2):
            self.store_shared(s[i], self.register_tensor(dtype=float32, shape=[4, 16], init=i))
        self.sync()
        self.store_global(y, self.load_shared(self.reshape_shared(s[n], [8, 8])), offsets=[0, 0])


def test_reshape_shared_of_a_part(backend):
    y = np.zeros((8, 8), np.float32)
    backend.run(Part(), 2, y)
    assert (y == 2).all()


class Reuse(tilus.Script):
    """Use the same shared memory twice, for tensors of two types."""

    def __init__(self, free=True, again=False):
        self.free, self.again = free, again

    def __call__(self, y_ptr: ~float32):
        self.attrs.blocks, self.attrs.warps = 1, 4
        y = self.global_view(y_ptr, dtype=float32, shape=[128, 128])
        kept = self.shared_tensor(dtype=float32, shape=[16])
        a = self.shared_tensor(dtype=float32, shape=[128, 128])
        self.store_shared(a, self.register_tensor(dtype=float32, shape=[128, 128], init=3.0))
        self.sync()
        x = self.load_shared(a)
        self.sync()
        if self.free:
            self.free_shared(a)
        b = self.shared_tensor(dtype=float16, shape=[256, 128])
        half = self.register_tensor(dtype=float16, shape=[256, 128], init=4.0)
        self.store_shared(b, half)
        self.store_shared(kept, self.register_tensor(dtype=float32, shape=[16], init=0.0))
        self.sync()
        self.store_global(y, x + self.cast(self.load_shared(b[0]), dtype=float32), offsets=[0, 0])


def test_free_shared_lets_memory_be_used_again(backend):
    y = np.zeros((128, 128), np.float32)
    backend.run(Reuse(), y)
    assert (y == 7).all()
    assert (
        Reuse().lower().plan.shared_bytes
        < 66000
        < 131000
        < Reuse(free=False).lower().plan.shared_bytes
    )


def uses_what_is_freed(self):
    self.attrs.blocks, self.attrs.warps = 1, 1
    s = self.shared_tensor(dtype=float32, shape=[2, 8, 16])
    view = self.reshape_shared(s, [16, 16])
    self.free_shared(s)
    self.load_shared(view)


def frees_in_a_loop(self, n: int32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    for _ in range(n):
        self.free_shared(self.shared_tensor(dtype=float32, shape=[8, 16]))


def frees_a_part(self):
    self.attrs.blocks, self.attrs.warps = 1, 1
    self.free_shared(self.shared_tensor(dtype=float32, shape=[2, 8, 16])[0])


def frees_in_a_group(self):
    self.attrs.blocks, self.attrs.warps = 1, 2
    s = self.shared_tensor(dtype=float32, shape=[8, 16])
    with self.single_warp():
        self.free_shared(s)


def reshapes_to_another_size(self):
    self.attrs.blocks, self.attrs.warps = 1, 1
    self.reshape_shared(self.shared_tensor(dtype=float32, shape=[8, 16]), [8, 8])


def reshapes_a_transposed_view(self):
    self.attrs.blocks, self.attrs.warps = 1, 1
    self.reshape_shared(self.shared_tensor(dtype=float32, shape=[8, 16]).transpose(), [8, 16])


def reshapes_what_tma_fills(self, p: ~float16):
    self.attrs.blocks, self.attrs.warps = 1, 1
    view = self.global_view(p, dtype=float16, shape=[64, 64])
    s = self.shared_tensor(dtype=float16, shape=[64, 64])
    full = self.mbarrier.alloc(1)
    self.reshape_shared(s, [32, 128])
    self.tma.global_to_shared(view, s, offsets=[0, 0], mbarrier=full)


def cuts_a_pattern_of_the_swizzle(self, p: ~float16):
    self.attrs.blocks, self.attrs.warps = 1, 1
    view = self.global_view(p, dtype=float16, shape=[64, 64])
    s = self.shared_tensor(dtype=float16, shape=[64, 64])
    full = self.mbarrier.alloc(1)
    self.tma.global_to_shared(view, s, offsets=[0, 0], mbarrier=full)
    small = self.reshape_shared(s, [16, 4, 64])
    self.load_shared(small[1])


def annotates_a_wrong_shape(self):
    self.attrs.blocks, self.attrs.warps = 1, 1
    s = self.shared_tensor(dtype=float16, shape=[64, 64])
    self.annotate_layout(s, SharedLayout((64, 32), 2))


def annotates_the_wrong_kind(self):
    self.attrs.blocks, self.attrs.warps = 1, 1
    s = self.shared_tensor(dtype=float16, shape=[64, 64])
    self.annotate_layout(s, blocked((64, 64), 32, 2))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (uses_what_is_freed, r"'view' must not be used after line \d+, which frees it"),
        (frees_in_a_loop, "free_shared: must stand outside of loops and conditions"),
        (frees_a_part, "free_shared: tensor must be a whole allocation"),
        (frees_in_a_group, "free_shared: must stand outside of thread groups"),
        (reshapes_to_another_size, r"shape must be positive integers, 128 elements in all, got"),
        (reshapes_a_transposed_view, "tensor must be as it lies in memory, got a transposed view"),
        (reshapes_what_tma_fills, "s must have one layout in shared memory, but its uses need"),
        (cuts_a_pattern_of_the_swizzle, "small: tiles .* multiple of 1024 bytes, got 512 bytes"),
        (annotates_a_wrong_shape, r"layout must be of \[64, 64\] elements of 2 bytes, got \[64, 3"),
        (annotates_the_wrong_kind, "got a RegisterLayout for a SharedTensor"),
    ],
)
def test_misuse_is_refused(kernel, message):
    with pytest.raises(LanguageError, match=message):
        script(kernel).lower()


class Annotated(tilus.Script):
    """Copy a tile through shared memory, in layouts that the author chose."""

    def __init__(self, registers, shared):
        self.registers, self.shared = registers, shared

    def __call__(self, x_ptr: ~float16, y_ptr: ~float16):
        self.attrs.blocks, self.attrs.warps = 1, 1
        x = self.global_view(x_ptr, dtype=float16, shape=[16, 32])
        y = self.global_view(y_ptr, dtype=float16, shape=[16, 32])
        s = self.shared_tensor(dtype=float16, shape=[16, 32])
        self.annotate_layout(s, self.shared)
        tile = self.load_global(x, offsets=[0, 0], shape=[16, 32])
        self.annotate_layout(tile, self.registers)
        self.store_shared(s, tile)
        self.sync()
        self.store_global(y, self.load_shared(s), offsets=[0, 0])


@pytest.mark.parametrize("swizzle", [Swizzle.NONE, Swizzle.B32, Swizzle.B64])
@pytest.mark.parametrize("element_bytes", [1, 2, 4])
def test_annotate_layout_is_followed(backend, swizzle, element_bytes):
    registers = blocked((16, 32), 32, element_bytes)  # vectors of 16, 8 and 4 elements
    kernel = Annotated(registers, SharedLayout((16, 32), 2, swizzle))
    plan = kernel.lower().plan
    assert registers in plan.registers.values()
    assert [layout.swizzle for layout in plan.shared.values()] == [swizzle]
    x = np.arange(512, dtype=np.float16).reshape(16, 32)
    y = np.zeros_like(x)
    backend.run(kernel, x, y)
    assert np.array_equal(x, y)

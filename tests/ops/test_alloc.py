# SPDX-License-Identifier: Apache-2.0
"""Views and allocations: values, strides, and what is refused."""

import numpy as np
import pytest

import tilus
from tilus import LanguageError, float16, float32, int32, ir, uint32
from tilus.emitter import emit


class Elements(tilus.Script):
    """Step through a small register tensor; store a tile of what it holds in the end."""

    def __init__(self, init, size, steps):
        self.init, self.size, self.steps = init, size, steps

    def __call__(self, add: int32, c_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        gc = self.global_view(c_ptr, dtype=float32, shape=[64, 32])
        counters = self.register_tensor(dtype=int32, shape=[self.size], init=self.init)
        at: int32 = 0
        for _ in self.range(self.steps):
            counters[at] += add
            at = (at + 1) % self.size
        if counters[self.size - 1] == self.init + add * (self.steps // self.size):
            good = self.register_tensor(dtype=float32, shape=[64, 32], init=1.0)
            self.store_global(gc, good, offsets=[0, 0])


def test_register_tensor_is_indexed_at_run_time(backend):
    c = np.zeros((64, 32), np.float32)
    backend.run(Elements(init=5, size=3, steps=9), 7, c)
    assert c.min() == 1.0


class Halves(tilus.Script):
    """Store a float16 tile that was allocated with a value."""

    def __call__(self, c_ptr: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        gc = self.global_view(c_ptr, dtype=float16, shape=[16, 8])
        tile = self.register_tensor(dtype=float16, shape=[16, 8], init=1.5)
        self.store_global(gc, tile, offsets=[0, 0])


def test_register_tensor_of_float16_begins_with_its_value(backend):
    c = np.zeros((16, 8), np.float16)
    backend.run(Halves(), c)
    assert (c == 1.5).all()


def test_register_tensor_of_float16_is_given_bits():
    """A 16-bit float is its bits in generated CUDA, where 1.5f would become 1."""
    bits = np.float16(1.5).view(np.uint16)
    assert f"tile[r] = (half_t){bits:#06x};" in emit(Halves().lower())


class Shapes(tilus.Script):
    """One allocation with arguments from outside."""

    def __init__(self, op, **arguments):
        self.op, self.arguments = op, arguments

    def __call__(self, p: ~float16, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        if self.op == "shared":
            self.shared_tensor(dtype=float16, **self.arguments)
        if self.op == "register":
            self.register_tensor(dtype=float32, **self.arguments)
        if self.op == "global":
            self.global_view(p, dtype=float16, **self.arguments)
        if self.op == "global of a size":
            self.global_view(n, dtype=float16, shape=[4])


@pytest.mark.parametrize("shape", [[0, 8], [8, -1], 8, [2.0, 8]])
def test_shared_tensor_refuses_shapes(shape):
    with pytest.raises(
        LanguageError, match=r"shared_tensor: shape must be a list of (positive )?compile-time"
    ):
        Shapes("shared", shape=shape).lower()


def test_register_tensor_refuses_tiles_beyond_the_registers():
    """256 x 256 float32 over 128 threads would take 512 registers each."""
    with pytest.raises(LanguageError, match="at most 208 registers a thread, got 512"):
        Shapes("register", shape=[256, 256]).lower()


def test_register_tensor_refuses_a_run_time_init():
    with pytest.raises(LanguageError, match="init must be a compile-time number"):
        Shapes("register", shape=[64, 32], init="zero").lower()


def test_global_view_is_row_major_without_strides():
    kernel = Shapes("global", shape=[3, 5, 7]).lower()
    view = next(s.out for s in kernel.function.body if hasattr(s, "out"))
    assert [ir.evaluate(s, {}) for s in view.strides] == [35, 7, 1]


def test_global_view_refuses_other_things_than_pointers_and_uneven_strides():
    with pytest.raises(LanguageError, match="ptr must be a pointer parameter"):
        Shapes("global of a size").lower()
    with pytest.raises(LanguageError, match="strides must be a list of 2, got 1"):
        Shapes("global", shape=[3, 5], strides=[5]).lower()


def test_fill_zeroes_where_no_product_came():
    """The accumulator pass puts fill behind the loop; tests/ops/test_wgmma.py runs it."""
    from_pass = [c for c in ir.instructions() if c.__name__ == "fill"]
    assert len(from_pass) == 1
    kernel = Bits().lower()
    assert kernel.plan.bits == {kernel.function.body[0].out}


class Bits(tilus.Script):
    """Phases: elements that are 0 or 1 live in one word."""

    def __call__(self):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        phases = self.register_tensor(dtype=uint32, shape=[7], init=1)
        for i in self.range(7):
            phases[i] ^= 1

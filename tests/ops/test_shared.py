# SPDX-License-Identifier: Apache-2.0
"""Copies between shared memory and registers: any shape, type, layout and view."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.kernels import script
from tests.ops.lanes import Lanes, instruction, wavefronts, written_by

import tilus
from tilus import LanguageError, float16, float32, int8, int32

NUMPY = {float16: np.float16, float32: np.float32, int8: np.int8, int32: np.int32}


class Move(tilus.Script):
    """Fetch a tile of float32 by TMA, load it, store it to a second buffer, load that."""

    def __init__(self, rows, columns, first_transposed=False, then_transposed=False):
        self.rows, self.columns = rows, columns
        self.first_transposed, self.then_transposed = first_transposed, then_transposed

    def __call__(self, m: int32, n: int, k: int, j: int, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        gx = self.global_view(x_ptr, dtype=float32, shape=[m, n])
        gy = self.global_view(y_ptr, dtype=float32, shape=[k, j])
        fetched = self.shared_tensor(dtype=float32, shape=[self.rows, self.columns])
        plain = self.shared_tensor(dtype=float32, shape=[3, k, j])
        full = self.mbarrier.alloc(1)
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, fetched.nbytes)
            self.tma.global_to_shared(src=gx, dst=fetched, offsets=[0, 0], mbarrier=full)
        self.mbarrier.wait(full, phase=0)
        first = self.load_shared(fetched.transpose() if self.first_transposed else fetched)
        stage: int32 = 1 + self.blockIdx.x
        if self.then_transposed:
            self.store_shared(plain[stage].transpose(), first)
        else:
            self.store_shared(plain[stage], first)
        self.sync()
        then = self.load_shared(plain[stage])
        self.store_global(gy, then, offsets=[0, 0])


@pytest.mark.parametrize("first_transposed", [False, True])
@pytest.mark.parametrize("then_transposed", [False, True])
@pytest.mark.parametrize("rows, columns", [(32, 32), (64, 16), (16, 40), (24, 128)])
def test_load_shared_and_store_shared(backend, rows, columns, first_transposed, then_transposed):
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    expected = x.T if first_transposed != then_transposed else x
    y = np.full(expected.shape, np.nan, np.float32)
    kernel = Move(rows, columns, first_transposed, then_transposed)
    backend.run(kernel, rows, columns, *y.shape, x, y)
    assert np.array_equal(y, expected)


def moves(dtype, shape, rows, transposed, warps):
    """Return a kernel that stores a tile of ones to stage 1 (or to row 5 of it) and loads it."""

    def kernel(self):
        self.attrs.blocks = 1
        self.attrs.warps = warps
        buffer = self.shared_tensor(dtype=dtype, shape=[2, *shape])
        tile = buffer[1]
        if rows == "one":
            tile = buffer[1, 5]
        if transposed:
            tile = tile.transpose()
        values = self.register_tensor(dtype=dtype, shape=tile.shape, init=1)
        self.store_shared(tile, values)
        self.sync()
        values = self.load_shared(tile)

    return script(kernel).lower()


def logical(kernel, op, nth):
    """Return where the elements lie that an instruction moves, in bytes, and its register
    tensor."""
    stmt = instruction(kernel, op, nth)
    tensor, registers = (stmt.src, stmt.out) if op == "load_shared" else (stmt.dst, stmt.src)
    whole = kernel.plan.shared[tensor.buffer].offsets()
    place, size = kernel.plan.places[tensor.buffer], whole.size
    offset = tensor.offset.value
    flat = whole.reshape(-1)[offset % size :][: np.prod(tensor.shape)]
    found = (flat + offset // size * size) * tensor.dtype.nbytes + place
    shape = tensor.shape[::-1] if tensor.transposed else tensor.shape
    found = found.reshape(shape)
    return found.T if tensor.transposed else found, registers


def check(kernel, op, nth=0, begin=0):
    """Run what the nth ``op`` wrote as CUDA, and compare memory and registers element by
    element; return its accesses."""
    places, registers = logical(kernel, op, nth)
    dtype, layout = NUMPY[registers.dtype], kernel.plan.registers[registers]
    index = tuple(np.moveaxis(layout.coordinates(), -1, 0))
    values = np.arange(places.size).reshape(places.shape).astype(dtype)
    lanes = Lanes(layout.threads, kernel.plan.shared_bytes, begin)
    elements = lanes.memory[: lanes.memory.size // values.itemsize * values.itemsize].view(dtype)
    lines = written_by(kernel, op, nth)
    if op == "load_shared":
        elements[places // values.itemsize] = values
        before = lanes.memory.copy()
        lanes.run(lines)
        (name,) = lanes.registers
        assert np.array_equal(lanes.registers[name], values[index])
    else:
        before = lanes.memory.copy()
        before[: elements.nbytes].view(dtype)[places // values.itemsize] = values
        lanes.registers["values"] = values[index]
        lanes.run(lines)
    assert np.array_equal(lanes.memory, before)
    return lanes.accesses


@settings(max_examples=60)
@given(
    dtype=st.sampled_from(list(NUMPY)),
    shape=st.sampled_from([(32, 32), (64, 64), (16, 24), (8, 128), (128, 16), (48, 40), (96, 8)]),
    rows=st.sampled_from(["all", "one"]),
    transposed=st.booleans(),
    warps=st.sampled_from([1, 2, 4]),
)
def test_cuda_moves_every_element(dtype, shape, rows, transposed, warps):
    transposed = transposed and rows == "all"
    count = np.prod(shape) if rows == "all" else shape[1]
    assume(count % (32 * warps) == 0 and count > 32)
    try:
        kernel = moves(dtype, shape, rows, transposed, warps)
    except LanguageError as error:
        assert "threads must divide" in str(error)
        assume(False)
    for op in ("store_shared", "load_shared"):
        check(kernel, op)


def test_rows_move_16_bytes_at_once():
    kernel = moves(float16, (64, 64), "all", False, 4)
    assert {name for name, _ in check(kernel, "load_shared")} == {"load_16"}
    assert {name for name, _ in check(kernel, "store_shared")} == {"store_16"}


@pytest.mark.parametrize("dtype, n", [(float32, 32), (float16, 64), (float16, 32), (int8, 64)])
def test_a_tile_is_read_across_its_rows_without_conflicts(dtype, n):
    """A transpose: rows go in by wide accesses, columns come out; no bank is asked twice."""

    def kernel(self):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        tile = self.shared_tensor(dtype=dtype, shape=[n, n])
        values = self.register_tensor(dtype=dtype, shape=[n, n], init=1)
        self.store_shared(tile, values)
        self.sync()
        values = self.load_shared(tile.transpose())

    lowered = script(kernel).lower()
    for op in ("store_shared", "load_shared"):
        for function, address in check(lowered, op):
            width = 16 if "matrices" in function else int(function.split("_")[1])
            for warp in address.reshape(4, 32):
                assert wavefronts(width, warp) == max(1, width // 4)


@pytest.mark.parametrize(
    "fault, message",
    [
        ("rank", "load_shared: src must be a tile of one or two dimensions"),
        ("shape", r"store_shared: src must be of shape \[8, 8\], got \[8, 16\]"),
        ("type", "store_shared: src must be of type float16, got float32"),
        ("whole", "store_shared: src must be spread over the registers"),
        ("group", "store_shared: src must be held by warp 1, got warps 0-1"),
    ],
)
def test_store_shared_and_load_shared_refuse(fault, message):
    def kernel(self):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        tile = self.shared_tensor(dtype=float16, shape=[2, 8, 8])
        values = self.register_tensor(dtype=float16, shape=[8, 8], init=0.0)
        if fault == "rank":
            self.load_shared(tile)
        if fault == "shape":
            values = self.register_tensor(dtype=float16, shape=[8, 16], init=0.0)
        if fault == "type":
            values = self.register_tensor(dtype=float32, shape=[8, 8], init=0.0)
        if fault == "whole":
            counts = self.register_tensor(dtype=int32, shape=[8], init=0)
            self.store_shared(self.shared_tensor(dtype=int32, shape=[8]), counts)
        if fault == "group":
            with self.single_warp(1):
                self.store_shared(tile[0], values)
        self.store_shared(tile[0], values)

    with pytest.raises(LanguageError, match=message):
        script(kernel).lower()

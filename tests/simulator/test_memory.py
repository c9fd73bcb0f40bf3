# SPDX-License-Identifier: Apache-2.0
"""Shared memory through its layouts; global memory clipped to views."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import do, kernel, loop, run, variable

from tilus import ir, simulator
from tilus.dtypes import float16, float32, int32, uint64
from tilus.errors import ArgumentError, SimulationError
from tilus.layout import SharedLayout, Swizzle
from tilus.simulator.memory import Geometry, GlobalMemory, SharedMemory

POINTER = ir.Var("p", uint64)


def buffer(shape, swizzle=Swizzle.B128, place=1024):
    it = ir.SharedBuffer("tile", float16, shape)
    plan = ir.Plan(
        {}, {it: SharedLayout(shape[-2:], 2, swizzle)}, {it: place}, (), place + it.nbytes
    )
    return ir.SharedTensor(it, shape, ir.as_expr(0)), plan


@pytest.mark.parametrize("swizzle", list(Swizzle))
def test_a_stage_is_read_as_written_and_others_stay_poisoned(swizzle):
    tensor, plan = buffer((3, 16, 64), swizzle)
    memory = SharedMemory(plan)
    values = np.arange(1024, dtype=np.float16).reshape(16, 64)
    memory.write(tensor[1], 1024, values)
    np.testing.assert_array_equal(memory.read(tensor[1], 1024), values)
    np.testing.assert_array_equal(memory.read(tensor[1].transpose(), 1024), values.T)
    np.testing.assert_array_equal(memory.read(tensor, 0)[1], values)
    for stage in (0, 2):
        assert np.isnan(memory.read(tensor[stage], stage * 1024)).all()
    assert (memory._bytes[:1024] == 0xFF).all()  # another buffer's place


def test_bytes_lie_where_the_hardware_puts_them():
    """Row 1 of a 128-byte swizzle: its 16-byte chunks are exchanged in pairs."""
    tensor, plan = buffer((1, 8, 64), place=0)
    memory = SharedMemory(plan)
    memory.write(tensor[0], 0, np.arange(512, dtype=np.float16).reshape(8, 64))
    row = memory._bytes[128:256].view(np.float16)
    assert list(row[:9]) == [72, 73, 74, 75, 76, 77, 78, 79, 64]


def test_a_row_of_a_tile():
    tensor, plan = buffer((2, 8, 64))
    memory = SharedMemory(plan)
    memory.write(tensor[1], 512, np.arange(512, dtype=np.float16).reshape(8, 64))
    row = tensor[1][3]
    np.testing.assert_array_equal(memory.read(row, 512 + 3 * 64), np.arange(192, 256))


def test_reading_what_was_never_written_gives_nan():
    log = []
    tensor, plan = buffer((1, 8, 64))
    tile = ir.RegisterTensor("acc", float32, (4, 4), ir.Threads(0, 160))
    both = do(lambda m: log.extend([m.load_shared(tensor[0]), m.registers(tile)]))
    simulator.run(kernel(both, plan=plan), {})
    assert all(np.isnan(x).all() for x in log)


def test_shared_index_out_of_range():
    tensor, plan = buffer((2, 8, 64))
    i = variable("i")
    reads = loop(i, 3, do(lambda m: m.load_shared(tensor[i])))
    with pytest.raises(SimulationError, match="index of tile out of range"):
        simulator.run(kernel(reads, plan=plan), {})


def view(rows, columns, pitch):
    shape = ir.as_expr(rows), ir.as_expr(columns)
    return ir.GlobalTensor("g", POINTER, float16, shape, (ir.as_expr(pitch), ir.as_expr(1)))


@given(
    rows=st.integers(1, 7), columns=st.integers(1, 7), extra=st.integers(0, 3),
    row=st.integers(-4, 9), column=st.integers(-4, 9),
    box=st.tuples(st.integers(1, 5), st.integers(1, 5)),
)  # fmt: skip
def test_boxes_are_clipped_to_the_view(rows, columns, extra, row, column, box):
    """A load sees the view and zeros around it, a store changes the view and nothing else."""
    pitch = columns + extra
    base = np.arange(1, rows * pitch + 1, dtype=np.float16)
    inside = base.reshape(rows, pitch)[:, :columns]
    padded = np.pad(inside, 20)
    window = np.s_[20 + row : 20 + row + box[0], 20 + column : 20 + column + box[1]]
    memory = GlobalMemory({POINTER: base}, {})
    tensor, geometry = (
        view(rows, columns, pitch),
        Geometry([rows, columns], [pitch, 1], [row, column]),
    )
    np.testing.assert_array_equal(memory.read(tensor, geometry, box), padded[window])
    expected = padded.copy()
    expected[window] = -1
    outside = base.reshape(rows, pitch)[:, columns:].copy()
    memory.write(tensor, geometry, np.full(box, -1, np.float16))
    np.testing.assert_array_equal(inside, expected[20 : 20 + rows, 20 : 20 + columns])
    np.testing.assert_array_equal(base.reshape(rows, pitch)[:, columns:], outside)


def test_an_array_too_small_for_its_view():
    memory = GlobalMemory({POINTER: np.zeros(63, np.float16)}, {})
    with pytest.raises(ArgumentError, match="p must be an array of at least 64 elements"):
        memory.read(view(8, 8, 8), Geometry([8, 8], [8, 1], [4, 4]), (4, 4))


def test_offsets_of_a_view_are_computed_where_it_is_used():
    n, seen = ir.Var("n", int32), []
    params = ir.Param("n", int32, n), ir.Param("p", float16, POINTER, pointer=True)
    tensor = ir.GlobalTensor("g", POINTER, float16, (n, n), (n, ir.as_expr(1)))
    body = do(lambda m: seen.append(m.load_global(tensor, [1, 1], (2, 2))))
    simulator.run(kernel(body, params=params), {"n": 3, "p": np.arange(9, dtype=np.float16)})
    np.testing.assert_array_equal(seen[0], [[4, 5], [7, 8]])


def test_redefining_a_tile_keeps_its_array():
    """An effect in flight writes registers; a new value of the tile must not detach them."""
    tile = ir.RegisterTensor("acc", float32, (2,), ir.Threads(0, 160))
    arrays = []
    body = do(lambda m: (m.define(tile, [1, 2]), arrays.append(m.registers(tile))))
    run(body, body)
    assert arrays[0] is arrays[1]

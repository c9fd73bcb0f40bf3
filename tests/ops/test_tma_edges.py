# SPDX-License-Identifier: Apache-2.0
"""TMA in pieces of 16 bytes: where boxes begin and end, and slices of more dimensions."""

import numpy as np
import pytest
from tests.ops.tiles import integers, poisoned

import tilus
from tilus import (
    ArgumentError,
    LanguageError,
    SimulationError,
    compiler,
    disasm,
    float16,
    int32,
    simulator,
)
from tilus.emitter import emit


class Edge(tilus.Script):
    """TMA stores a tile of 8 x 64 whose view is ``n`` columns of a matrix of 128."""

    def __init__(self, row=0, column=64):
        self.row, self.column = row, column

    def __call__(self, n: int32, y_ptr: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        gy = self.global_view(y_ptr, dtype=float16, shape=[8, n], strides=[128, 1])
        tile = self.shared_tensor(dtype=float16, shape=[8, 64])
        self.store_shared(tile, self.register_tensor(dtype=float16, shape=[8, 64], init=3))
        self.fence.proxy_async()
        self.sync()
        with self.single_thread():
            self.tma.shared_to_global(tile, gy, offsets=[self.row, self.column])
            self.tma.commit_group()
            self.tma.wait_group(0)


def view_of(columns):
    """Return the first columns of a poisoned matrix of 8 x 128."""
    return np.full((8, 128), np.nan, np.float16)[:, :columns]


@pytest.mark.parametrize("n, column", [(96, 64), (104, 40), (104, 104), (64, 0), (100, 0)])
def test_a_store_ends_at_the_edge_of_the_view_where_a_piece_of_16_bytes_does(backend, n, column):
    y = view_of(n)
    backend.run(Edge(column=column), n, y)
    written = np.zeros((8, 128), bool)
    written[:, column : min(n, column + 64)] = True
    assert np.array_equal(y.base == 3, written)


CUT = [(100, 64, 4), (97, 40, 7), (127, 120, 1)]
"""Columns of a view, the first one of a box, and the elements that its last piece has behind."""


@pytest.mark.parametrize("n, column, beyond", CUT)
def test_a_store_whose_last_piece_reaches_beyond_the_view_is_a_fault(n, column, beyond):
    """An H200 wrote these elements, in any swizzle."""
    y = poisoned(8 * 128, dtype=np.float16)
    with pytest.raises(SimulationError, match=f"protocol.*has {beyond} elements behind") as info:
        simulator.run(compiler.lower(Edge(column=column), {}), {"n": n, "y_ptr": y})
    assert info.value.facts.items() >= {"column": n, "elements": beyond}.items()


@pytest.mark.parametrize("n, column, beyond", CUT)
def test_a_launch_refuses_a_store_whose_last_piece_reaches_beyond_the_view(
    device, n, column, beyond
):
    device("sim")
    message = (
        rf"^y_ptr must be of rows that end at a multiple of 16 bytes.*the view 'gy', got rows of "
        rf"{2 * n} bytes \(shape \(8, {n}\)\). Store through a view of {n + beyond - 8} columns"
    )
    y = view_of(n)
    with pytest.raises(ArgumentError, match=message):
        Edge(column=column)(n, y)
    assert np.isnan(y.base).all()


class Scattered(tilus.Script):
    """Blocks fill the columns of two views of ``y``, ``n`` and ``whole`` columns wide: by TMA where
    a tile lies in the narrow one, else by its threads."""

    def __init__(self, by_view):
        self.by_view = by_view

    def __call__(self, m: int32, n: int32, whole: int32, y_ptr: ~float16):
        self.attrs.blocks = self.attrs.warps = 2
        gy = self.global_view(y_ptr, dtype=float16, shape=[m, n], strides=[128, 1])
        part = self.global_view(y_ptr, dtype=float16, shape=[m, whole], strides=[128, 1])
        tile = self.shared_tensor(dtype=float16, shape=[8, 64])
        column = self.blockIdx.x * 64
        values = self.register_tensor(dtype=float16, shape=[8, 64], init=3)
        self.store_shared(tile, values)
        self.fence.proxy_async()
        self.sync()
        if column + 64 <= n:
            with self.single_thread():
                self.tma.shared_to_global(tile, part if self.by_view else gy, [0, column])
                self.tma.commit_group()
                self.tma.wait_group(0)
        else:
            self.store_global(gy, values, offsets=[0, column])


@pytest.mark.parametrize("m, n", [(8, 100), (3, 65), (8, 104), (0, 100), (8, 0)])
def test_a_store_whose_place_the_launch_does_not_know_may_be_at_the_edge(backend, m, n):
    """It is refused unless rows end at a piece, and goes through a view where they do."""
    y = view_of(n)[:m]
    if m and n % 8:
        with pytest.raises(ArgumentError, match=f"y_ptr must be of rows that end.*{2 * n} bytes"):
            backend.run(Scattered(by_view=False), m, n, n // 8 * 8, y)
        assert np.isnan(y.base).all()
    backend.run(Scattered(by_view=True), m, n, n // 8 * 8, y)
    written = np.zeros((8, 128), bool)
    written[:m, :n] = True
    assert np.array_equal(y.base == 3, written)


@pytest.mark.parametrize(
    "row, column, message",
    [
        (0, 4, "protocol.*multiple of 16 bytes from 0 on, got column 4 of gy, 8 bytes"),
        (0, -8, "protocol.*got column -8 of gy, -16 bytes"),
        (-1, 0, "not modelled.*before the first row of gy"),
    ],
)
def test_a_store_begins_at_a_piece_of_16_bytes(device, row, column, message):
    """An H200 stopped with an illegal instruction."""
    device("sim")
    with pytest.raises(SimulationError, match=message):
        Edge(row, column)(128, view_of(128))


class Begin(tilus.Script):
    """Copy a box that begins at a column in or before the view."""

    def __init__(self, column):
        self.column = column

    def __call__(self, x_ptr: ~float16, y_ptr: ~float16):
        self.attrs.blocks = self.attrs.warps = 1
        gx = self.global_view(x_ptr, dtype=float16, shape=[8, 64])
        gy = self.global_view(y_ptr, dtype=float16, shape=[8, 64])
        tile = self.shared_tensor(dtype=float16, shape=[8, 64])
        full = self.mbarrier.alloc(1)
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, tile.nbytes)
            self.tma.global_to_shared(gx, tile, [-2, self.column], full)
        self.mbarrier.wait(full, phase=0)
        self.store_global(gy, self.load_shared(tile), offsets=[0, 0])


@pytest.mark.parametrize("column", [-16, -8, 0, 24])
def test_a_copy_begins_before_the_view_or_in_it(backend, column):
    x, y = integers(8, 64), poisoned(8, 64, dtype=np.float16)
    backend.run(Begin(column), x, y)
    around = np.pad(x, 64)
    assert np.array_equal(y, around[62:70, 64 + column : 128 + column])


@pytest.mark.parametrize("column, nbytes", [(-3, -6), (5, 10), (4, 8)])
def test_a_copy_begins_at_a_piece_of_16_bytes(device, column, nbytes):
    """An H200 stopped with an illegal instruction at columns -3 and 5."""
    device("sim")
    message = f"protocol.*multiple of 16 bytes, got column {column} of gx, {nbytes} bytes"
    with pytest.raises(SimulationError, match=message):
        Begin(column)(integers(8, 64), poisoned(8, 64, dtype=np.float16))


class Slices(tilus.Script):
    """Every block copies one slice of a tensor of three to five dimensions, by TMA both ways."""

    def __init__(self, outer, rows=32, columns=128):
        self.outer, self.rows, self.columns = outer, rows, columns

    def __call__(self, m: int32, n: int32, x_ptr: ~float16, y_ptr: ~float16):
        self.attrs.blocks = self.outer
        self.attrs.warps = 1
        index = (self.blockIdx.x, self.blockIdx.y, self.blockIdx.z)[: len(self.outer)]
        gx = self.global_view(x_ptr, dtype=float16, shape=[*self.outer, m, n])
        gy = self.global_view(y_ptr, dtype=float16, shape=[*self.outer, m, n])
        tile = self.shared_tensor(dtype=float16, shape=[self.rows, self.columns])
        full = self.mbarrier.alloc(1)
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, tile.nbytes)
            self.tma.global_to_shared(gx, tile, [*index, 8, 0], full)
            self.mbarrier.wait(full, phase=0)
            self.tma.shared_to_global(tile, gy, [*index, 0, 0])
            self.tma.commit_group()
            self.tma.wait_group(0)


@pytest.mark.parametrize("outer", [(3,), (2, 3), (2, 1, 3)], ids=["3-D", "4-D", "5-D"])
def test_slices_of_tensors_of_more_dimensions(backend, outer):
    """Rows that hang over the end of a slice are zeros, not the next slice's."""
    m, n = 24, 72
    x = np.random.default_rng(0).standard_normal((*outer, m, n)).astype(np.float16)
    y = poisoned(*outer, m, n, dtype=np.float16)
    backend.run(Slices(outer), m, n, x, y)
    assert np.array_equal(y[..., :16, :], x[..., 8:, :])
    assert np.all(y[..., 16:, :] == 0)


def test_a_view_of_one_dimension_is_refused():
    class Flat(tilus.Script):
        def __call__(self, n: int32, x_ptr: ~float16):
            self.attrs.blocks = self.attrs.warps = 1
            gx = self.global_view(x_ptr, dtype=float16, shape=[n])
            tile = self.shared_tensor(dtype=float16, shape=[8, 8])
            full = self.mbarrier.alloc(1)
            with self.single_thread():
                self.tma.global_to_shared(gx, tile, [0], full)

    with pytest.raises(LanguageError, match="src must be a view of 2 to 5 dimensions, got 1 dim"):
        Flat().lower()


@pytest.mark.parametrize("outer", [(3,), (2, 3), (2, 1, 3)], ids=["3-D", "4-D", "5-D"])
def test_the_machine_code_copies_a_slice(outer):
    rank = len(outer) + 2
    text = disasm.sass(compiler.build(Slices(outer).lower()).cubin.code)
    assert text.count(f"UTMALDG.{rank}D") == text.count(f"UTMASTG.{rank}D") == 2


def test_offsets_are_written_fastest_dimension_first():
    text = emit(Slices((2, 3)).lower())
    block = "(int)blockIdx.y, (int)blockIdx.x"
    assert f"tma_load_4d(smem + 4096, &gx_map, 64, 8, {block}, smem + 8192);" in text
    assert f"tma_store_4d(&gy_map, 64, 0, {block}, smem + 4096);" in text

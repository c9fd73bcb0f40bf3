# SPDX-License-Identifier: Apache-2.0
"""TMA: boxes that hang over the edge of a view, and what is refused."""

import functools

import numpy as np
import pytest
from tests.ops.tiles import OneTile, integers, poisoned, product

import tilus
from tilus import (
    ArgumentError,
    LanguageError,
    SimulationError,
    compiler,
    disasm,
    float16,
    int32,
    launch,
    simulator,
)
from tilus.emitter import emit


@pytest.mark.parametrize("m, n, k", [(40, 24, 64), (64, 8, 8), (1, 1, 40)])
def test_global_to_shared_fills_zeros_outside(backend, m, n, k):
    """The tile is 64 x 32 x 64, the matrices are smaller: what lies outside counts as zero."""
    a, b, c = integers(m, k), integers(n, k, seed=1), poisoned(m, n)
    backend.run(OneTile(64, 32, 64), m, n, k, a, b, c)
    assert np.array_equal(c, product(a, b))


class Copy(tilus.Script):
    """One copy with a fault."""

    def __init__(
        self, threads=1, rows=64, dtype=float16, transposed=False, offsets=2, cache_policy=None
    ):
        self.threads, self.rows, self.dtype = threads, rows, dtype
        self.transposed, self.offsets, self.cache_policy = transposed, offsets, cache_policy

    def __call__(self, a_ptr: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        ga = self.global_view(a_ptr, dtype=float16, shape=[512, 64])
        sa = self.shared_tensor(dtype=self.dtype, shape=[self.rows, 64])
        full = self.mbarrier.alloc(1)
        with self.thread_group(thread_begin=0, num_threads=self.threads):
            dst = sa.transpose() if self.transposed else sa
            self.tma.global_to_shared(
                src=ga, dst=dst, offsets=[0] * self.offsets, mbarrier=full,
                cache_policy=self.cache_policy,
            )  # fmt: skip


@pytest.mark.parametrize(
    "fault, message",
    [
        ({"threads": 64}, "the current group must be one thread or one warp, got 64 threads"),
        ({"rows": 512}, "dst must be at most 256 rows, got 512"),
        ({"dtype": tilus.float32}, "dst must be of type float16, got float32"),
        ({"transposed": True}, "dst must be a tile that is not transposed"),
        ({"offsets": 3}, "offsets must be a list of 2, got 3"),
    ],
)
def test_global_to_shared_refuses(fault, message):
    with pytest.raises(LanguageError, match=f"global_to_shared: {message}"):
        Copy(**{"threads": 32} | fault).lower()


@pytest.mark.parametrize("policy", ["evict_first", "evict_normal", "evict_last"])
def test_global_to_shared_asks_the_cache(policy):
    """NVRTC sees them in tests/ops/test_cluster.py."""
    text = emit(Copy(32, cache_policy=policy).lower())
    assert f"smem + 8192, {policy}());" in text
    assert f"createpolicy.fractional.L2::{policy}.b64" in text


def test_global_to_shared_refuses_an_unknown_policy():
    with pytest.raises(LanguageError, match="cache_policy must be None or one of evict_first, ev"):
        Copy(32, cache_policy="evict").lower()


class Stack(tilus.Script):
    """Copy a box into tiles that follow one another, and out of them again."""

    def __init__(self, tiles=3, columns=64):
        self.tiles, self.columns = tiles, columns

    def __call__(self, rows: int32, x_ptr: ~float16, y_ptr: ~float16):
        self.attrs.blocks, self.attrs.warps = 1, 1
        gx = self.global_view(x_ptr, dtype=float16, shape=[rows, 200])
        gy = self.global_view(y_ptr, dtype=float16, shape=[rows, 200])
        s = self.shared_tensor(dtype=float16, shape=[2, self.tiles, 16, self.columns])
        full = self.mbarrier.alloc(1)
        with self.single_thread(0):
            self.mbarrier.arrive_and_expect_tx(full, s[1].nbytes)
            self.tma.global_to_shared(gx, s[1], offsets=[8, 24], mbarrier=full)
        self.mbarrier.wait(full, phase=0)
        with self.single_thread(0):
            self.tma.shared_to_global(s[1], gy, offsets=[8, 24])
            self.tma.commit_group()
            self.tma.wait_group(0)


@pytest.mark.parametrize(
    "tiles, columns, copies", [(3, 64, 1), (3, 128, 6), (1, 64, 1), (1, 128, 2)]
)
def test_tiles_that_follow_one_another_take_one_box(backend, tiles, columns, copies):
    x = np.arange(40 * 200).reshape(40, 200).astype(np.float16)
    y = np.full_like(x, np.nan)
    kernel = Stack(tiles, columns)
    backend.run(kernel, 40, x, y)
    wanted, box = np.full_like(x, np.nan), np.s_[8 : 8 + 16 * tiles, 24 : 24 + columns]
    wanted[box] = x[box]
    np.testing.assert_array_equal(y, wanted)
    text = emit(kernel.lower())
    assert text.count("  tma_load_2d(") == text.count("  tma_store_2d(") == copies
    boxes = {m.box for m in kernel.lower().plan.tensor_maps}
    assert boxes == {(16 * tiles if columns == 64 else 16, 64)}


def test_a_box_of_many_tiles_has_at_most_256_rows():
    with pytest.raises(LanguageError, match="dst must be at most 256 rows, got 272"):
        Stack(17).lower()


def test_a_store_takes_rows_that_no_swizzle_fits(backend):
    class Plain(tilus.Script):
        def __call__(self, y_ptr: ~float16):
            self.attrs.blocks, self.attrs.warps = 1, 4
            gy = self.global_view(y_ptr, dtype=float16, shape=[70, 200])
            other = self.shared_tensor(dtype=float16, shape=[8])  # what follows lies elsewhere
            s = self.shared_tensor(dtype=float16, shape=[64, 200])
            rows = self.register_tensor(dtype=float16, shape=[64, 200], init=3.0)
            self.store_shared(other, self.register_tensor(dtype=float16, shape=[8], init=0.0))
            self.store_shared(s, rows)
            self.fence.proxy_async()
            self.sync()
            with self.single_thread(0):
                self.tma.shared_to_global(s, gy, offsets=[16, 8])
                self.tma.commit_group()
                self.tma.wait_group(0)

    y = np.zeros((70, 200), np.float16)
    backend.run(Plain(), y)
    assert (y[16:, 8:] == 3).all() and (y[:16] == 0).all() and (y[:, :8] == 0).all()
    plan = Plain().lower().plan
    assert all(place % 128 == 0 for place in plan.places.values())


class Store(tilus.Script):
    """One store with a fault, or none; the third dimension of ``shape`` makes the view wrong."""

    def __init__(self, where="elected", shape=(64, 128), dtype=float16, n=0, read=True, then=None):
        self.where, self.shape, self.dtype = where, shape, dtype
        self.n, self.read, self.then = n, read, then or where

    def __call__(self, c_ptr: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        gc = self.global_view(c_ptr, dtype=float16, shape=[512, 128])
        sc = self.shared_tensor(dtype=self.dtype, shape=self.shape)
        if self.where == "warp":
            with self.single_warp():
                self.tma.shared_to_global(sc, gc, offsets=[64, 0])
        if self.where == "elected":
            with self.single_thread():
                self.tma.shared_to_global(sc, gc, offsets=[64, 0])
        if self.then == "elected":
            with self.single_warp(), self.single_thread():
                self.tma.commit_group()
                self.tma.wait_group(self.n, read=self.read)
        if self.then == "thread 0":
            with self.single_thread(0):
                self.tma.commit_group()
        if self.then == "thread 0 again":
            with self.single_thread(0), self.single_thread():
                self.tma.commit_group()
        if self.then == "warp":
            with self.single_warp():
                self.tma.wait_group(0)
        if self.then == "another warp":
            with self.single_thread(40):
                self.tma.commit_group()


@functools.cache
def code(n, read):
    """Return the machine code of the store that is right."""
    return disasm.sass(compiler.build(Store(n=n, read=read).lower()).cubin.code)


def test_shared_to_global_stores_every_panel():
    text = emit(Store().lower())
    assert "tma_store_2d(&gc_map, 0, 64, smem + 0);" in text
    assert "tma_store_2d(&gc_map, 64, 64, smem + 8192);" in text
    assert code(0, True).count("UTMASTG.2D") == 2


def test_shared_to_global_writes_its_argument():
    assert launch.views.written(Store().lower().function) == ("c_ptr",)


def test_commit_group_flushes():
    assert code(0, True).count("UTMACMDFLUSH") == 1


@pytest.mark.parametrize("n, read", [(0, True), (7, False)])
def test_wait_group_names_what_may_be_left(n, read):
    text = emit(Store(n=n, read=read).lower())
    assert f"cp.async.bulk.wait_group{'.read' if read else ''} {n};" in text
    assert f"DEPBAR.LE SB0, 0x{n}" in code(n, read)


@pytest.mark.parametrize(
    "fault, message",
    [
        (
            {"where": "warp"},
            r"shared_to_global: the current group must be one thread \(self.single",
        ),
        ({"then": "warp"}, "wait_group: the current group must be one thread .* got 32 threads"),
        ({"shape": (2, 2, 16, 64)}, "src must be a 2-D tile, or several of them, got 4 dimensions"),
        ({"dtype": tilus.float32}, "shared_to_global: src must be of type float16, got float32"),
        ({"n": 8}, "wait_group: n must be a compile-time integer from 0 to 7, got 8"),
        ({"read": 1}, "wait_group: read must be True or False, got 1"),
        (
            {"then": "thread 0"},
            r"commit_group: the thread must be elected by hardware, as in line ",
        ),
        ({"then": "thread 0 again"}, "must be elected .*, got one chosen by its number"),
    ],
)
def test_stores_refuse(fault, message):
    with pytest.raises(LanguageError, match=message):
        Store(**fault).lower()


class Behind(tilus.Script):
    """Store one of several tiles of 48 bytes, or both of them at once."""

    def __init__(self, both):
        self.both = both

    def __call__(self, c_ptr: ~float16):
        self.attrs.blocks, self.attrs.warps = 1, 1
        gc = self.global_view(c_ptr, dtype=float16, shape=[64, 8])
        sc = self.shared_tensor(dtype=float16, shape=[2, 3, 8])
        with self.single_thread():
            self.tma.shared_to_global(sc if self.both else sc[1], gc, offsets=[0, 0])


def test_a_store_begins_at_a_multiple_of_128_bytes():
    assert Behind(both=True).lower()
    with pytest.raises(LanguageError, match=r"sc: tiles .* multiple of 128 bytes, got 48 bytes"):
        Behind(both=False).lower()


def test_threads_of_different_warps_may_be_chosen_differently():
    assert Store(then="another warp").lower()


class Staged(tilus.Script):
    """Threads stage tiles one after another in a ring; TMA stores them side by side."""

    def __init__(self, rows, columns, stages, left=None, fence="all"):
        self.rows, self.columns, self.stages, self.fenced = rows, columns, stages, fence
        self.left = stages - 1 if left is None else left

    def __call__(self, m: int32, n: int32, x_ptr: ~float16, y_ptr: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        shape = [self.rows, self.columns]
        gx = self.global_view(x_ptr, dtype=float16, shape=[m, n])
        gy = self.global_view(y_ptr, dtype=float16, shape=[m, n])
        staging = self.shared_tensor(dtype=float16, shape=[self.stages, *shape])
        stage: int32 = 0
        for column in self.range(0, n, self.columns):
            with self.single_thread():
                self.tma.wait_group(self.left, read=True)
            self.sync()
            x = self.load_global(gx, offsets=[0, column], shape=shape)
            self.store_shared(staging[stage], x)
            if self.fenced == "all":
                self.fence.proxy_async()
            self.sync()
            with self.single_thread():
                if self.fenced == "one":
                    self.fence.proxy_async()
                self.tma.shared_to_global(staging[stage], gy, offsets=[0, column])
                self.tma.commit_group()
            stage = (stage + 1) % self.stages
        with self.single_thread():
            self.tma.wait_group(0)


@pytest.mark.parametrize("rows, columns", [(32, 64), (64, 128), (8, 16)])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_shared_to_global_stores_what_lies_inside(backend, rows, columns, stages):
    """A view narrower and lower than its tiles, in a larger matrix: nothing else is touched."""
    m, n = rows - 3, 3 * columns + 8
    x = np.random.default_rng(0).standard_normal((m, n)).astype(np.float16)
    around = np.full((m + 4, n), -5, np.float16)
    backend.run(Staged(rows, columns, stages), m, n, x, around[2 : m + 2])
    assert np.array_equal(around[2 : m + 2], x)
    assert np.all(around[:2] == -5) and np.all(around[m + 2 :] == -5)


def test_wait_group_that_leaves_one_too_many_is_a_race(device):
    device("sim")
    x = np.zeros((32, 256), np.float16)
    with pytest.raises(SimulationError, match=r"race.*staging"):
        Staged(32, 64, 2, left=2)(32, 256, x, x.copy())


@pytest.mark.parametrize("fence", ["none", "one"])
def test_shared_to_global_needs_the_fence_of_every_thread(device, fence):
    device("sim")
    x = np.zeros((32, 64), np.float16)
    with pytest.raises(SimulationError, match=r"race.*must call fence\.proxy_async"):
        Staged(32, 64, 1, fence=fence)(32, 64, x, x.copy())


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

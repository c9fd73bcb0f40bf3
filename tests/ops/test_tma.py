# SPDX-License-Identifier: Apache-2.0
"""TMA: boxes that hang over the edge of a view, and what is refused."""

import functools

import numpy as np
import pytest
from tests.ops.tiles import OneTile, integers, poisoned, product

import tilus
from tilus import LanguageError, SimulationError, compiler, disasm, float16, int32, launch
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

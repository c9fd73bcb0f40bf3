# SPDX-License-Identifier: Apache-2.0
"""mma.sync: products of register tiles, fragments against the PTX ISA's rules."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels import script
from tests.ops.lanes import Lanes, instruction, wavefronts, written_by
from tests.ops.test_shared import check
from tests.ops.tiles import Fetching, integers, poisoned, product

from tilus import LanguageError, bfloat16, compiler, float16, float32, int32, simulator
from tilus.layout import (
    WarpGrid,
    accumulator,
    mma_left,
    mma_right,
    warp_grid,
    wgmma_accumulator,
)


class Product(Fetching):
    """C = A · B for one tile: A is [m, k] or [k, m], B is [n, k] or [k, n], both fetched by TMA."""

    def __init__(self, warps=4, a_turned=False, b_turned=True, turns=1, form="in place"):
        self.warps, self.turns, self.form = warps, turns, form
        self.a_turned, self.b_turned = a_turned, b_turned

    def __call__(self, m: int, n: int, k: int, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = self.warps
        a_shape = [k, m] if self.a_turned else [m, k]
        b_shape = [n, k] if self.b_turned else [k, n]
        ga = self.global_view(a_ptr, dtype=float16, shape=a_shape)
        gb = self.global_view(b_ptr, dtype=float16, shape=b_shape)
        gc = self.global_view(c_ptr, dtype=float32, shape=[m, n])
        sa = self.shared_tensor(dtype=float16, shape=a_shape)
        sb = self.shared_tensor(dtype=float16, shape=b_shape)
        self.fetch(ga, sa, gb, sb)
        a = self.load_shared(sa.transpose() if self.a_turned else sa)
        b = self.load_shared(sb.transpose() if self.b_turned else sb)
        if self.form == "in place":
            acc = self.register_tensor(dtype=float32, shape=[m, n], init=0.0)
            for _ in self.range(self.turns):
                self.dot(a, b, acc, out=acc)
        elif self.form == "carried":
            acc = self.register_tensor(dtype=float32, shape=[m, n], init=0.0)
            for _ in self.range(self.turns):
                acc = self.dot(a, b, acc)
        elif self.form == "returned":
            acc = self.dot(a, b)
            acc = self.dot(a, b, acc)
        else:
            acc = self.register_tensor(dtype=float32, shape=[m, n])
            self.dot(a, b, out=acc)
        self.store_global(gc, acc, offsets=[0, 0])


def run(backend, m, n, k, **options):
    a, b, c = integers(m, k), integers(n, k, seed=1), poisoned(m, n)
    kernel = Product(**options)
    given_a = np.ascontiguousarray(a.T) if kernel.a_turned else a
    given_b = b if kernel.b_turned else np.ascontiguousarray(b.T)
    backend.run(kernel, m, n, k, given_a, given_b, c)
    return c, product(a, b)


@pytest.mark.parametrize("a_turned", [False, True])
@pytest.mark.parametrize("b_turned", [False, True])
@pytest.mark.parametrize("m, n, k, warps", [(64, 32, 16, 4), (128, 64, 64, 8), (48, 32, 32, 3)])
def test_dot_is_exact_on_integers(backend, m, n, k, warps, a_turned, b_turned):
    c, expected = run(backend, m, n, k, warps=warps, a_turned=a_turned, b_turned=b_turned)
    assert np.array_equal(c, expected)


@pytest.mark.parametrize("form, times", [("in place", 1), ("returned", 2), ("into out", 1)])
def test_dot_writes_where_it_is_told(backend, form, times):
    c, expected = run(backend, 32, 16, 32, form=form)
    assert np.array_equal(c, times * expected)


@pytest.mark.parametrize("form", ["in place", "carried"])
def test_dot_adds_in_a_loop(backend, form):
    c, expected = run(backend, 32, 16, 32, turns=5, form=form)
    assert np.array_equal(c, 5 * expected)


def test_dot_of_one_block_in_four_warps(backend):
    """All warps do the same."""
    c, expected = run(backend, 16, 16, 16)
    assert np.array_equal(c, expected)


def halves(a_type, acc_type):
    def kernel(self, c_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        a = self.register_tensor(dtype=a_type, shape=[16, 16], init=0.5)
        b = self.register_tensor(dtype=a_type, shape=[16, 8], init=0.25)
        acc = self.register_tensor(dtype=acc_type, shape=[16, 8], init=1.0)
        acc = self.dot(a, b, acc)
        if acc_type == float16:
            acc = self.cast(acc, dtype=float32)
        gc = self.global_view(c_ptr, dtype=float32, shape=[16, 8])
        self.store_global(gc, acc, offsets=[0, 0])

    return script(kernel)


@pytest.mark.parametrize(
    "a_type, acc_type", [(float16, float32), (float16, float16), (bfloat16, float32)], ids=str
)
def test_dot_of_every_type(backend, a_type, acc_type):
    c = poisoned(16, 8)
    backend.run(halves(a_type, acc_type), c)
    assert (c == 3).all()


@pytest.mark.parametrize("a_type, acc_type", [(float16, float16), (bfloat16, float32)], ids=str)
def test_every_type_compiles(a_type, acc_type):
    compiler.build(halves(a_type, acc_type).lower())


def test_dot_takes_time_and_is_computing():
    a, b, c = integers(64, 64), integers(64, 64), poisoned(64, 64)
    kernel = Product().lower(m=64, n=64, k=64)
    arguments = {"a_ptr": a.reshape(-1), "b_ptr": b.reshape(-1), "c_ptr": c.reshape(-1)}
    events = simulator.run(kernel, arguments, trace=True).events
    (event,) = [e for e in events if e.what == "dot"]
    assert event.kind == "compute"
    assert event.end - event.start >= 2 * 64**3 / 4096


# The fragments


def test_accumulator_is_that_of_wgmma_where_four_warps_share_m():
    assert accumulator(128, 64, WarpGrid(4, 1), 128) == wgmma_accumulator(128, 64)


GRIDS = [(1, 1), (2, 2), (4, 1), (1, 4), (2, 4), (3, 1)]


@pytest.mark.parametrize("rows, columns", GRIDS)
@pytest.mark.parametrize("spare", [1, 2])
def test_fragments_are_those_of_the_ptx_isa(rows, columns, spare):
    """PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type", for every block."""
    m, n, k = 32 * rows, 24 * columns, 48
    warps = rows * columns * spare
    grid = WarpGrid(rows, columns)
    a, b, c = (
        layout.coordinates()
        for layout in (
            mma_left(m, k, grid, 32 * warps),
            mma_right(k, n, grid, 32 * warps),
            accumulator(m, n, grid, 32 * warps),
        )
    )
    for thread in range(0, 32 * warps, 7):
        warp, lane = divmod(thread, 32)
        group, inner = lane >> 2, lane % 4
        for block_m, block_k, i in np.ndindex(2, 3, 8):
            row = group if 0 <= i < 2 or 4 <= i < 6 else group + 8
            column = inner * 2 + (i & 1) + (0 if i < 4 else 8)
            first = 16 * (warp % rows) + block_m * 16 * rows
            r = (block_m * 3 + block_k) * 8 + i
            assert a[thread, r].tolist() == [first + row, block_k * 16 + column]
        first = 24 * (warp // rows % columns)
        for block_k, block_n, i in np.ndindex(3, 3, 4):
            row, column = inner * 2 + (i & 1) + (0 if i < 2 else 8), group
            r = (block_k * 3 + block_n) * 4 + i
            assert b[thread, r].tolist() == [block_k * 16 + row, first + block_n * 8 + column]
        for block_m, block_n, i in np.ndindex(2, 3, 4):
            row, column = group + (0 if i < 2 else 8), inner * 2 + (i & 1)
            row += 16 * (warp % rows) + block_m * 16 * rows
            r = (block_m * 3 + block_n) * 4 + i
            assert c[thread, r].tolist() == [row, first + block_n * 8 + column]


@given(
    m=st.integers(1, 12).map(lambda i: 16 * i),
    n=st.integers(1, 16).map(lambda i: 8 * i),
    warps=st.sampled_from([1, 2, 3, 4, 8, 12]),
)
def test_warp_grid_covers_the_product(m, n, warps):
    grid = warp_grid(m, n, warps)
    coordinates = accumulator(m, n, grid, 32 * warps).coordinates().reshape(-1, 2)
    _, counts = np.unique(coordinates, axis=0, return_counts=True)
    assert counts.tolist() == [warps // (grid.rows * grid.columns)] * (m * n)


@pytest.mark.parametrize(
    "m, n, warps, rows, columns",
    [(128, 128, 4, 2, 2), (128, 128, 8, 4, 2), (64, 256, 4, 1, 4), (16, 8, 4, 1, 1)],
)
def test_warp_grid_is_square(m, n, warps, rows, columns):
    assert warp_grid(m, n, warps) == WarpGrid(rows, columns)


# The CUDA, run by the rules of the PTX ISA


@pytest.mark.parametrize(
    "m, n, k, warps, form",
    [
        (64, 64, 32, 4, "in place"),
        (32, 24, 48, 1, "in place"),
        (48, 16, 16, 3, "returned"),
        (16, 8, 16, 4, "into out"),
    ],
)
def test_cuda_multiplies(m, n, k, warps, form):
    kernel = Product(warps, form=form).lower(m=m, n=n, k=k)
    stmt, lanes = instruction(kernel, "dot"), Lanes(32 * warps)
    tiles = {"a": integers(m, k), "b": integers(k, n, seed=1), "acc": poisoned(m, n)}
    if stmt.acc is not None:
        tiles["acc"] = integers(m, n, seed=2).astype(np.float32)
    for name, values in tiles.items():
        tensor = stmt.out if name == "acc" else getattr(stmt, name)
        index = tuple(np.moveaxis(kernel.plan.registers[tensor].coordinates(), -1, 0))
        lanes.registers[name] = values[index]
    lanes.run(written_by(kernel, "dot"))
    expected = product(tiles["a"], tiles["b"].T) + (0 if stmt.acc is None else tiles["acc"])
    assert np.array_equal(lanes.registers["acc"], expected[index])


@pytest.mark.parametrize("a_turned", [False, True])
@pytest.mark.parametrize("b_turned", [False, True])
@pytest.mark.parametrize(
    "m, n, k, warps", [(128, 64, 64, 4), (64, 64, 32, 8), (32, 16, 16, 1), (48, 96, 48, 3)]
)
def test_operands_are_loaded_as_matrices(m, n, k, warps, a_turned, b_turned):
    """Each load is run lane by lane and gives the fragments; no bank is asked twice in a turn."""
    kernel = Product(warps, a_turned, b_turned).lower(m=m, n=n, k=k)
    for nth, turned in enumerate((a_turned, not b_turned)):
        accesses = check(kernel, "load_shared", nth)
        (function,) = {name for name, _ in accesses}
        assert function == "load_matrices_4" + ("_trans" if turned else "")
        for _, address in accesses:
            for warp in address.reshape(warps, 32):
                assert wavefronts(16, warp) == 4


@pytest.mark.parametrize("n, k, count", [(8, 16, 2), (24, 16, 2), (8, 32, 4)])
def test_few_matrices_are_loaded_by_twos(n, k, count):
    kernel = Product(warps=1).lower(m=16, n=n, k=k)
    assert {name for name, _ in check(kernel, "load_shared", 1)} == {f"load_matrices_{count}"}


def test_dot_in_a_later_group_of_threads():
    """The group's threads are counted from its beginning."""

    def kernel(self):
        self.attrs.blocks = 1
        self.attrs.warps = 8
        sa = self.shared_tensor(dtype=float16, shape=[64, 64])
        with self.thread_group(thread_begin=128, num_threads=128):
            a = self.load_shared(sa)
            b = self.load_shared(sa.transpose())
            self.dot(a, b)

    lowered = script(kernel).lower()
    for nth in (0, 1):
        check(lowered, "load_shared", nth, begin=128)


# What is refused


def broken(fault):
    def kernel(self):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        kind = float32 if fault == "type" else float16
        a = self.register_tensor(dtype=kind, shape=[24 if fault == "m" else 16, 16])
        b = self.register_tensor(
            dtype=bfloat16 if fault == "mixed" else float16, shape=[32 if fault == "b" else 16, 8]
        )
        acc = self.register_tensor(dtype=int32 if fault == "sum" else float32, shape=[16, 8])
        wide = self.register_tensor(dtype=float32, shape=[16, 16])
        half = self.register_tensor(dtype=float16, shape=[16, 8])
        if fault == "group":
            with self.single_warp(1):
                self.dot(a, b)
        if fault == "out":
            self.dot(a, b, acc, out=half)
        self.dot(a, b, wide if fault == "acc" else acc)

    return script(kernel)


@pytest.mark.parametrize(
    "fault, message",
    [
        ("type", "dot: a must be of type float16 or bfloat16, got float32"),
        ("mixed", "dot: b must be of type float16, got bfloat16"),
        ("m", "dot: m must be a multiple of 16, got 24"),
        ("b", r"dot: b must be of shape \[16, n\], got \[32, 8\]"),
        ("acc", r"dot: acc must be of shape \[16, 8\], got \[16, 16\]"),
        ("sum", "dot: acc must be of type float32 or float16, got int32"),
        ("out", "dot: out must be of type float32, got float16"),
        ("group", "dot: a must be a two-dimensional register tile held by warp 1, got one of"),
    ],
)
def test_dot_refuses(fault, message):
    with pytest.raises(LanguageError, match=message):
        broken(fault).lower()

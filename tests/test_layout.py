# SPDX-License-Identifier: Apache-2.0
"""Layouts: every element has one place, and the hardware's patterns are what PTX draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilus.layout import (
    Digit,
    RegisterLayout,
    SharedLayout,
    Swizzle,
    WarpGrid,
    accumulator,
    blocked,
    has_quads,
    repeated,
    swizzle_for,
    wgmma_accumulator,
    whole,
)

SWIZZLES = [Swizzle.B32, Swizzle.B64, Swizzle.B128]


def assert_bijective(layout):
    coordinates = layout.coordinates().reshape(-1, len(layout.shape))
    flat = np.ravel_multi_index(tuple(coordinates.T), layout.shape)
    assert np.array_equal(np.sort(flat, axis=None), np.arange(np.prod(layout.shape)))


@pytest.mark.parametrize("m", [64, 128, 192])
@pytest.mark.parametrize("n", [8, 64, 256])
def test_accumulator_holds_every_element_once(m, n):
    assert_bijective(wgmma_accumulator(m, n))


def test_accumulator_places_known_elements():
    """Points of the PTX ISA's figure of matrix D: thread 5 of warp 1 begins in row 17, column 2."""
    coordinates = wgmma_accumulator(64, 32).coordinates()
    assert coordinates[37, 0].tolist() == [17, 2]
    assert coordinates[37, 1].tolist() == [17, 3]
    assert coordinates[37, 2].tolist() == [25, 2]
    assert coordinates[37, 4].tolist() == [17, 10]
    assert coordinates[127, 15].tolist() == [63, 31]


@pytest.mark.parametrize(
    "n, grid, quads",
    [(64, (4, 1), True), (64, (2, 2), True), (64, (1, 4), False), (24, (4, 1), False)],
)
def test_quads_are_where_a_warp_has_32_columns(n, grid, quads):
    assert has_quads(accumulator(64, n, WarpGrid(*grid), 128)) == quads
    assert not has_quads(blocked((64, n), 128, 2))


def test_accumulator_stores_pairs():
    assert wgmma_accumulator(128, 64).vector == 2


LAYOUTS = st.builds(
    blocked,
    st.lists(st.sampled_from([1, 2, 3, 4, 8, 24, 32, 48, 128]), max_size=3)
    .map(tuple)
    .filter(lambda shape: np.prod(shape) <= 4096),
    st.sampled_from([1, 32, 64, 96, 128, 160]),
    st.sampled_from([1, 2, 4]),
) | st.builds(wgmma_accumulator, st.sampled_from([64, 128]), st.sampled_from([8, 32, 256]))


@given(LAYOUTS)
def test_every_layout_holds_every_element(layout):
    """Threads that differ only in the digits of ``copies`` hold the same, all others other ones."""
    threads = np.arange(layout.threads)
    first = np.all([threads // d % n == 0 for d, n in layout.copies()] or [threads >= 0], axis=0)
    coordinates = layout.coordinates()
    held = tuple(np.moveaxis(coordinates[first], -1, 0))
    flat = np.ravel_multi_index(held, layout.shape) if held else np.zeros((1, 1), int)
    assert np.array_equal(np.sort(flat, axis=None), np.arange(np.prod(layout.shape)))
    for divisor, size in layout.copies():
        assert np.array_equal(
            coordinates, coordinates[threads - threads // divisor % size * divisor]
        )


@given(LAYOUTS, st.integers(0, 7))
def test_a_layout_without_dimensions_is_that_of_the_first_element_along_them(layout, chosen):
    dims = [d for d in range(len(layout.shape)) if chosen >> d & 1]
    less = layout.without(dims)
    wanted = layout.coordinates()
    wanted[..., dims] = 0
    number = [c_text(layout.register_without(dims, str(r))) for r in range(layout.registers)]
    assert np.array_equal(less.coordinates()[:, number], wanted)
    squeezed = tuple(n for n in less.shape if n > 1)
    assert less.reshaped(squeezed).reshaped(less.shape).same(less)


TURNED = RegisterLayout(
    (12,), 1, 12, (Digit(0, "register", 1, 3, 4), Digit(0, "register", 3, 4, 1))
)
"""Registers count fours first."""


@given(LAYOUTS.filter(lambda layout: layout.shape) | st.just(TURNED), st.data())
def test_a_part_of_a_layout_holds_what_lies_in_the_box(layout, data):
    offsets = [data.draw(st.integers(0, n - 1)) for n in layout.shape]
    shape = [data.draw(st.integers(1, n - o)) for o, n in zip(offsets, layout.shape, strict=True)]
    part = layout.part(offsets, shape)
    if part is None:
        return
    number = [c_text(part.register.replace("r", str(r))) for r in range(part.layout.registers)]
    found = part.layout.coordinates()
    assert np.array_equal(found + offsets, layout.coordinates()[:, number])
    assert len(np.unique(found.reshape(-1, len(shape)), axis=0)) == np.prod(shape, dtype=int)


@pytest.mark.parametrize(
    "offset, size, cut", [(2, 2, True), (4, 8, True), (2, 3, False), (2, 8, False)]
)
def test_a_part_does_not_reach_over_the_end_of_a_digit(offset, size, cut):
    assert (TURNED.part([offset], [size]) is not None) == cut


@pytest.mark.parametrize(
    "shape, across", [((4, 1024), 32), ((1, 1024), 128), ((128, 128), 32), ((2, 1024), 64)]
)
def test_a_row_stays_in_a_warp_where_there_are_rows_for_all_warps(shape, across):
    rows = blocked(shape, 128, 4).coordinates()[:, 0, 0]
    assert np.count_nonzero(rows == rows[0]) == across


def test_whole_gives_every_thread_all_elements():
    layout = whole((2, 3), 32)
    assert layout.coordinates()[31].tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert layout.copies() == ((1, 32),)


def test_repeated_names_the_dimensions_that_numpy_repeats():
    assert repeated((4,), (3, 4)) == (0,)
    assert repeated((3, 1), (3, 4)) == (1,)
    assert repeated((), (3, 4)) == (0, 1)
    assert repeated((3, 4), (3, 4)) == ()
    assert repeated((3,), (3, 4)) is None and repeated((3, 4), (4,)) is None


def c_text(text):
    """Return the value of a C expression on non-negative integers."""
    return eval(text.replace("/", "//"))


@given(LAYOUTS, st.integers(0, 10**6))
def test_text_and_arrays_agree(layout, seed):
    """The C expressions of a layout, evaluated by Python, give the arrays the simulator uses."""
    thread, register = seed % layout.threads, seed // 160 % layout.registers
    coordinates = layout.coordinates()[thread, register]
    for dim in range(len(layout.shape)):
        texts = layout.text(dim, "thread", str(thread)), layout.text(dim, "register", str(register))
        assert sum(map(c_text, texts)) == coordinates[dim]
    texts = layout.row_major("thread", str(thread)), layout.row_major("register", str(register))
    flat = np.ravel_multi_index(tuple(coordinates), layout.shape) if layout.shape else 0
    assert sum(map(c_text, texts)) == flat


@given(
    rows=st.integers(1, 40).map(lambda n: 8 * n),
    panels=st.integers(1, 4),
    swizzle=st.sampled_from(SWIZZLES),
)
def test_swizzled_tile_is_a_permutation(rows, panels, swizzle):
    layout = SharedLayout((rows, panels * swizzle // 2), 2, swizzle)
    offsets = layout.offsets()
    assert np.array_equal(np.sort(offsets, axis=None), np.arange(offsets.size))
    assert layout.panels == panels


@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_swizzle_spreads_a_column_over_all_banks(swizzle):
    """Eight rows of one 16-byte column, as WGMMA reads them, touch every bank group once."""
    layout = SharedLayout((8, swizzle // 2), 2, swizzle)
    chunks = layout.offsets()[:, 0] * 2 // 16 % 8
    assert len(set(chunks.tolist())) == 8


def test_swizzle_128_exchanges_chunks_by_row():
    """Row r of a 128-byte tile has its chunk c at place c ^ (r % 8)."""
    offsets = SharedLayout((16, 64), 2, Swizzle.B128).offsets()
    for r, c in [(0, 3), (5, 0), (7, 7), (13, 2)]:
        assert offsets[r, 8 * c] == r * 64 + 8 * (c ^ (r % 8))


def test_swizzle_for_takes_the_widest():
    assert [swizzle_for(n) for n in (32, 64, 96, 128, 256, 48)] == [
        Swizzle.B32, Swizzle.B64, Swizzle.B32, Swizzle.B128, Swizzle.B128, None,
    ]  # fmt: skip


def test_swizzle_for_tiles_behind_each_other_takes_whole_patterns():
    """Four rows of 128 bytes are half a pattern of the widest swizzle: a second tile would begin
    in its middle."""
    assert swizzle_for(128, step=1024) == Swizzle.B128
    assert swizzle_for(128, step=512) == Swizzle.B64
    assert swizzle_for(128, step=256) == Swizzle.B32
    assert swizzle_for(128, step=128) is None

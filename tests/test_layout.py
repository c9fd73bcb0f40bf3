# SPDX-License-Identifier: Apache-2.0
"""Layouts: every element has one place, and the hardware's patterns are what PTX draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilus.layout import (
    SharedLayout,
    Swizzle,
    WarpGrid,
    accumulator,
    blocked,
    has_quads,
    swizzle_for,
    wgmma_accumulator,
)

SWIZZLES = [Swizzle.B32, Swizzle.B64, Swizzle.B128]


def assert_bijective(layout):
    coordinates = layout.coordinates().reshape(-1, len(layout.shape))
    flat = np.ravel_multi_index(tuple(coordinates.T), layout.shape)
    assert np.array_equal(np.sort(flat), np.arange(np.prod(layout.shape)))


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


@given(
    rows=st.sampled_from([1, 2, 8, 48, 128]),
    columns=st.sampled_from([4, 8, 24, 32, 128]),
    threads=st.sampled_from([32, 64, 128, 160]),
    nbytes=st.sampled_from([2, 4]),
)
def test_blocked_is_bijective_where_it_exists(rows, columns, threads, nbytes):
    layout = blocked((rows, columns), threads, nbytes)
    if layout is not None:
        assert layout.registers * threads == rows * columns
        assert_bijective(layout)
    elif rows * columns % threads == 0 and rows % 8 == 0 and 128 % threads == 0:
        pytest.fail("an even tile must have a layout")


def test_text_and_arrays_agree():
    """The C expressions of a layout, evaluated by Python, give the arrays the simulator uses."""
    layout = wgmma_accumulator(128, 64)
    coordinates = layout.coordinates()
    for thread, register in [(0, 0), (37, 5), (127, 63), (64, 32)]:
        for dim in (0, 1):
            texts = [
                layout.text(dim, "thread", str(thread)),
                layout.text(dim, "register", str(register)),
            ]
            value = sum(eval(t.replace("/", "//")) for t in texts)  # C's / on non-negative integers
            assert value == coordinates[thread, register, dim]


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

# SPDX-License-Identifier: Apache-2.0
"""Banks of shared memory: turns are counted as the hardware takes them, spreads save them."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.ops.lanes import wavefronts

from tilus.banks import Access, Use, access, least_turns
from tilus.layout import SharedLayout, Spread, blocked

SHAPES = [(32, 32), (64, 64), (24, 40), (128, 16), (16, 8), (1, 64), (7, 9), (20, 20), (36, 12)]


@given(
    st.lists(st.integers(0, 255), min_size=32, max_size=32),
    st.sampled_from([1, 2, 4, 8, 16]),
)
def test_turns_are_those_of_an_independent_count(numbers, width):
    places = np.array(numbers)[:, None] * width
    assert Access(1, width).turns(places) == wavefronts(width, places[:, 0])


@given(shape=st.sampled_from(SHAPES), nbytes=st.sampled_from([1, 2, 4, 8]), data=st.data())
def test_every_spread_keeps_each_element_a_place_of_its_own(shape, nbytes, data):
    to = data.draw(st.integers((nbytes - 1).bit_length(), 4))
    bits = data.draw(st.integers(1, 7 - to))
    source = data.draw(st.integers(7, 12))
    layout = SharedLayout(shape, nbytes, spread=Spread(to, source, bits))
    offsets, count = np.sort(layout.offsets().reshape(-1)), np.prod(shape)
    whole = count * nbytes % (1 << (to + bits)) == 0
    assert not whole or np.array_equal(offsets, np.arange(count))


@given(
    shape=st.sampled_from(SHAPES),
    nbytes=st.sampled_from([1, 2, 4]),
    turned=st.lists(st.booleans(), max_size=3),
)
@example(shape=(16, 34), nbytes=1, turned=[True])  # no whole number of the widest pieces
def test_the_chosen_layout_is_sound_and_no_worse_than_row_major(shape, nbytes, turned):
    uses = [Use(blocked(shape[::-1] if t else shape, 32, nbytes), t) for t in turned]
    chosen, plain = least_turns(shape, nbytes, uses), SharedLayout(shape, nbytes)
    offsets = np.sort(chosen.offsets().reshape(-1))
    assert np.array_equal(offsets, np.arange(np.prod(shape)))
    assert sum(u.turns(chosen) for u in uses) <= sum(u.turns(plain) for u in uses)


@pytest.mark.parametrize("shape, nbytes", [((32, 32), 4), ((64, 64), 2), ((64, 64), 4)])
def test_transposing_takes_an_eighth_of_the_turns_or_less(shape, nbytes):
    layout = blocked(shape, 128, nbytes)
    rows, columns = Use(layout), Use(layout, transposed=True)
    chosen, plain = least_turns(shape, nbytes, [rows, columns]), SharedLayout(shape, nbytes)
    assert rows.turns(chosen) == rows.turns(plain)
    assert columns.turns(chosen) <= columns.turns(plain) / 8


def test_a_tile_used_by_rows_alone_stays_row_major():
    layout = blocked((64, 64), 128, 2)
    assert least_turns((64, 64), 2, [Use(layout), Use(layout)]).spread is None
    assert least_turns((64, 64), 2, []).spread is None


def test_wide_accesses_need_aligned_places():
    places = np.arange(32)[:, None] * 16 + np.arange(4) * 4
    assert access(places, 4).width == 16
    assert access(places, 4, alignment=8).width == 8
    assert access(places + 8, 4).width == 8
    assert access(places[:, ::-1], 4).width == 4


def test_matrices_need_whole_warps_and_aligned_rows():
    """Lane l holds two neighbours of row l / 4."""
    lane = np.arange(32)[:, None]
    places = lane // 4 * 16 + lane % 4 * 4 + np.arange(2) * 2
    assert access(places, 2).matrices == "plain"
    assert access(places, 2, begin=16).matrices == ""
    assert access(places + 8, 2).matrices == ""
    assert access(places, 2, alignment=8).matrices == ""
    assert access(places[::-1], 2).matrices == ""
    assert access(places[:24], 2).matrices == ""


def test_matrices_of_columns():
    lane = np.arange(32)[:, None]
    places = lane // 4 * 2 + (lane % 4 * 2 + np.arange(2)) * 16
    assert access(places, 2).matrices == "trans"
    assert access(places, 2).turns(places) == 1

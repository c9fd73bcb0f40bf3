# SPDX-License-Identifier: Apache-2.0
"""Loops that step through a ring: rewritten where it pays, with the same meaning."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels import in_python, in_simulator, script

from tilus import int32, ir
from tilus.printer import show


def ring(size, turns, unroll, first=0, step=1, leave=False):
    """Return a kernel that reports each turn's stage and offset, and the stage it ends with."""

    def kernel(self):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        stage: int32 = first
        for i in self.range(0, 3 * turns, 3, unroll=unroll):
            self.use(stage)
            self.use(i)
            if leave and stage == 99:
                break
            stage = (stage + step) % size
        self.use(stage)

    return kernel


def loops(kernel):
    """Return how many turns each loop of the lowered kernel takes."""
    found = [s for s in ir.walk(script(kernel).lower().function.body) if isinstance(s, ir.For)]
    return [-(-(s.stop.value - s.start.value) // s.step.value) for s in found]


@pytest.mark.parametrize("turns, shape", [(6, [2, 3]), (7, [2, 3, 1]), (2, [2]), (0, [])])
def test_rings_become_rounds_of_turns(turns, shape):
    """Rounds, each of 3 turns, then the rest; without a full round only the rest."""
    assert loops(ring(3, turns, unroll=3)) == shape


def test_the_stage_is_the_turn():
    text = show(script(ring(3, 7, unroll=3)).lower().function)
    assert "stage = (turn % 3)" in text
    assert "(stage + 1)" not in text


@pytest.mark.parametrize(
    "schedule",
    [{"unroll": None}, {"unroll": 2}, {"unroll": 3, "leave": True}],
    ids=["not unrolled", "does not close the ring", "may leave"],
)
def test_rings_are_left_alone_where_the_order_could_change(schedule):
    assert loops(ring(3, 7, **schedule)) == [7]


@settings(deadline=None, max_examples=60)
@given(
    size=st.integers(1, 5),
    turns=st.integers(0, 12),
    times=st.integers(1, 2),
    first=st.integers(0, 9),
    step=st.integers(0, 7),
)
def test_rings_keep_their_meaning(size, turns, times, first, step):
    kernel = ring(size, turns, max(2, size * times), first, step)
    assert in_simulator(kernel) == in_python(kernel)

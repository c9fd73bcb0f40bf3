# SPDX-License-Identifier: Apache-2.0
"""The order in which V4 and V5 visit tiles: every tile once, for every grid.

``rasterise`` is the kernels' own method. Here Python runs it for all blocks of a grid at once:
its ``min`` is NumPy's, and ``self.fast_divmod`` is NumPy's ``divmod``, so that all 25600 pairs of a
grid and a group width take a second. That the kernel computes what the method says in Python is
shown on the traced program: its offsets are evaluated for the blocks of random problems.
"""

from pathlib import Path
from types import FunctionType, SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilus import Script, ir, loader
from tilus.utils import cdiv

EXAMPLES = Path(__file__).parents[2] / "examples" / "hopper_matmul"
KERNELS = [loader.find(EXAMPLES / f"matmul_{v}.py", Script) for v in ("v4", "v5")]
LONGEST, WIDEST = 40, 16
versions = pytest.mark.parametrize("kernel", KERNELS, ids=lambda c: c.__name__[-2:].lower())


def on_arrays(kernel):
    """Return ``kernel.rasterise`` as a function of a group width and arrays of block numbers."""
    method = kernel.rasterise
    names = {**method.__globals__, "min": np.minimum}
    function = FunctionType(method.__code__, names, closure=method.__closure__)

    def rasterise(group_m, blocks, tiles_m, tiles_n):
        self = SimpleNamespace(group_m=group_m, fast_divmod=np.divmod)
        return function(self, blocks, tiles_m, tiles_n)

    return rasterise


@versions
@pytest.mark.parametrize("group_m", range(1, WIDEST + 1))
def test_every_tile_is_visited_exactly_once(kernel, group_m):
    rasterise = on_arrays(kernel)
    for tiles_m in range(1, LONGEST + 1):
        for tiles_n in range(1, LONGEST + 1):
            blocks = np.arange(tiles_m * tiles_n)
            m, n = rasterise(group_m, blocks, tiles_m, tiles_n)
            assert m.min() >= 0 and n.min() >= 0 and n.max() < tiles_n
            visits = np.bincount(m * tiles_n + n, minlength=blocks.size)
            assert (visits == 1).all(), (tiles_m, tiles_n)


@versions
def test_a_group_is_walked_column_by_column(kernel):
    m, n = on_arrays(kernel)(2, np.arange(10), 5, 2)
    assert m.tolist() == [0, 1, 0, 1, 2, 3, 2, 3, 4, 4]
    assert n.tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 0, 1]


def traced(kernel, m_size):
    """Return the grid, and the offsets of each block's tile as the traced program has them."""
    function = kernel.lower(n_size=N_SIZE, k_size=64).function
    offsets = {s.var.name: s.value for s in function.body if isinstance(s, ir.Declare)}
    (m_var,) = (p.var for p in function.params if p.name == "m_size")
    x, y, z = function.grid({m_var: m_size})
    assert (y, z) == (1, 1)
    for block in range(x):

        def value(e, block=block):
            return {"blockIdx.x": block, "m_size": m_size}[e.name]

        yield tuple(ir.evaluate(offsets[name], value) for name in ("offset_m", "offset_n"))


N_SIZE = 900


@versions
@settings(max_examples=15, deadline=None)
@given(m_size=st.integers(1, 2000), group_m=st.integers(1, WIDEST))
@example(m_size=1, group_m=16)
@example(m_size=1000, group_m=3)
def test_the_program_does_what_the_method_says(kernel, m_size, group_m):
    made = kernel(num_stages=2, block_m=128, block_n=128, block_k=64, group_m=group_m)
    tiles_m, tiles_n = cdiv(m_size, 128), cdiv(N_SIZE, 128)
    m, n = on_arrays(kernel)(group_m, np.arange(tiles_m * tiles_n), tiles_m, tiles_n)
    assert list(traced(made, m_size)) == list(zip(128 * m, 128 * n, strict=True))

# SPDX-License-Identifier: Apache-2.0
"""Names that hold register tiles and are assigned under run-time control flow: NumPy says what
they hold afterwards."""

import numpy as np
import pytest
from tests import sass
from tests.kernels import script

import tilus
from tilus import LanguageError, compiler, float32, int32

SHAPE = [4, 32]


class Turns(tilus.Script):
    """A kernel that loads ``x``, lets ``steps`` work on it, and stores what that returns."""

    def __call__(self, n: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        gx = self.global_view(x_ptr, dtype=float32, shape=SHAPE)
        gy = self.global_view(y_ptr, dtype=float32, shape=SHAPE)
        x = self.load_global(gx, offsets=[0, 0], shape=SHAPE)
        self.store_global(gy, self.steps(x, n), offsets=[0, 0])

    def ordered(self, p, q, k):
        """Return two tiles, exchanged or new ones."""
        if k > 2:
            return q, p
        elif k == 1:
            return p - q, q + k
        return q, p * 2

    def row(self, i):
        """Return a row that holds ``i``."""
        return self.register_tensor(dtype=float32, shape=[32], init=0.0) + i


class Numpy:
    """Stands for ``self`` where Python itself takes the steps."""

    row = staticmethod(lambda i: np.full(32, i, np.float32))

    maximum = staticmethod(np.maximum)
    ordered = Turns.ordered
    range = range


def running(self, x, n):
    """Accumulate in a new tile every turn; the value of the turn before stays what it was."""
    m = x
    s = x * 0
    for i in self.range(n):
        old = m
        m = self.maximum(m, x * i)
        s = s + (m - old) * 2 + old
        x += 1
    return m + s * 3 + x


def swapped(self, x, n):
    """Exchange two tiles, which share a tile at first."""
    a = x
    b = x
    b = b + 1
    for _ in self.range(n):
        a, b = b, a * 2
    return a * 100 + b


def branches(self, x, n):
    """Assign in one branch, in both, and a name that is new."""
    y = x
    if n > 2:
        y = y + 1
        z = x * 2
    elif n > 1:
        z = x
    else:
        y = x * 5
        z = y - 1
    return y * 10 + z + x


def nested(self, x, n):
    """Loops and branches in each other, with break and continue."""
    total = x * 0
    for i in self.range(n):
        row = x + i
        for j in self.range(i):
            if j == 2:
                continue
            row = row * 2 - j
            if i == 5:
                break
        total = total + row
    return total


def waiting(self, x, n):
    """A while loop, and an accumulator by augmented assignment beside one by plain."""
    i = n * 1
    acc = x - x
    last = x
    while i > 0:
        acc += last
        last = acc * 0.5
        i = i - 1
    return acc + last


def reused(self, x, n):
    """A name of another shape inside the loop is another thing, since no turn reads the old."""
    t = x * 0
    for i in self.range(n):
        t = self.row(i)
        x = x + t
    return x


def returned(self, x, n):
    """Take tiles from either side of a method's run-time `if`, in a loop and nested."""
    a = x
    b = x + 1
    for i in self.range(n):
        a, b = self.ordered(a, b, i)
        a = self.ordered(b, a, n - i)[0] + 1
    return a * 100 + b


ALL = [returned, running, swapped, branches, nested, waiting, reused]


def kernel(steps):
    return type(steps.__name__, (Turns,), {"steps": steps})()


@pytest.mark.parametrize("steps", ALL)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
def test_tiles_carried_by_loops_and_branches(backend, steps, n):
    x = np.arange(128, dtype=np.float32).reshape(SHAPE) % 5
    y = np.full_like(x, np.nan)
    backend.run(kernel(steps), n, x, y)
    assert np.array_equal(y, steps(Numpy(), x.copy(), n).astype(np.float32))


@pytest.mark.parametrize("steps", ALL)
def test_carried_tiles_stay_in_registers(steps):
    code = compiler.build(kernel(steps).lower()).cubin.code
    assert sass.stack(code) == 0 and not {"LDL", "STL"} & set(sass.opcodes(code))


def refused(function, match):
    with pytest.raises(LanguageError, match=match):
        script(function).lower()


def test_a_tile_of_another_shape_is_refused_where_the_old_one_was_read():
    def grown(self, n: int32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        t = self.register_tensor(dtype=float32, shape=[32], init=1.0)
        wide = self.register_tensor(dtype=float32, shape=[4, 32], init=1.0)
        for _ in self.range(n):
            t = t + wide

    refused(grown, r"'t' holds a float32 tile of \[32\] .* cannot become a float32 tile of \[4, 32")


def test_a_tile_of_other_threads_is_not_carried():
    def narrowed(self, n: int32):
        self.attrs.blocks, self.attrs.warps = 1, 2
        t = self.register_tensor(dtype=float32, shape=[32], init=1.0)
        with self.single_warp():
            for _ in self.range(n):
                t = t + 1

    refused(narrowed, "'t' holds a RegisterTensor from before the loop .* of its threads")


def test_a_name_that_one_branch_alone_binds_ends_with_it():
    def half(self, n: int32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        if n > 0:
            t = self.register_tensor(dtype=float32, shape=[32], init=1.0)
        t + 1

    refused(half, "'t' has no known value here")


class Names(tilus.Script):
    """Names that share a tile, one of which then changes: in a row, in a loop, in a method."""

    def __call__(self, y_ptr: ~float32, n: int32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        gy = self.global_view(y_ptr, dtype=float32, shape=[4, 32])
        x = self.register_tensor(dtype=float32, shape=[32], init=1.0)
        before = x
        x += 1
        self.store_global(gy, before, offsets=[0, 0])
        kept = x
        for _ in self.range(n):
            x += 1
            kept = kept * 1
        self.store_global(gy, kept, offsets=[1, 0])
        self.changed(x)
        self.store_global(gy, x, offsets=[2, 0])
        self.store_global(gy, self.changed(x), offsets=[3, 0])

    def changed(self, tile):
        """Return a tile with other values; the caller's keeps its own."""
        tile *= 10
        return tile


def test_a_name_that_changes_leaves_the_others_their_values(backend):
    y = np.full((4, 32), np.nan, np.float32)
    backend.run(Names(), y, 3)
    assert (y == np.array([[1], [2], [5], [50]])).all()

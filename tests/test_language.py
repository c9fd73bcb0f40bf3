# SPDX-License-Identifier: Apache-2.0
"""A small kernel for each construct of the language: Python, the simulator and the GPU agree.

Kernels store numbers in ``out``. Python runs them too, block after block, with a stand-in for
``self``; where threads take turns, what comes out is written down. Without a GPU the CUDA of each
kernel is still compiled.
"""

# ruff: noqa: C901, SIM103

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from tests.kernels import Probe, Python, script

import tilus
from tilus import (
    boolean,
    compiler,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tilus.utils import cdiv

SIZE = 64


class OnBlocks(Python):
    """Stands for ``self`` in one block after another."""

    blockIdx = SimpleNamespace(x=0, y=0, z=0)
    global_view = staticmethod(lambda p, dtype, shape: p)
    fast_divmod = staticmethod(divmod)
    assume = static_assert = staticmethod(lambda *_: None)

    @staticmethod
    def put(view, at, x):
        view[at] = x

    @staticmethod
    def cast(x, dtype):
        return np.array(x).astype(dtype.numpy).item()

    @property
    def gridDim(self):
        return SimpleNamespace(**dict(zip("xyz", self.grid(), strict=True)))

    def grid(self):
        """Return the number of blocks along x, y and z."""
        blocks = self.attrs.blocks
        given = tuple(blocks) if isinstance(blocks, tuple | list) else (blocks,)
        return (*given, 1, 1)[:3]


def python(function, args):
    """Return what a kernel stores when Python runs it for every block."""
    out, stand_in = np.zeros(SIZE), OnBlocks()
    function(stand_in, *args, out)  # sets the grid
    x, y, z = (range(n) for n in stand_in.grid())
    for k, j, i in product(z, y, x):
        stand_in.blockIdx = SimpleNamespace(x=i, y=j, z=k)
        function(stand_in, *args, out)
    return out


def grid_of_a_number(self, n: int32, p: ~float32):
    self.attrs.blocks, self.attrs.warps = n + 1, 1
    out = self.global_view(p, dtype=float32, shape=[64])
    self.put(out, self.blockIdx.x, self.gridDim.x * 10 + self.gridDim.z)


def grid_of_one_in_a_list(self, n: int32, p: ~float32):
    self.attrs.blocks = [cdiv(n, 2)]
    self.attrs.warps = 1
    self.attrs.cluster_blocks = 1
    out = self.global_view(p, dtype=float32, shape=[64])
    self.put(out, self.blockIdx.x, self.blockIdx.x + self.blockIdx.y + 1)


def grid_of_two(self, n: int32, p: ~float32):
    self.attrs.blocks = (n, 3)
    self.attrs.warps = 1
    out = self.global_view(p, dtype=float32, shape=[64])
    self.put(out, self.blockIdx.y * self.gridDim.x + self.blockIdx.x, self.blockIdx.y + 1)


def grid_of_three(self, n: int32, p: ~float32):
    self.attrs.blocks = 2, n, 3
    self.attrs.warps = 1
    self.attrs.cluster_blocks = (1, 1, 1)
    out = self.global_view(p, dtype=float32, shape=[64])
    block = (self.blockIdx.z * self.gridDim.y + self.blockIdx.y) * self.gridDim.x + self.blockIdx.x
    self.put(out, block, self.blockIdx.z * 100 + self.blockIdx.y * 10 + self.blockIdx.x)


def arithmetic(self, n: int32, p: ~float32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    out = self.global_view(p, dtype=float32, shape=[64])
    m = n - 9
    self.put(out, 0, m // 4 + m % 4 * 10)
    self.put(out, 1, abs(m) + min(n, 3) + max(m, -1, n))
    self.put(out, 2, n**2 + n**0 - (m << 2) + (m >> 1))
    q, r = divmod(m, 4)
    self.put(out, 3, q * 100 + r)
    q, r = self.fast_divmod(n, 3)
    self.put(out, 4, q * 100 + r)
    self.put(out, 5, int(n / 2.0) + (n & 3 | 8 ^ 1) + ~n)
    self.put(out, 6, 1 if -5 < m < n <= 7 != 3 else 2)
    self.put(out, 7, (n > 3 and m < 0) + (n > 3 or m > 0) + (not m))
    self.put(out, 8, n or 4)
    self.put(out, 9, all([n > 0, m < 0, True]) + any((m > 0, n > 2)))
    self.put(out, 10, float(n) / 4 + bool(m))
    pair = self.fast_divmod(17, 5)
    self.put(out, 11, pair[0] * 10 + pair[1])


def conversions(self, n: int32, p: ~float32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    out = self.global_view(p, dtype=float32, shape=[64])
    self.put(out, 0, self.cast(n - 9, dtype=uint8))
    self.put(out, 1, self.cast(n * 100, dtype=int8))
    self.put(out, 2, self.cast(n * 1.5 - 20, dtype=int32))
    self.put(out, 3, self.cast(n, float32) / 8)
    self.put(out, 4, self.cast(3.7, dtype=int32))
    self.put(out, 5, self.cast(n - 7, dtype=boolean))


def control_flow(self, n: int32, p: ~float32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    out = self.global_view(p, dtype=float32, shape=[64])
    at: int32 = 0
    for i in range(n):
        if i == 1:
            continue
        for j in self.range(2, i * 3, 2, unroll=2):
            if j > 6:
                break
            at += 1
            self.put(out, at, i * 10 + j)
    x = n * 3
    while x > 1:
        if x % 5 == 0:
            break
        if x % 2:
            x = 3 * x + 1
            continue
        x //= 2
        at += 1
    self.put(out, 40, x)
    if x < 3:
        y, z = x, n
    elif x < 20:
        y, z = n, x
    else:
        y, z = 0, 0
    y, z = z, y
    self.put(out, 41, y * 100 + z)
    for k in self.range(3, unroll="all"):
        self.put(out, 50 + k, k)
    self.put(out, 42, at)
    if n > 5:
        return
    self.put(out, 43, 1)


def methods(self, n: int32, p: ~float32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    out = self.global_view(p, dtype=float32, shape=[64])
    for i in range(n):
        a, b, c = self.order(i, 3)
        self.put(out, i, a + b * 10 + c * 100)
        self.put(out, 10 + i, self.clamp(i, 2, 4) * self.sign(i - 3))


def containers(self, n: int32, p: ~float32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    out = self.global_view(p, dtype=float32, shape=[64])
    numbers = [n * i for i in range(4) if i != 2]
    named = {"first": numbers[0], **{"last": numbers[-1]}}
    head, *others = numbers[1], *numbers[:2], 7
    self.put(out, 0, sum(numbers) + named["last"])
    for i, (word, x) in enumerate(zip("abcd", [head, *others], strict=True)):
        self.put(out, 1 + i, x if word != "b" else x + len(f"{word:>3}"))


def register_elements(self, n: int32, p: ~float32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    out = self.global_view(p, dtype=float32, shape=[64])
    phases = self.register_tensor(dtype=uint32, shape=[3], init=1)
    counts = self.register_tensor(dtype=int32, shape=[3], init=5)
    stage: int32 = 0
    for i in self.range(n, unroll=3):
        phases[stage] ^= 1
        counts[stage] += i
        stage = (stage + 1) % 3
        self.put(out, i, phases[stage] * 100 + counts[(stage + 2) % 3])


PROGRAMS = [
    grid_of_a_number, grid_of_one_in_a_list, grid_of_two, grid_of_three, arithmetic, conversions,
    control_flow, methods, containers, register_elements,
]  # fmt: skip


@pytest.mark.parametrize("n", [1, 4, 7])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_program_does_what_python_does(backend, program, n):
    out = np.zeros(SIZE, np.float32)
    backend.run(script(program), n, out)
    assert out.tolist() == python(program, [n]).tolist()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_program_compiles(program):
    assert compiler.build(script(program).lower()).cubin.code


# Numbers of every type


class Scalars(Probe):
    """Store numbers of every type, changed in variables of that type."""

    def __call__(
        self, a: int8, b: int16, c: int32, d: int64, e: uint8, f: uint16, g: uint32, h: uint64,
        x: float32, y: float64, flag: boolean, p: ~float64,
    ):  # fmt: skip
        self.attrs.blocks, self.attrs.warps = 1, 1
        out = self.global_view(p, dtype=float64, shape=[11])
        byte: int8 = a
        half: int16 = b
        long: int64 = d
        word: uint32 = g
        double: float64 = y
        done: boolean = flag
        for i in range(3):
            byte -= 1
            half += i
            long *= 2
            word += 1
            double = double / 2
            done = done or i > 1
        for k, value in enumerate([byte, half, c, long, e, f, word, h, x, double, done]):
            self.put(out, k, value)


def test_numbers_of_every_type(backend):
    out = np.zeros(11)
    backend.run(
        Scalars(), -3, -300, -70000, 2**40, 200, 60000, 2**32 - 1, 2**53, 0.5, 3.0, False, out
    )
    wanted = [-6, -297, -70000, 2**43, 200, 60000, 2, 2**53, 0.5, 0.375, 1]
    assert out.tolist() == wanted


def test_numbers_of_every_type_compile():
    assert compiler.build(Scalars().lower()).cubin.code


# Classes


class Ring(tilus.Class):
    """Barriers, and where the producer stands among them."""

    def __init__(self, stages, arrivals=32):
        super().__init__()
        self.stages = stages
        self.full, self.empty = self.barriers(1), self.barriers(arrivals)
        self.stage: int32 = 0
        self.phase: uint32 = self.mbarrier.producer_initial_phase

    def barriers(self, count):
        return self.mbarrier.alloc([count] * self.stages)

    def acquire(self):
        self.mbarrier.wait(self.current[1], phase=self.phase)
        return self.stage, self.current

    @property
    def current(self):
        return self.full[self.stage], self.empty[self.stage]

    def advance(self, turns=1):
        """Go on; return whether a new round has begun."""
        for _ in range(turns):
            self.stage = (self.stage + 1) % self.stages
            self.phase = self.phase ^ (self.stage == 0)
        if self.stage == 0:
            return True
        return False


class Rounds(Ring):
    """A ring that counts its rounds."""

    def __init__(self, stages):
        super().__init__(stages, arrivals=32)
        self.rounds: int32 = 0

    def advance(self, turns=1):
        wrapped = super().advance(turns)
        if wrapped:
            self.rounds += 1
        return wrapped


class Turns(Probe):
    """One warp walks through a ring and releases each stage itself."""

    def __init__(self, stages):
        super().__init__()
        self.stages = stages

    def __call__(self, n: int32, p: ~float32):
        self.attrs.blocks, self.attrs.warps = 1, 2
        out = self.global_view(p, dtype=float32, shape=[64])
        rings = [Rounds(self.stages), Rounds(2)]
        for number, ring in enumerate(rings):
            with self.warp_group(number, num_warps=1):
                for i in range(n):
                    stage, (_, empty) = ring.acquire()
                    self.mbarrier.arrive(empty)
                    wrapped = ring.advance()
                    self.put(out, 16 * number + i, ring.rounds * 100 + stage * 10 + wrapped)


@pytest.mark.parametrize("n", [0, 1, 7])
def test_a_class_keeps_state_that_loops_change(backend, n):
    out, wanted = np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32)
    backend.run(Turns(3), n, out)
    for number, stages in enumerate((3, 2)):
        for i in range(n):
            wrapped = (i + 1) % stages == 0
            wanted[16 * number + i] = (i + 1) // stages * 100 + i % stages * 10 + wrapped
    assert out.tolist() == wanted.tolist()


def test_a_class_compiles():
    assert compiler.build(Turns(3).lower()).cubin.code


# Threads


def groups(self, p: ~float32):
    self.attrs.blocks, self.attrs.warps = 1, 8
    out = self.global_view(p, dtype=float32, shape=[64])
    with self.thread_group(thread_begin=128, num_threads=128):
        with self.warp_group(warp_begin=1, num_warps=2):
            self.put(out, 0, 1)
            self.sync()
            with self.single_warp():
                self.put(out, 1, 2)
            with self.single_warp(1), self.single_thread():
                self.put(out, 2, 3)
        with self.single_thread(5):
            self.put(out, 3, 4)
    self.sync()
    with self.single_thread():
        self.put(out, 4, 5)


def test_groups_of_threads(backend):
    out = np.zeros(SIZE, np.float32)
    backend.run(script(groups), out)
    assert out[:6].tolist() == [1, 2, 3, 4, 5, 0]


def test_groups_of_threads_compile():
    assert compiler.build(script(groups).lower()).cubin.code

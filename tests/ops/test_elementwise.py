# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on register tiles: NumPy says what is right, for all types, shapes and operators."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests import sass
from tests.kernels import script
from tests.ops.elementwise import (
    ARITHMETIC,
    COMPARED,
    FLOATS,
    FUNCTIONS,
    INTEGERS,
    Apply,
    cases,
    close,
    draw,
    every_class,
    expected,
    run,
)
from tests.ops.tiles import Sim

import tilus
from tilus import (
    LanguageError,
    bfloat16,
    boolean,
    compiler,
    disasm,
    float16,
    float32,
    int8,
    int32,
    uint32,
)
from tilus.layout import blocked

SHAPES = [
    ((32,), (32,)),
    ((4, 64), (4, 64)),
    ((8, 16), (1, 16)),
    ((8, 16), (16,)),
    ((8, 1), (1, 16)),
]


@pytest.mark.parametrize("op, dtype", list(cases()), ids=str)
def test_operate_and_functions_agree_with_numpy(backend, op, dtype):
    rng = np.random.default_rng(7)
    shapes = SHAPES[rng.integers(len(SHAPES))] if op not in FUNCTIONS else ((4, 64), (4, 64))
    a, b = (draw(rng, dtype, s) for s in shapes)
    found = run(backend, Apply(op, dtype, *shapes), a, b)
    exact = backend.name == "sim" or op in [*ARITHMETIC, *COMPARED, "/", "square", "abs", "neg"]
    assert close(found, expected(op, dtype, a, b), dtype, exact)


@settings(max_examples=60, deadline=None)
@given(
    case=st.sampled_from(list(cases())),
    shape=st.lists(st.sampled_from([1, 2, 3, 5, 8, 16, 24]), min_size=1, max_size=3).map(tuple),
    ones=st.integers(0, 7),
    cut=st.integers(0, 2),
    warps=st.sampled_from([1, 2, 3]),
    seed=st.integers(0, 1000),
)
def test_broadcasting_agrees_with_numpy(case, shape, ones, cut, warps, seed):
    """Any shape that NumPy broadcasts, on any number of threads, also where they do not divide."""
    op, dtype = case
    assume(blocked(shape, 32 * warps, dtype.nbytes).registers * dtype.nbytes <= 4 * 192)
    other = tuple(1 if ones >> d & 1 else n for d, n in enumerate(shape))[
        min(cut, len(shape) - 1) :
    ]
    rng = np.random.default_rng(seed)
    a, b = draw(rng, dtype, shape), draw(rng, dtype, other)
    kernel = Apply(op, dtype, shape, other, warps)

    assert close(run(Sim(), kernel, a, b), expected(op, dtype, a, b), dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, boolean], ids=str)
def test_generated_code_compiles_without_local_memory(dtype):
    kernel = every_class(dtype)("+", dtype, (16, 64), (64,)).lower()
    code = compiler.build(kernel).cubin.code
    counts = sass.opcodes(code)
    assert (counts["LDL"], counts["STL"], sass.stack(code)) == (0, 0, 0)
    text = disasm.sass(code)
    assert "LDG.E.128" in text or dtype.nbytes == 1
    assert "STG.E.128" in text or dtype.nbytes == 1


@pytest.mark.parametrize(
    "dtype, value", [(float32, 0.1), (float16, 0.1), (bfloat16, 3), (int8, -7), (uint32, 2**31)]
)
@pytest.mark.parametrize("side", ["a", "b"])
def test_a_number_takes_the_type_of_the_tile(backend, dtype, value, side):
    rng = np.random.default_rng(3)
    x = draw(rng, dtype, (4, 32))
    kernel = Apply("-", dtype, (4, 32), (4, 32), **{side: value})
    a, b = (value, x) if side == "a" else (x, value)
    found = run(backend, kernel, x, x)
    assert close(found, expected("-", dtype, a, b), dtype)


class Scaled(tilus.Script):
    """c = a * alpha + beta with run-time numbers, and in place."""

    def __call__(self, alpha: float32, beta: int32, n: int, a_ptr: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        ga = self.global_view(a_ptr, dtype=float16, shape=[n])
        a = self.load_global(ga, offsets=[0], shape=[64])
        b = alpha * a
        b += beta
        for _ in self.range(3):
            b *= 2
        self.store_global(ga, b, offsets=[0])


def test_run_time_numbers_and_augmented_assignment_in_loops(backend):
    a = np.linspace(-2, 2, 50).astype(np.float16)
    wanted = a.copy()
    backend.run(Scaled(), 0.1, 3, 50, a)
    wanted = ((np.float16(0.1) * wanted).astype(np.float16) + np.float16(3)).astype(np.float16)
    assert np.array_equal(a, wanted * np.float16(8))


def refused(function, match):
    with pytest.raises(LanguageError, match=match):
        script(function).lower()


def test_operate_refuses_two_types():
    def kernel(self):
        self.attrs.blocks, self.attrs.warps = 1, 1
        a = self.register_tensor(dtype=float32, shape=[64], init=1.0)
        b = self.register_tensor(dtype=float16, shape=[64], init=1.0)
        a + b

    refused(kernel, r"one type, got float32 and float16; convert one with self\.cast")


def test_operate_refuses_numbers_that_do_not_fit():
    def fraction(self):
        self.attrs.blocks, self.attrs.warps = 1, 1
        self.register_tensor(dtype=int32, shape=[64], init=1) * 0.5

    def large(self):
        self.attrs.blocks, self.attrs.warps = 1, 1
        self.register_tensor(dtype=int8, shape=[64], init=1) + 128

    def wide(self, x: int32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        self.register_tensor(dtype=int8, shape=[64], init=1) + x

    refused(fraction, r"'\*': a number beside int32 tiles must be a value of int32, got 0\.5")
    refused(large, r"a value of int8, got 128")
    refused(wide, r"a value of int8, got a run-time value \(int32\)")


def test_operate_refuses_types_and_shapes():
    def quotient(self):
        self.attrs.blocks, self.attrs.warps = 1, 1
        self.register_tensor(dtype=int32, shape=[64], init=1) / 2

    def shapes(self):
        self.attrs.blocks, self.attrs.warps = 1, 1
        a = self.register_tensor(dtype=float32, shape=[64], init=1.0)
        a + self.register_tensor(dtype=float32, shape=[32], init=1.0)

    def power(self):
        self.attrs.blocks, self.attrs.warps = 1, 1
        self.register_tensor(dtype=float32, shape=[64], init=1.0) ** 2

    refused(quotient, r"'/' takes tiles of floats of 16 or 32 bits, got int32; write '//'")
    refused(shapes, r"'\+': shapes must broadcast as in NumPy, got \[64\] and \[32\]")
    refused(power, r"'\*\*' is no operator of register tiles; write x \* x")


def test_tiles_have_no_truth_value():
    def condition(self):
        self.attrs.blocks, self.attrs.warps = 1, 1
        if self.register_tensor(dtype=float32, shape=[64], init=1.0) > 0:
            pass

    def between(self):
        self.attrs.blocks, self.attrs.warps = 1, 1
        x = 0 < self.register_tensor(dtype=float32, shape=[64], init=1.0) < 2
        self.square(x)

    refused(condition, "a register tile has no truth value; choose elements with self.where")
    refused(between, "a register tile has no truth value; .* combine conditions with & and |")


def test_where_maximum_minimum_abs_square_of_numbers(backend):
    """On numbers they are what Python has for them."""

    def kernel(self, n: int32, c_ptr: ~float32):
        self.attrs.blocks, self.attrs.warps = 1, 1
        gc = self.global_view(c_ptr, dtype=float32, shape=[64])
        x = self.where(n > 2, self.maximum(n, 5), self.minimum(n, -5)) + self.abs(-n)
        t = self.register_tensor(dtype=float32, shape=[64], init=0.0)
        t += x
        self.store_global(gc, self.square(t), offsets=[0])

    c = np.zeros(64, np.float32)
    backend.run(script(kernel), 3, c)
    assert np.array_equal(c, np.full(64, 64.0))


@pytest.mark.parametrize("name", ["exp", "exp2", "log", "sqrt", "rsqrt"])
def test_functions_of_floats_refuse_integers(name):
    with pytest.raises(LanguageError, match=f"'{name}' takes tiles of floats of 16 or 32 bits"):
        Apply(name, int32, (32,)).lower()


def of(backend, op, dtype, *values):
    """Return a function of a few numbers, as a list."""
    a = np.array(values, dtype.numpy)
    return run(backend, Apply(op, dtype, a.shape), a, np.zeros(1, dtype.numpy)).tolist()


def test_maximum_is_nan_where_one_is(backend):
    a, b = (np.array(x, np.float32) for x in ([1, np.nan, 3, -np.inf], [2, 5, np.nan, -1]))
    found = run(backend, Apply("max", float32, (4,), (4,)), a, b)
    assert np.array_equal(found, [2, np.nan, np.nan, -1], equal_nan=True)


def test_minimum_is_nan_where_one_is(backend):
    a, b = (np.array(x, np.float32) for x in ([1, np.nan, 3, np.inf], [2, 5, np.nan, 7]))
    kernel = script(minimum_kernel)
    c = np.zeros(4, np.float32)
    backend.run(kernel, a, b, c)
    assert np.array_equal(c, [1, np.nan, np.nan, 7], equal_nan=True)


def minimum_kernel(self, a_ptr: ~float32, b_ptr: ~float32, c_ptr: ~float32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    a = self.load_global(self.global_view(a_ptr, dtype=float32, shape=[4]), [0], [4])
    b = self.load_global(self.global_view(b_ptr, dtype=float32, shape=[4]), [0], [4])
    self.store_global(self.global_view(c_ptr, dtype=float32, shape=[4]), self.minimum(a, b), [0])


def test_abs_of_the_least_integer_is_itself(backend):
    assert of(backend, "abs", int8, -128, -127, 0, 5) == [-128, 127, 0, 5]


def test_square_of_integers_wraps(backend):
    assert of(backend, "square", int8, 11, 12, -12, 16) == [121, -112, -112, 0]


def test_exp_at_its_corners(backend):
    assert of(backend, "exp", float32, 0, -np.inf, np.inf, 100, -200) == [1, 0, np.inf, np.inf, 0]


def test_exp2_of_integers_is_exact(backend):
    assert of(backend, "exp2", float32, 0, 1, 10, -3, 127) == [1, 2, 1024, 0.125, 2.0**127]


def test_log_at_its_corners(backend):
    one, zero, infinite, negative = of(backend, "log", float32, 1, 0, np.inf, -1)
    assert (one, zero, infinite) == (0, -np.inf, np.inf) and np.isnan(negative)


def test_sqrt_is_rounded_rightly(backend):
    root, two, negative = of(backend, "sqrt", float32, 4, 2, -1)
    assert (root, two) == (2, np.sqrt(np.float32(2))) and np.isnan(negative)


def test_rsqrt_at_its_corners(backend):
    assert of(backend, "rsqrt", float32, 4, 0, np.inf, 0.25) == [0.5, np.inf, 0, 2]

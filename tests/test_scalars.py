# SPDX-License-Identifier: Apache-2.0
"""A scalar has one value: what ``ir.evaluate`` says is what the generated C computes."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests import integers
from tests.kernels import in_simulator, script

from tilus import compiler, ir
from tilus.dtypes import boolean, float32, int8, int16, int32, int64, uint8, uint16, uint32, uint64
from tilus.emitter import FLOOR, Emitter
from tilus.errors import ArgumentError, LanguageError, SimulationError
from tilus.options import option

INTEGERS = (int8, uint8, int16, uint16, int32, uint32, int64, uint64)
VARIABLES = tuple(ir.Var(t.name, t) for t in (*INTEGERS, boolean, float32))
OTHER = ("/", "<<", ">>", "neg", "invert", "not", "udiv", "umod")
BINARY = [symbol for symbol in ir.OPERATORS if symbol not in OTHER]
HOST = "#define __device__\n#define __forceinline__ inline\n"


def draw(r: random.Random, depth: int) -> ir.Expr:
    """Return a random expression; TypeError where the operator does not take the operands."""
    if depth == 0:
        return r.choice([*VARIABLES, *VARIABLES, *map(ir.as_expr, (0, 1, 3, -2, 100, 0.1))])
    a, b = draw(r, depth - 1), draw(r, r.randrange(depth))
    match r.randrange(12):
        case 0:
            return ir.cast(a, r.choice(INTEGERS)) if not a.dtype.is_float else a
        case 1:
            return ir.select(ir.truth(draw(r, depth - 1)), a, b)
        case 2:
            return ir.apply(r.choice(["neg", "invert", "not"]), a)
        case 3:
            return ir.apply(r.choice(["<<", ">>"]), a, b & 3)
    return ir.apply(r.choice(BINARY), a, b)


def expressions(r: random.Random, count: int) -> list[ir.Expr]:
    found: list[ir.Expr] = []
    while len(found) < count:
        try:
            found.append(draw(r, r.randint(1, 3)))
        except (TypeError, ArithmeticError):
            continue
    return found


def value(r: random.Random, t) -> ir.Scalar:
    """Return a random value of a type; the ends of its range are likely."""
    if t.is_float:
        return ir.wrap(r.choice([0.0, 0.5, -1.25, 3.0, 0.1]), t)
    return ir.wrap(r.choice([0, 1, 2, 7, -1, -7, 2 ** (t.bits - 1), r.getrandbits(64)]), t)


def on_the_host(folder, expressions: list[ir.Expr], variables: Sequence[ir.Var]) -> list:
    """Return each expression as the emitter writes it, as a function of the variables."""
    plan = SimpleNamespace(nonnegative=frozenset(), bits=frozenset())
    function = SimpleNamespace(threads=ir.Threads(0, 32), body=(), params=())
    e = Emitter(SimpleNamespace(function=function, plan=plan))
    parameters = ", ".join(f"{v.dtype.cpp} {e.name(v)}" for v in variables)
    lines = [
        f'extern "C" {x.dtype.cpp} f{i}({parameters}) {{ return {e.expr(x)}; }}'
        for i, x in enumerate(expressions)
    ]
    (folder / "x.cpp").write_text("\n".join([HOST, FLOOR, *lines]))
    flags = ["-w", "-O1", "-shared", "-fPIC", "-o", folder / "x.so"]
    subprocess.run(["g++", *flags, folder / "x.cpp"], check=True)
    library = ctypes.CDLL(str(folder / "x.so"))
    functions = [library[f"f{i}"] for i in range(len(expressions))]
    for f, x in zip(functions, expressions, strict=True):
        f.restype, f.argtypes = ctype(x.dtype), [ctype(v.dtype) for v in variables]
    return functions


def ctype(t):
    return np.ctypeslib.as_ctypes_type(t.numpy)


host = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler for the host")


@host
def test_generated_c_computes_what_evaluate_says(tmp_path):
    r, compared = random.Random(1), 0
    drawn = expressions(r, 400)
    for x, f in zip(drawn, on_the_host(tmp_path, drawn, VARIABLES), strict=True):
        for _ in range(20):
            env = {v: value(r, v.dtype) for v in VARIABLES}
            try:
                expected = ir.evaluate(x, env)
            except ArithmeticError:  # both backends leave it to the author not to come here
                continue
            shown = {v.name: n for v, n in env.items()}
            assert f(*env.values()) == pytest.approx(expected, rel=0, nan_ok=True), (x, shown)
            compared += 1
    assert compared > 5000


def taken(tree) -> ir.Expr | None:
    """Return a tree of tests.integers as an expression; None where the language refuses it."""
    try:
        return ir.as_expr(integers.build(tree))
    except (TypeError, ArithmeticError, LanguageError):  # no common type, a divisor of 0, ...
        return None


def told(tree, values) -> int | None:
    """Return what Python computes; None where it, or the language, refuses."""
    try:
        return integers.python(tree, values)
    except integers.Refused:
        return None


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 3))
def test_integers_follow_python_or_are_refused(r, depth):
    tree = integers.draw(r, depth)
    x = taken(tree)
    assume(x is not None)
    for _ in range(5):
        values = integers.inputs(r)
        try:
            found = ir.evaluate(x, {v: values[name] for name, v in integers.VARIABLES.items()})
        except ArithmeticError:
            found = None
        assert found == told(tree, values), (integers.text(tree), values)


@host
def test_generated_c_follows_python(tmp_path):
    r = random.Random(2)
    trees = [t for t in (integers.draw(r, 3) for _ in range(600)) if taken(t) is not None]
    functions = on_the_host(tmp_path, [taken(t) for t in trees], integers.VARIABLES.values())
    compared = 0
    for tree, f in zip(trees, functions, strict=True):
        for values in (integers.inputs(r) for _ in range(20)):
            expected = told(tree, values)
            if expected is not None:  # what is refused, C leaves undefined
                assert f(*values.values()) == expected, (integers.text(tree), values)
                compared += 1
    assert compared > 5000


def test_a_kernel_of_many_expressions_follows_python(tmp_path, monkeypatch):
    monkeypatch.setattr(option, "_device", "sim")
    cases = [integers.inputs(random.Random(seed)) for seed in range(6)]
    trees = integers.valid(200, cases, seed=3)
    kernel = integers.kernel(tmp_path / "integers_kernel.py", trees)
    compiler.build(kernel.lower())
    for values in cases:
        out = np.zeros(len(trees), np.int64)
        kernel(*values.values(), out)
        wrong = np.flatnonzero(out != integers.expected(trees, values))
        assert not len(wrong), (integers.text(trees[wrong[0]]), values)


@pytest.mark.parametrize(
    ("dtype", "value"), [(int32, 2**31), (int8, 200), (int32, -(2**40)), (int64, float("inf"))]
)
def test_what_a_signed_variable_cannot_hold_is_an_error(dtype, value):
    x = ir.Var("x", float32 if isinstance(value, float) else int64)
    with pytest.raises(OverflowError):
        ir.evaluate(ir.cast(x, dtype, exact=True), {x: value})


def test_casts_asked_for_wrap():
    x = ir.Var("x", int64)
    assert ir.evaluate(ir.cast(x, int8), {x: 200}) == -56


def test_a_shift_counts_in_the_type_of_its_count():
    x, n = ir.Var("x", int32), ir.Var("n", int64)
    with pytest.raises(OverflowError, match="got 4294967297"):
        ir.evaluate(x << n, {x: 1, n: 2**32 + 1})


def test_booleans_count_as_0_and_1():
    flag = ir.Var("flag", boolean)
    cases = {-flag: -1, ~flag: -2, flag << 2: 4, flag + flag: 2, flag >> 1: 0}
    assert {x: ir.evaluate(x, {flag: True}) for x in cases} == cases
    assert all(x.dtype == int32 for x in cases)


def test_constants_are_rounded_to_their_type():
    x = ir.Var("x", float32)
    assert ir.evaluate(x == 0.1, {x: float(np.float32(0.1))})


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (lambda n: n + 2147483647, "the result of '+' must fit in int32, got 2147483648"),
        (lambda n: -(n * 1 - 2147483647 - 2), "the result of 'neg' must fit in int32"),
        (lambda n: 1 << (n + 31), "a shift of int32 must be by 0 to 31, got 32"),
        (lambda n: n >> -n, "a shift of int32 must be by 0 to 31, got -1"),
        (lambda n: n // (n - 1), "the right side of '//' must not be 0"),
        (lambda n: n % (n - 1), "the right side of '%' must not be 0"),
    ],
)
def test_what_c_leaves_undefined_is_an_error(expression, message):
    n = ir.Var("n", int32)
    with pytest.raises(ArithmeticError) as error:
        ir.evaluate(expression(n), {n: 1})
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("a", "b", "common"),
    [(int64, uint32, int64), (uint8, int32, int32), (int32, uint32, int64), (uint8, int8, int64)],
)
def test_the_common_type_of_signed_and_unsigned_holds_both(a, b, common):
    assert ir.apply("+", ir.Var("a", a), ir.Var("b", b)).dtype == common
    assert ir.apply("+", ir.Var("b", b), ir.Var("a", a)).dtype == common


def test_unsigned_results_wrap():
    u = ir.Var("u", uint32)
    assert ir.evaluate(u - 1, {u: 0}) == 2**32 - 1
    assert ir.evaluate(u << 31, {u: 3}) == 2**31


def overflows(self, n: int32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    self.use(n)
    total: int32 = n * n
    self.use(total)


def step_of_0(self, n: int32):
    self.attrs.blocks, self.attrs.warps = 1, 1
    for i in range(0, 5, n - n):
        self.use(i)


@pytest.mark.parametrize(
    ("kernel", "rule"),
    [(overflows, "the result of '*' must fit in int32"), (step_of_0, "step of a range")],
)
def test_the_simulator_names_the_place_of_bad_arithmetic(kernel, rule):
    with pytest.raises(SimulationError) as error:
        in_simulator(kernel, 100_000)
    line = kernel.__code__.co_firstlineno + (3 if kernel is overflows else 2)
    assert f"test_scalars.py:{line}" in str(error.value) and rule in str(error.value)


def divided(self, n: int32):
    self.attrs.blocks, self.attrs.warps = 8 // n, 1


def test_a_grid_that_cannot_be_computed_is_refused(monkeypatch):
    monkeypatch.setattr(option, "_device", "sim")
    with pytest.raises(ArgumentError, match="the grid must be a number that the arguments give"):
        script(divided)(0)


@pytest.mark.parametrize("target", [int32, int16, int8])
def test_an_unsigned_value_may_be_negative_as_a_signed_one(target):
    u = ir.Var("u", uint32)
    assert not ir.nonnegative(ir.cast(u, target), frozenset())
    assert ir.nonnegative(ir.cast(ir.Var("u", uint16), int32), frozenset())


@pytest.mark.parametrize("number", [np.int32(3), np.int64(3), np.float32(0.5), np.float64(0.5)])
def test_a_number_of_numpy_is_one_of_python_on_either_side(number):
    x = ir.Var("x", float32)
    for value in (number * x, x * number):
        assert isinstance(value, ir.Operation)
        assert ir.evaluate(value, {x: 2.0}) == 2 * number

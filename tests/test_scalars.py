# SPDX-License-Identifier: Apache-2.0
"""A scalar has one value: what ``ir.evaluate`` says is what the generated C computes."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
from tests.kernels import in_simulator, script

from tilus import ir
from tilus.dtypes import boolean, float32, int8, int16, int32, int64, uint8, uint16, uint32, uint64
from tilus.emitter import FLOOR, Emitter
from tilus.errors import ArgumentError, SimulationError
from tilus.options import option

INTEGERS = (int8, uint8, int16, uint16, int32, uint32, int64, uint64)
VARIABLES = tuple(ir.Var(t.name, t) for t in (*INTEGERS, boolean, float32))
BINARY = [
    symbol for symbol in ir.OPERATORS if symbol not in ("/", "<<", ">>", "neg", "invert", "not")
]
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


def on_the_host(folder, expressions: list[ir.Expr]) -> list:
    """Return each expression as the emitter writes it, as a function of VARIABLES."""
    plan = SimpleNamespace(nonnegative=frozenset(), bits=frozenset())
    function = SimpleNamespace(threads=ir.Threads(0, 32), body=(), params=())
    e = Emitter(SimpleNamespace(function=function, plan=plan))
    parameters = ", ".join(f"{v.dtype.cpp} {e.name(v)}" for v in VARIABLES)
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
        f.restype, f.argtypes = ctype(x.dtype), [ctype(v.dtype) for v in VARIABLES]
    return functions


def ctype(t):
    return np.ctypeslib.as_ctypes_type(t.numpy)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler for the host")
def test_generated_c_computes_what_evaluate_says(tmp_path):
    r, compared = random.Random(1), 0
    drawn = expressions(r, 400)
    for x, f in zip(drawn, on_the_host(tmp_path, drawn), strict=True):
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
        (lambda n: 1 << (n + 31), "a int32 must be shifted by 0 to 31, got 32"),
        (lambda n: n >> -n, "a int32 must be shifted by 0 to 31, got -1"),
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

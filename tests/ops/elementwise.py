# SPDX-License-Identifier: Apache-2.0
"""A kernel for each type that applies every operator and function, and what NumPy makes of them."""

import functools

import ml_dtypes
import numpy as np

import tilus
from tilus import bfloat16, boolean, float16, float32, int8, int32, uint8, uint32
from tilus.ops.operators import TABLE

FLOATS = [float32, float16, bfloat16]
INTEGERS = [int8, uint8, int32, uint32]
ARITHMETIC = ["+", "-", "*", "max", "min"]
COMPARED = ["<", "<=", ">", ">=", "==", "!="]
BITWISE = ["&", "|", "^"]
DIVISIONS = ["//", "%", "<<", ">>"]
FUNCTIONS = ["exp", "exp2", "log", "sqrt", "rsqrt", "square", "abs", "neg"]


class Operators(tilus.Script):
    """c = a op b for one tile of each; scalars where ``a`` or ``b`` is given."""

    def __init__(self, op, dtype, a_shape, b_shape=(1,), warps=1, a=None, b=None):
        self.op, self.dtype, self.warps = op, dtype, warps
        self.a_shape, self.b_shape, self.a, self.b = a_shape, b_shape, a, b
        shapes = [s for s, given in ((a_shape, a), (b_shape, b)) if given is None]
        unary = op in FUNCTIONS or op == "invert"
        self.shape = a_shape if unary else np.broadcast_shapes(*shapes)
        self.out = boolean if op in COMPARED else dtype

    def apply(self, a, b):
        """Write each operator as kernels do."""
        if self.op == "+":
            return a + b
        if self.op == "-":
            return a - b
        if self.op == "*":
            return a * b
        if self.op == "/":
            return a / b
        if self.op == "&":
            return a & b
        if self.op == "|":
            return a | b
        if self.op == "^":
            return a ^ b
        return self.compare(a, b) if self.op in COMPARED else self.more(a, b)

    def compare(self, a, b):
        """Compare."""
        if self.op == "<":
            return a < b
        if self.op == "<=":
            return a <= b
        if self.op == ">":
            return a > b
        if self.op == ">=":
            return a >= b
        return a == b if self.op == "==" else a != b

    def more(self, a, b):
        """Divide, shift, or have one operand."""
        if self.op == "//":
            return a // b
        if self.op == "%":
            return a % b
        if self.op == "<<":
            return a << b
        if self.op == ">>":
            return a >> b
        if self.op == "neg":
            return -a
        return ~a if self.op == "invert" else self.call(a, b)

    def call(self, a, b):
        """Call a function."""
        if self.op == "max":
            return self.maximum(a, b)
        if self.op == "min":
            return min(a, b)
        if self.op == "where":
            return self.where(a > b, a, b)
        return getattr(self, self.op)(a)


def Apply(op, dtype, *args, **kwargs):
    """Return a kernel whose pointers have the type of its tiles."""
    return apply_class(dtype, boolean if op in COMPARED else dtype)(op, dtype, *args, **kwargs)


@functools.cache
def apply_class(dtype, out):
    """Return the class of kernels on tiles of one type."""

    class Apply(Operators):
        def __call__(self, a_ptr: ~dtype, b_ptr: ~dtype, c_ptr: ~out):
            self.attrs.blocks = 1
            self.attrs.warps = self.warps
            ga = self.global_view(a_ptr, dtype=dtype, shape=self.a_shape)
            gb = self.global_view(b_ptr, dtype=dtype, shape=self.b_shape)
            gc = self.global_view(c_ptr, dtype=out, shape=self.shape)
            a, b = self.a, self.b
            if a is None:
                a = self.load_global(ga, offsets=[0] * len(self.a_shape), shape=self.a_shape)
            if b is None:
                b = self.load_global(gb, offsets=[0] * len(self.b_shape), shape=self.b_shape)
            self.store_global(gc, self.apply(a, b), offsets=[0] * len(self.shape))

    return Apply


def run(backend, kernel, a, b):
    """Return what the kernel makes of two arrays."""
    c = np.zeros(kernel.shape, kernel.out.numpy)
    backend.run(kernel, a, b, c)
    return c


def expected(op, dtype, a, b):
    """Return what NumPy makes of two arrays: 16-bit floats in float32, rounded once."""
    wide = np.float32 if dtype.is_float else dtype.numpy
    unary = op in FUNCTIONS or op == "invert"
    operands = [np.asarray(x).astype(dtype.numpy).astype(wide) for x in ((a,) if unary else (a, b))]
    with np.errstate(all="ignore"):
        if op == "where":
            return np.where(operands[0] > operands[1], *operands).astype(dtype.numpy)
        result = np.asarray(TABLE[op].numpy(*operands))
        return result if op in COMPARED else result.astype(dtype.numpy)


def draw(rng, dtype, shape):
    """Draw values with the corners of the type among them."""
    if dtype.is_float:
        corners = np.array([0, -0.0, 1, -1, 0.5, np.inf, -np.inf, np.nan, 3, 100], np.float32)
        values = rng.standard_normal(shape).astype(np.float32) * 4
        return np.where(rng.random(shape) < 0.3, rng.choice(corners, shape), values).astype(
            dtype.numpy
        )
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    info = np.iinfo(dtype.numpy)
    corners = [0, 1, 2, 7, 31, 32, info.min, info.max]
    values = rng.integers(info.min, info.max, shape, dtype.numpy, endpoint=True)
    return np.where(rng.random(shape) < 0.5, rng.choice(corners, shape), values).astype(dtype.numpy)


def close(found, wanted, dtype, exact=True):
    """Say whether two arrays agree: in every bit, or within two units in the last place."""
    if exact or not dtype.is_float:
        return np.array_equal(found, wanted, equal_nan=dtype.is_float)
    ulp = 4 * float(ml_dtypes.finfo(dtype.numpy).eps)
    with np.errstate(all="ignore"):
        return np.allclose(
            found.astype(float), wanted.astype(float), rtol=ulp, atol=1e-37, equal_nan=True
        )


def cases():
    for dtype in FLOATS:
        for op in [*ARITHMETIC, "/", *COMPARED, *FUNCTIONS, "where"]:
            yield op, dtype
    for dtype in INTEGERS:
        for op in [*ARITHMETIC, *COMPARED, *DIVISIONS, *BITWISE, "neg", "invert", "abs", "where"]:
            yield op, dtype
    for op in [*BITWISE, "==", "!=", "invert", "max", "min"]:
        yield op, boolean


@functools.cache
def every_class(dtype):
    """Return the class of kernels that apply every operator to tiles of one type."""

    class Every(Operators):
        def __call__(self, a_ptr: ~dtype, c_ptr: ~dtype, truth_ptr: ~boolean):
            self.attrs.blocks = 1
            self.attrs.warps = 2
            ga = self.global_view(a_ptr, dtype=dtype, shape=[16, 64])
            gc = self.global_view(c_ptr, dtype=dtype, shape=[40, 16, 64])
            gt = self.global_view(truth_ptr, dtype=boolean, shape=[40, 16, 64])
            a = self.load_global(ga, offsets=[0, 0], shape=[16, 64])
            b = self.load_global(ga, offsets=[0, 0], shape=[64])
            for i, op in enumerate([op for op, t in cases() if t == dtype]):
                self.op = op
                out = gt if op in COMPARED else gc
                self.store_global(out, self.apply(a, b), offsets=[i, 0, 0])

    return Every

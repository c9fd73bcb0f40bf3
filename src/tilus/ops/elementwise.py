# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on register tiles, element by element, with the broadcasting of NumPy.

Tiles of one instruction have one type; a number beside them takes it. Integers wrap, a division by
zero gives 0 as in NumPy, shifts by the width or more leave nothing. float32 is IEEE, save that
CUDA's compiler may fuse a product and a sum into one rounding, and that ``exp``, ``exp2``, ``log``
and ``rsqrt`` may be off by two units in the last place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import abs as magnitude
from typing import Any, ClassVar

import numpy as np

from tilus import ir
from tilus.dtypes import DType, boolean, float32, int32
from tilus.errors import LanguageError
from tilus.ir import (
    Const,
    Constraints,
    Emitter,
    Expr,
    ExprLike,
    Instruction,
    Machine,
    RegisterTensor,
    Site,
    reads,
    wrap,
    writes,
)
from tilus.ir.expr import common_dtype
from tilus.layout import repeated
from tilus.ops import numbers

Operand = RegisterTensor | Expr | int | float | bool

DIVIDE = """\
template <class T> __device__ __forceinline__ T tile_div(T a, T b) {
  if (b == 0) return 0;
  if (T(-1) < T(0) && b == T(-1)) return 0 - (unsigned long long)a;  // the least one wraps
  const T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? a / b - 1 : a / b;
}
template <class T> __device__ __forceinline__ T tile_mod(T a, T b) {
  if (b == 0 || (T(-1) < T(0) && b == T(-1))) return 0;
  const T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}"""

SHIFT = """\
template <class T> __device__ __forceinline__ T shift_left(T a, T b) {
  return (unsigned long long)b < 8 * sizeof(T) ? (unsigned long long)a << b : 0;
}
template <class T> __device__ __forceinline__ T shift_right(T a, T b) {
  return (unsigned long long)b < 8 * sizeof(T) ? a >> b : a < 0 ? -1 : 0;
}"""

EXTREMUM = """\
/* NaN wins, as in NumPy. */
__device__ __forceinline__ float maximum(float a, float b) {
  float x;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
  return x;
}
__device__ __forceinline__ float minimum(float a, float b) {
  float x;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
  return x;
}"""


@dataclass(frozen=True)
class Row:
    """One row of the table of operators on elements.

    ``numpy`` computes it on arrays. The others are format strings over operand texts for float32,
    for integers (``{T}`` is their type, ``{U}`` the unsigned one that wraps) and for booleans; None
    where there is no such operator. ``helper`` is a device function they use.
    """

    numpy: Callable[..., Any]
    floats: str | None = None
    integers: str | None = None
    booleans: str | None = None
    logical: bool = False
    helper: str | None = None

    def text(self, dtype: DType) -> str | None:
        """Return the format string for elements of ``dtype``."""
        if dtype.name == "float64":
            return None
        if dtype.is_float:
            return self.floats
        return self.booleans if dtype.kind == "b" else self.integers


def _wrapping(op: str) -> str:
    return f"({{T}})(({{U}}){{0}} {op} ({{U}}){{1}})"


def _plain(op: str) -> str:
    return f"({{0}} {op} {{1}})"


def _compared(op: str, numpy: Callable[..., Any]) -> Row:
    text = _plain(op)
    return Row(numpy, text, text, text if op in ("==", "!=") else None, logical=True)


def _bitwise(op: str, numpy: Callable[..., Any]) -> Row:
    return Row(numpy, None, f"({{T}})({{0}} {op} {{1}})", f"(bool)({{0}} {op} {{1}})")


TABLE: dict[str, Row] = {
    "+": Row(np.add, _plain("+"), _wrapping("+")),
    "-": Row(np.subtract, _plain("-"), _wrapping("-")),
    "*": Row(np.multiply, _plain("*"), _wrapping("*")),
    "/": Row(np.divide, _plain("/")),
    "//": Row(np.floor_divide, None, "tile_div<{T}>({0}, {1})", helper=DIVIDE),
    "%": Row(np.remainder, None, "tile_mod<{T}>({0}, {1})", helper=DIVIDE),
    "<<": Row(np.left_shift, None, "shift_left<{T}>({0}, {1})", helper=SHIFT),
    ">>": Row(np.right_shift, None, "shift_right<{T}>({0}, {1})", helper=SHIFT),
    "&": _bitwise("&", np.bitwise_and),
    "|": _bitwise("|", np.bitwise_or),
    "^": _bitwise("^", np.bitwise_xor),
    "<": _compared("<", np.less),
    "<=": _compared("<=", np.less_equal),
    ">": _compared(">", np.greater),
    ">=": _compared(">=", np.greater_equal),
    "==": _compared("==", np.equal),
    "!=": _compared("!=", np.not_equal),
    "neg": Row(np.negative, "(-{0})", "({T})(0 - ({U}){0})"),
    "invert": Row(np.invert, None, "({T})(~{0})", "(!{0})"),
    "abs": Row(np.abs, "fabsf({0})", "({T})({0} < 0 ? 0 - ({U}){0} : ({U}){0})"),
    "max": Row(np.maximum, "maximum({0}, {1})", "({T})max({0}, {1})", "({0} || {1})",
               helper=EXTREMUM),
    "min": Row(np.minimum, "minimum({0}, {1})", "({T})min({0}, {1})", "({0} && {1})",
               helper=EXTREMUM),
    "where": Row(np.where, "({0} ? {1} : {2})", "({0} ? {1} : {2})", "({0} ? {1} : {2})"),
    "exp": Row(np.exp, "expf({0})"),
    "exp2": Row(np.exp2, "exp2f({0})"),
    "log": Row(np.log, "logf({0})"),
    "sqrt": Row(np.sqrt, "sqrtf({0})"),
    "rsqrt": Row(lambda x: np.float32(1) / np.sqrt(x), "rsqrtf({0})"),
    "square": Row(np.square, "({0} * {0})", "({T})(({U}){0} * ({U}){0})"),
}  # fmt: skip


class _Elementwise(Instruction):
    """What all of them share: operands that broadcast, and a row of the table."""

    symbol: ClassVar[str]
    out: RegisterTensor

    @classmethod
    def result(cls, site: Site, /, **arguments: Any) -> RegisterTensor:
        symbol = arguments.get("op", getattr(cls, "symbol", ""))
        operands = [v for k, v in arguments.items() if k != "op" and v is not None]
        shape = common_shape(symbol, operands, site)
        values = [v for k, v in arguments.items() if k not in ("op", "cond") and v is not None]
        dtype = boolean if TABLE[symbol].logical else element_type(values)
        return RegisterTensor(site.name, dtype, shape, site.threads)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The tiles and numbers, in the operator's order."""
        names = [n for n in self.parameters() if n != "op"]
        return tuple(x for x in (getattr(self, n) for n in names) if x is not None)

    @property
    def dtype(self) -> DType:
        """The type that the operator works on."""
        return element_type(self.operands)

    @property
    def typed(self) -> list[tuple[Operand, DType]]:
        """The operands, each with the type it must have."""
        return [(x, self.dtype) for x in self.operands]

    @property
    def row(self) -> Row:
        """The operator's row of the table."""
        return TABLE[self.operator]

    @property
    def operator(self) -> str:
        """The key of the row."""
        return self.symbol

    def verify(self) -> None:
        role = self.threads.role
        for x, dtype in self.typed:
            if isinstance(x, RegisterTensor):
                self.require(x.threads == self.threads, x.name, f"held by {role}", x.threads.role)
                self.require(x.dtype == dtype, x.name, f"of type {dtype}", x.dtype)
            else:
                adopted(self.operator, x, dtype)
        if self.row.text(self.dtype) is None:
            known = [name for t, name in KINDS if self.row.text(t) is not None]
            rule = f"'{self.operator}' takes tiles of {' or '.join(known)}, got {self.dtype}"
            hint = "write '//', or convert them" if self.operator == "/" else "convert them"
            raise LanguageError(f"{rule}; {hint} with self.cast(tile, dtype=...)")

    def constrain(self, c: Constraints) -> None:
        for x in self.operands:
            if isinstance(x, RegisterTensor):
                c.like(x, self.out)

    def emit(self, e: Emitter) -> None:
        e.declare(self.out, None)
        if self.row.helper:
            e.helper(self.row.helper)
        texts = [self._text(e, x, dtype) for x, dtype in self.typed]
        form, wide = self.row.text(self.dtype), numbers.wide(self.dtype).cpp
        assert form is not None, "the type was checked"
        unsigned = "unsigned long long" if self.dtype.bits == 64 else "unsigned"
        value = form.format(*texts, T=wide, U=unsigned)
        if not self.row.logical:
            value = numbers.rounded(e, value, self.dtype)
        count = e.register_layout(self.out).registers
        e.line("#pragma unroll")
        e.line(f"for (int r = 0; r < {count}; ++r) {e.registers(self.out)}[r] = {value};")

    def _text(self, e: Emitter, x: Operand, dtype: DType) -> str:
        """Return an operand's element for register ``r`` of the result."""
        if isinstance(x, RegisterTensor):
            return numbers.widened(e, element(e, x, self.out), dtype)
        value = adopted(self.operator, x, dtype)
        text = numbers.scalar(e, value, dtype)
        if isinstance(value, Const):
            return text
        name = e.fresh("scalar")
        e.line(f"const {numbers.wide(dtype).cpp} {name} = {text};")
        return name

    def simulate(self, m: Machine) -> None:
        arrays = [self._array(m, x, dtype) for x, dtype in self.typed]
        with np.errstate(all="ignore"):
            values = np.asarray(self.row.numpy(*arrays))
        m.define(self.out, numbers.convert(values, self.out.dtype))

    def _array(self, m: Machine, x: Operand, dtype: DType) -> np.ndarray:
        if isinstance(x, RegisterTensor):
            return m.registers(x).astype(numbers.wide(dtype).numpy)
        value = wrap(m.value(adopted(self.operator, x, dtype)), dtype)
        return np.asarray(value, dtype.numpy).astype(numbers.wide(dtype).numpy)


KINDS = ((float32, "floats of 16 or 32 bits"), (int32, "integers"), (boolean, "booleans"))


def describe(x: object) -> str:
    """Name an operand in a message."""
    if isinstance(x, RegisterTensor):
        return f"a {x.dtype} tile"
    return f"a run-time value ({x.dtype})" if isinstance(x, Expr) else repr(x)


def element(e: Emitter, x: RegisterTensor, out: RegisterTensor) -> str:
    """Return the element of ``x`` that meets register ``r`` of ``out``, as a C expression."""
    dims = repeated(x.shape, out.shape)
    assert dims is not None, "shapes were checked"
    index = e.register_layout(out).register_without(dims, "r") if dims else "r"
    return f"{e.registers(x)}[{index}]"


def common_shape(symbol: str, operands: Sequence[Any], site: Site) -> tuple[int, ...]:
    """Return the shape that the tiles among ``operands`` broadcast to."""
    tiles = [x for x in operands if isinstance(x, RegisterTensor)]
    if not tiles:
        found = ", ".join(map(describe, operands))
        raise LanguageError(f"'{symbol}' takes a register tile, got {found}", site.location)
    try:
        return np.broadcast_shapes(*(t.shape for t in tiles))
    except ValueError:
        shapes = " and ".join(str(list(t.shape)) for t in tiles)
        message = f"'{symbol}': shapes must broadcast as in NumPy, got {shapes}"
        raise LanguageError(message, site.location) from None


def element_type(operands: Sequence[Any]) -> DType:
    """Return the one type of the tiles among ``operands``, or of the numbers where all are."""
    types = list({x.dtype: None for x in operands if isinstance(x, RegisterTensor)})
    if not types:
        return reduce(lambda a, b: a if a == b else common_dtype(a, b), map(number_type, operands))
    if len(types) > 1:
        found = " and ".join(t.name for t in types)
        remedy = "convert one with self.cast(tile, dtype=...)"
        raise LanguageError(f"tiles must have one type, got {found}; {remedy}")
    return types[0]


def number_type(x: Any) -> DType:
    """Return the type that a number has by itself."""
    if not isinstance(x, Expr | int | float):
        raise LanguageError(f"tiles and numbers are needed here, got {describe(x)}")
    return ir.as_expr(x).dtype


def adopted(symbol: str, x: Any, dtype: DType) -> ExprLike:
    """Return a number beside tiles of ``dtype`` in that type, as it is computed with.

    Raises :class:`LanguageError` where the type cannot hold it.
    """
    if isinstance(x, Expr):
        good = dtype.is_float or x.dtype == dtype or common_dtype(x.dtype, dtype) == dtype
    else:
        good = dtype.is_float or (not isinstance(x, float) and wrap(x, dtype) == x)
    if not good:
        raise LanguageError(
            f"'{symbol}': a number beside {dtype} tiles must be a value of {dtype}, "
            f"got {describe(x)}; convert it, or the tile with self.cast(tile, dtype=...)"
        )
    value = ir.cast(x, numbers.wide(dtype))
    if isinstance(value, Const):
        return Const(wrap(value.value, dtype), value.dtype)
    return value


@dataclass(frozen=True, eq=False, kw_only=True)
class operate(_Elementwise):
    """Carry out an operator of Python on tiles: ``a + b``, ``-x``, ``x < 0``, ``abs(x)``.

    Kernels write the operator itself. ``+ - * < <= == != >= >`` and ``abs`` take floats and
    integers, ``/`` floats, ``// % << >>`` integers, ``& | ^ ~`` integers and booleans.

    NumPy: out = a op b
    PTX:   add, sub, mul, div, rem, shl, shr, and, or, xor, not, neg, abs, setp
    """

    operators = (
        "+", "-", "*", "/", "//", "%", "<<", ">>", "&", "|", "^",
        "<", "<=", ">", ">=", "==", "!=", "neg", "invert", "abs", "max", "min",
    )  # fmt: skip
    effects = (reads("a"), reads("b"), writes("out"))
    op: str
    a: Operand
    b: Operand | None = None
    out: RegisterTensor

    @property
    def operator(self) -> str:
        return self.op


@dataclass(frozen=True, eq=False, kw_only=True)
class where(_Elementwise):
    """Take the elements of ``a`` where ``cond`` is true, and those of ``b`` elsewhere.

    NumPy: out = np.where(cond, a, b)
    PTX:   selp
    """

    symbol = "where"
    effects = (reads("cond"), reads("a"), reads("b"), writes("out"))
    cond: Operand
    a: Operand
    b: Operand
    out: RegisterTensor

    @classmethod
    def scalar(cls, /, **arguments: Any) -> Any:
        cond, a, b = (arguments[n] for n in ("cond", "a", "b"))
        if any(isinstance(x, RegisterTensor) for x in (cond, a, b)):
            return None
        return ir.select(cond, a, b) if isinstance(cond, Expr) else a if cond else b

    @property
    def dtype(self) -> DType:
        return element_type((self.a, self.b))

    @property
    def typed(self) -> list[tuple[Operand, DType]]:
        return [(self.cond, boolean), (self.a, self.dtype), (self.b, self.dtype)]


class _Binary(_Elementwise):
    """A function of two operands; of two numbers it is Python's."""

    effects = (reads("a"), reads("b"), writes("out"))

    @classmethod
    def scalar(cls, /, **arguments: Any) -> Any:
        a, b = arguments["a"], arguments["b"]
        if isinstance(a, int | float) and isinstance(b, int | float):
            return {"max": max, "min": min}[cls.symbol](a, b)
        return None if RegisterTensor in (type(a), type(b)) else ir.apply(cls.symbol, a, b)


@dataclass(frozen=True, eq=False, kw_only=True)
class maximum(_Binary):
    """Take the larger of two elements; NaN where one is NaN.

    NumPy: out = np.maximum(a, b)
    PTX:   max
    """

    symbol = "max"
    a: Operand
    b: Operand
    out: RegisterTensor


@dataclass(frozen=True, eq=False, kw_only=True)
class minimum(_Binary):
    """Take the smaller of two elements; NaN where one is NaN.

    NumPy: out = np.minimum(a, b)
    PTX:   min
    """

    symbol = "min"
    a: Operand
    b: Operand
    out: RegisterTensor


class _Unary(_Elementwise):
    """A function of one tile."""

    effects = (reads("x"), writes("out"))


@dataclass(frozen=True, eq=False, kw_only=True)
class abs(_Unary):
    """Take the magnitude of every element.

    NumPy: out = np.abs(x)
    PTX:   abs
    """

    symbol = "abs"
    x: RegisterTensor
    out: RegisterTensor

    @classmethod
    def scalar(cls, /, **arguments: Any) -> Any:
        x = arguments["x"]
        return magnitude(x) if isinstance(x, Expr | int | float) else None


@dataclass(frozen=True, eq=False, kw_only=True)
class square(_Unary):
    """Multiply every element by itself.

    NumPy: out = np.square(x)
    PTX:   mul
    """

    symbol = "square"
    x: RegisterTensor
    out: RegisterTensor


@dataclass(frozen=True, eq=False, kw_only=True)
class exp(_Unary):
    """Raise e to every element.

    NumPy: out = np.exp(x)
    PTX:   ex2.approx, of the argument times log2(e)
    """

    symbol = "exp"
    x: RegisterTensor
    out: RegisterTensor


@dataclass(frozen=True, eq=False, kw_only=True)
class exp2(_Unary):
    """Raise 2 to every element.

    NumPy: out = np.exp2(x)
    PTX:   ex2.approx
    """

    symbol = "exp2"
    x: RegisterTensor
    out: RegisterTensor


@dataclass(frozen=True, eq=False, kw_only=True)
class log(_Unary):
    """Take the natural logarithm of every element.

    NumPy: out = np.log(x)
    PTX:   lg2.approx, fma
    """

    symbol = "log"
    x: RegisterTensor
    out: RegisterTensor


@dataclass(frozen=True, eq=False, kw_only=True)
class sqrt(_Unary):
    """Take the square root of every element.

    NumPy: out = np.sqrt(x)
    PTX:   sqrt.rn
    """

    symbol = "sqrt"
    x: RegisterTensor
    out: RegisterTensor


@dataclass(frozen=True, eq=False, kw_only=True)
class rsqrt(_Unary):
    """Divide 1 by the square root of every element.

    NumPy: out = 1 / np.sqrt(x)
    PTX:   rsqrt.approx
    """

    symbol = "rsqrt"
    x: RegisterTensor
    out: RegisterTensor

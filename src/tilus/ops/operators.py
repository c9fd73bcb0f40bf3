# SPDX-License-Identifier: Apache-2.0
"""The operators on elements of tiles: one table for both backends, and what numbers beside tiles
are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from tilus import ir
from tilus.dtypes import DType, boolean, float32, int32
from tilus.errors import LanguageError
from tilus.ir import Const, Emitter, Expr, ExprLike, RegisterTensor, Site, wrap
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

    def code(self, dtype: DType, *operands: str) -> str:
        """Return the operator on operand texts of ``dtype``, which it must take."""
        form = self.text(dtype)
        assert form is not None, "the type was checked"
        unsigned = "unsigned long long" if dtype.bits == 64 else "unsigned"
        return form.format(*operands, T=dtype.cpp, U=unsigned)


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


KINDS = ((float32, "floats of 16 or 32 bits"), (int32, "integers"), (boolean, "booleans"))


def describe(x: object) -> str:
    """Name an operand in a message."""
    if isinstance(x, RegisterTensor):
        return f"a {x.dtype} tile"
    return ir.describe(x)


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

# SPDX-License-Identifier: Apache-2.0
"""Element types in generated CUDA, and what both backends make of them when they convert.

16-bit floats are carried as bits; they are computed with in float32, and each result is rounded
back, which is also what NumPy does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilus.dtypes import DType, bfloat16, float16, float32
from tilus.ir import Const, Emitter, ExprLike, cast, wrap

TO_HALF = """\
__device__ __forceinline__ half_t to_half(float x) {
  half_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}"""

FROM_HALF = """\
__device__ __forceinline__ float from_half(half_t h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}"""

TO_BFLOAT = """\
__device__ __forceinline__ half_t to_bfloat(float x) {
  half_t h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}"""

FROM_BFLOAT = """\
__device__ __forceinline__ float from_bfloat(half_t h) {
  return __uint_as_float((unsigned)h << 16);
}"""

TO_INTEGER = """\
/* Toward zero; what lies beyond the bounds becomes the nearer one, NaN becomes 0. */
__device__ __forceinline__ int to_int(float x, int least, int most) {
  int i;
  asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(i) : "f"(x));
  return max(least, min(i, most));
}
__device__ __forceinline__ unsigned to_unsigned(float x) {
  unsigned i;
  asm("cvt.rzi.u32.f32 %0, %1;" : "=r"(i) : "f"(x));
  return i;
}"""

ROUNDING = {
    float16: ("to_half", TO_HALF, "from_half", FROM_HALF),
    bfloat16: ("to_bfloat", TO_BFLOAT, "from_bfloat", FROM_BFLOAT),
}
"""How 16-bit floats are made and read: two functions, each with its text."""


def wide(dtype: DType) -> DType:
    """Return the type in which elements of ``dtype`` are computed with."""
    return float32 if dtype in ROUNDING else dtype


def widened(e: Emitter, x: str, dtype: DType) -> str:
    """Return the element ``x`` in the type that it is computed with, as a C expression."""
    if dtype not in ROUNDING:
        return x
    _, _, function, text = ROUNDING[dtype]
    e.helper(text)
    return f"{function}({x})"


def rounded(e: Emitter, x: str, dtype: DType) -> str:
    """Return ``x``, computed in ``wide(dtype)``, as an element of ``dtype``."""
    if dtype not in ROUNDING:
        return x
    function, text, _, _ = ROUNDING[dtype]
    e.helper(text)
    return f"{function}({x})"


def scalar(e: Emitter, value: ExprLike, dtype: DType) -> str:
    """Return a scalar, rounded to ``dtype``, in the type that it is computed with."""
    if dtype not in ROUNDING:
        return e.expr(cast(value, dtype))
    x = cast(value, float32)
    if isinstance(x, Const):
        return e.expr(Const(wrap(x.value, dtype), float32))
    return widened(e, rounded(e, e.expr(x), dtype), dtype)


def converted(e: Emitter, x: str, source: DType, target: DType) -> str:
    """Return the element ``x`` of type ``source`` as one of type ``target``, as a C expression."""
    if source == target:
        return x
    x = widened(e, x, source)
    if target.kind == "b":
        return f"{x} != 0"
    if target.is_integer and source.is_float:
        e.helper(TO_INTEGER)
        if target.name == "uint32":
            return f"to_unsigned({x})"
        least, most = (e.expr(int(n)) for n in bounds(target))
        return f"({target.cpp})to_int({x}, {least}, {most})"
    return rounded(e, f"({wide(target).cpp}){x}" if wide(source) != wide(target) else x, target)


def convert(values: np.ndarray, target: DType) -> np.ndarray:
    """Return ``values`` as an array of ``target``, converted as :func:`converted` says."""
    with np.errstate(over="ignore", invalid="ignore"):
        if target.kind == "b":
            return np.asarray(values != 0)
        if target.is_integer and values.dtype.kind not in "iub":
            least, most = bounds(target)
            whole = np.trunc(np.nan_to_num(values.astype(np.float64), posinf=most, neginf=least))
            return np.clip(whole, least, most).astype(target.numpy)
        between: Any = np.float32 if target in ROUNDING else target.numpy
        return values.astype(between).astype(target.numpy)


def bounds(dtype: DType) -> tuple[int, int]:
    """Return the least and the largest number of an integer type."""
    info = np.iinfo(np.dtype(dtype.numpy))
    return int(info.min), int(info.max)

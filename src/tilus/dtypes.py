# SPDX-License-Identifier: Apache-2.0
"""The scalar types: one row per type, with its name in every system that we speak to."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike


@dataclass(frozen=True)
class DType:
    """A scalar type.

    ``kind`` is ``"f"``, ``"i"``, ``"u"`` or ``"b"``; ``cpp`` the type in generated CUDA (it
    includes no header, so a 16-bit float is carried as its bits); ``ptx`` the type suffix in PTX;
    ``tma`` the name in ``CUtensorMapDataType``.
    """

    name: str
    kind: str
    bits: int
    numpy: DTypeLike
    cpp: str
    ptx: str
    tma: str | None = None

    @property
    def nbytes(self) -> int:
        """Size of one element in bytes (a boolean takes one)."""
        return max(1, self.bits // 8)

    @property
    def is_integer(self) -> bool:
        """Whether it is a signed or unsigned integer; a boolean is none."""
        return self.kind in "iu"

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type."""
        return self.kind == "f"

    def __invert__(self) -> PointerType:
        """``~float16`` is the type of a pointer to float16."""
        return PointerType(self)

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class PointerType:
    """The type of a parameter that takes an array of ``element`` values in device memory."""

    element: DType

    def __repr__(self) -> str:
        return f"~{self.element}"


boolean = DType("boolean", "b", 1, np.bool_, "bool", "pred")
int8 = DType("int8", "i", 8, np.int8, "signed char", "s8")
int16 = DType("int16", "i", 16, np.int16, "short", "s16")
int32 = DType("int32", "i", 32, np.int32, "int", "s32", "INT32")
int64 = DType("int64", "i", 64, np.int64, "long long", "s64", "INT64")
uint8 = DType("uint8", "u", 8, np.uint8, "unsigned char", "u8", "UINT8")
uint16 = DType("uint16", "u", 16, np.uint16, "unsigned short", "u16", "UINT16")
uint32 = DType("uint32", "u", 32, np.uint32, "unsigned", "u32", "UINT32")
uint64 = DType("uint64", "u", 64, np.uint64, "unsigned long long", "u64", "UINT64")
float16 = DType("float16", "f", 16, np.float16, "half_t", "f16", "FLOAT16")
bfloat16 = DType("bfloat16", "f", 16, ml_dtypes.bfloat16, "half_t", "bf16", "BFLOAT16")
float32 = DType("float32", "f", 32, np.float32, "float", "f32", "FLOAT32")
float64 = DType("float64", "f", 64, np.float64, "double", "f64", "FLOAT64")

ALL: tuple[DType, ...] = (
    boolean, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
    float16, bfloat16, float32, float64,
)  # fmt: skip


def from_numpy(dtype: np.dtype) -> DType | None:
    """Return our type for a NumPy dtype, or None if we have none."""
    return next((t for t in ALL if np.dtype(t.numpy) == dtype), None)

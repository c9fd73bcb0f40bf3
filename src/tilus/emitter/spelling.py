# SPDX-License-Identifier: Apache-2.0
"""How C++ spells names and numbers."""

from __future__ import annotations

import re

import numpy as np

from tilus.dtypes import DType
from tilus.ir import Scalar

KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const
constexpr const_cast continue decltype default delete do double dynamic_cast else enum explicit
export extern false float for friend goto if inline int long mutable namespace new noexcept not
not_eq nullptr operator or or_eq private protected public register reinterpret_cast return short
signed sizeof static static_assert static_cast struct switch template this thread_local throw true
try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq"""
OURS = """
blockDim blockIdx cluster_ctaid_x cluster_ctaid_y cluster_ctaid_z cluster_ctarank cluster_sync
CUtensorMap elect_one evict_first evict_last evict_normal exp2f expf fabsf floor_div floor_mod
from_bfloat from_half gridDim half_t load_1 load_16 load_2 load_4 load_8 load_peer_1 load_peer_16
load_peer_2 load_peer_4 load_peer_8 logf map_shared max maximum min minimum never pack part quad r
row rsqrtf shared_memory shift_left shift_right smem sqrtf store_1 store_16 store_2 store_4 store_8
store_peer_1 store_peer_16 store_peer_2 store_peer_4 store_peer_8 threadIdx tile_div tile_mod
to_bfloat to_half to_int to_unsigned transpose_quad v vector warp"""
RESERVED = frozenset((KEYWORDS + OURS).split())
"""What C++ keeps to itself, and what generated code calls its own things."""


def identifier(name: str) -> str:
    """Return a C identifier for a Python name: ASCII, and not one of :data:`RESERVED`."""
    stem = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_")
    if not stem:
        return "i"
    return f"{stem}_0" if stem in RESERVED else stem if stem[0].isalpha() else f"i{stem}"


def literal(value: Scalar, dtype: DType) -> str:
    """Return a number as a C literal of its type."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.is_float:
        return float_literal(float(value), dtype)
    if dtype.bits < 32:  # else it would be an int, whatever stands beside it
        return f"({dtype.cpp}){f'({value})' if value < 0 else value}"
    suffix = ("u" if dtype.kind == "u" else "") + ("ll" if dtype.bits == 64 else "")
    if value == -(1 << (dtype.bits - 1)):  # C has no negative literals: 2147483648 is no int
        return f"({value + 1}{suffix} - 1)"
    return f"{value}{suffix}" if value >= 0 else f"({value}{suffix})"


def float_literal(value: float, dtype: DType) -> str:
    """Return a float as an exact C literal; NaN, infinity and all of 16 bits by their bits."""
    if dtype.bits == 16:
        with np.errstate(over="ignore"):  # what is too large becomes infinity
            return f"(half_t){np.array(value, dtype.numpy).view(np.uint16):#06x}"
    if value != value or value in (float("inf"), float("-inf")):
        sign = "-" if value == float("-inf") else ""
        word = "0x7fffffff" if value != value else "0x7f800000"
        return f"({sign}__int_as_float({word}))"
    return f"{value!r}f" if dtype.bits == 32 else repr(value)

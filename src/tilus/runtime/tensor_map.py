# SPDX-License-Identifier: Apache-2.0
"""Tensor maps: 128 opaque bytes that tell the TMA unit where a tensor lies and how to cut boxes."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from tilus.dtypes import DType
from tilus.errors import ArgumentError
from tilus.layout import Swizzle
from tilus.runtime.driver import binding, check, in_context, primary_context

NBYTES, ALIGNMENT = 128, 64

#: What TMA asks of a tensor's address and pitches, and of a box's rows, in bytes.
GRANULE = 16


class TensorMap:
    """An encoded ``CUtensorMap``; kernels take it by value, from ``address``."""

    __slots__ = ("_memory", "address")

    def __init__(self) -> None:
        self._memory = ctypes.create_string_buffer(NBYTES + ALIGNMENT)
        self.address = -(-ctypes.addressof(self._memory) // ALIGNMENT) * ALIGNMENT

    def __bytes__(self) -> bytes:
        return ctypes.string_at(self.address, NBYTES)


@functools.lru_cache(maxsize=4096)
def encode_tensor_map(
    address: int,
    dtype: DType,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    swizzle: Swizzle,
    argument: str = "array",
) -> TensorMap:
    """Return the map of a tensor at ``address``; ``shape`` and ``box`` count elements.

    Dimensions come slowest first. ``strides`` count bytes; the last is one element. Elements
    outside ``shape`` are read as zero. A map depends on these numbers alone, so equal calls return
    the same object, even if the memory was freed and allocated again. Raise ArgumentError for what
    TMA cannot address.
    """
    check_tensor_map(address, dtype, shape, strides, box, swizzle, argument)
    with in_context():
        return _encode(address, dtype, shape, strides, box, swizzle)


def check_tensor_map(
    address: int,
    dtype: DType,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    swizzle: Swizzle,
    argument: str = "array",
) -> None:
    """Raise ArgumentError for what TMA cannot address; needs no driver, so that any backend may."""
    _check_tensor(address, dtype, shape, strides, argument)
    _check_box(dtype, shape, box, swizzle, argument)


def _check_tensor(
    address: int, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], argument: str
) -> None:
    if dtype.tma is None:
        raise ArgumentError(argument, "of a type that TMA knows", dtype, "Load it without TMA.")
    if address % GRANULE:
        rule = f"at an address that is a multiple of {GRANULE} bytes"
        remedy = "Start a view at such an element, or copy it."
        raise ArgumentError(argument, rule, f"{address:#x} ({address % GRANULE} over)", remedy)
    if strides[-1] != dtype.nbytes:
        rule = f"contiguous in its last dimension (a stride of {dtype.nbytes} bytes)"
        raise ArgumentError(argument, rule, f"{strides[-1]} bytes", "Copy it, or swap dimensions.")
    for dim, stride in enumerate(strides[:-1]):
        if stride % GRANULE or not 0 < stride < 1 << 40:
            rule = f"of a pitch that is a positive multiple of {GRANULE} bytes below 2^40"
            value = f"{stride} bytes from row to row (dimension {dim} of shape {shape})"
            needed = -(-max(stride, 1) // GRANULE) * GRANULE
            raise ArgumentError(argument, rule, value, f"Pad rows to {needed} bytes.")
    if not 1 <= len(shape) <= 5 or any(extent > 1 << 32 for extent in shape):
        rule = "of 1 to 5 dimensions of at most 2^32 elements"
        raise ArgumentError(argument, rule, shape, "Take a part of it.")


def _check_box(
    dtype: DType, shape: tuple[int, ...], box: tuple[int, ...], swizzle: Swizzle, argument: str
) -> None:
    name, row = f"TMA box of {argument}", box[-1] * dtype.nbytes
    if len(box) != len(shape) or not all(1 <= extent <= 256 for extent in box):
        rule = f"of {len(shape)} dimensions of 1 to 256 elements"
        raise ArgumentError(name, rule, box, "Take smaller tiles.")
    if row % GRANULE or (swizzle and row > swizzle):
        most = f" and at most {int(swizzle)}, the swizzle's width" if swizzle else ""
        rule = f"of rows of a multiple of {GRANULE} bytes{most}"
        raise ArgumentError(name, rule, f"{row} bytes", "Take tiles of another width.")


def _encode(
    address: int,
    dtype: DType,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    swizzle: Swizzle,
) -> TensorMap:
    encode, driver, made = _encoder(), binding(), TensorMap()
    # No extent may be 0. A kernel without elements to load issues no load, so 1 does no harm.
    extents = [max(extent, 1) for extent in shape]
    status = encode(
        made.address,
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{dtype.tma}"),
        len(shape),
        address,
        _fastest_first(ctypes.c_uint64, extents),
        _fastest_first(ctypes.c_uint64, strides[:-1]),
        _fastest_first(ctypes.c_uint32, box),
        _fastest_first(ctypes.c_uint32, [1] * len(shape)),
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_swizzle_name(swizzle)}"),
        # 256-byte promotion: neighbouring boxes of a row come from DRAM in one access.
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    check("encoding a tensor map", (driver.CUresult(status),))
    return made


@functools.cache
def _encoder() -> Any:
    """Return the driver's function for ctypes.

    It wants its result at a multiple of 64 bytes; cuda.bindings puts it wherever Python's allocator
    likes, and offers no way to say otherwise.
    """
    primary_context(0)  # initialises the driver, and says so where there is none
    since, doing = 12000, "asking for cuTensorMapEncodeTiled"
    pointer, _ = check(doing, binding().cuGetProcAddress(b"cuTensorMapEncodeTiled", since, 0))
    number, address, rank = ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32
    arrays = [address] * 4
    modes = [number] * 4
    kind = ctypes.CFUNCTYPE(number, address, number, rank, address, *arrays, *modes)
    return kind(pointer)


def _fastest_first(kind: Any, values: Sequence[int]) -> Any:
    return (kind * len(values))(*reversed(values))


def _swizzle_name(swizzle: Swizzle) -> str:
    return f"{int(swizzle)}B" if swizzle else "NONE"

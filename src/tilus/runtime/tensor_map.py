# SPDX-License-Identifier: Apache-2.0
"""Tensor maps: 128 opaque bytes that tell the TMA unit where a tensor lies and how to cut boxes."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilus.dtypes import DType
from tilus.errors import ArgumentError
from tilus.layout import Swizzle
from tilus.runtime.driver import binding, check, on, primary_context

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


@dataclass(frozen=True)
class Tiling:
    """A tensor at ``address``, and the boxes that TMA cuts it into; ``shape``, ``box``: elements.

    Dimensions come slowest first. ``strides`` count bytes; the last is one element. Elements
    outside ``shape`` are read as zero. ``argument`` names the tensor in messages.
    """

    address: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: Swizzle
    argument: str = "array"

    def check(self) -> None:
        """Raise ArgumentError for what TMA cannot address; needs no driver: any backend may."""
        self._check_elements()
        self._check_strides()
        self._check_box()

    def _check_elements(self) -> None:
        if self.dtype.tma is None:
            remedy = "Load it without TMA."
            raise ArgumentError(self.argument, "of a type that TMA knows", self.dtype, remedy)
        if not 1 <= len(self.shape) <= 5 or any(extent > 1 << 32 for extent in self.shape):
            rule = "of 1 to 5 dimensions of at most 2^32 elements"
            raise ArgumentError(self.argument, rule, self.shape, "Take a part of it.")

    def _check_strides(self) -> None:
        address, strides = self.address, self.strides
        if address % GRANULE:
            rule = f"at an address that is a multiple of {GRANULE} bytes"
            remedy, found = "Start a view at such an element, or copy it.", address % GRANULE
            raise ArgumentError(self.argument, rule, f"{address:#x} ({found} over)", remedy)
        if strides[-1] != self.dtype.nbytes:
            rule = f"contiguous in its last dimension (a stride of {self.dtype.nbytes} bytes)"
            remedy = "Copy it, or swap dimensions."
            raise ArgumentError(self.argument, rule, f"{strides[-1]} bytes", remedy)
        for dim, stride in enumerate(strides[:-1]):
            if stride % GRANULE or not 0 < stride < 1 << 40:
                rule = f"of a pitch that is a positive multiple of {GRANULE} bytes below 2^40"
                value = f"{stride} bytes from row to row (dimension {dim} of shape {self.shape})"
                raise ArgumentError(self.argument, rule, value, self._wider(stride))

    def _wider(self, stride: int) -> str:
        """Return what makes rows of ``stride`` bytes ones that TMA can step along."""
        whole = f"a multiple of {GRANULE // self.dtype.nbytes} {self.dtype} elements"
        needed = -(-max(stride, 1) // GRANULE) * GRANULE
        return f"Make its last dimension {whole}, or pad rows to {needed} bytes."

    def _check_box(self) -> None:
        box, swizzle, name = self.box, self.swizzle, f"TMA box of {self.argument}"
        row = box[-1] * self.dtype.nbytes
        if len(box) != len(self.shape) or not all(1 <= extent <= 256 for extent in box):
            rule = f"of {len(self.shape)} dimensions of 1 to 256 elements"
            raise ArgumentError(name, rule, box, "Take smaller tiles.")
        if row % GRANULE or (swizzle and row > swizzle):
            most = f" and at most {int(swizzle)}, the swizzle's width" if swizzle else ""
            rule = f"of rows of a multiple of {GRANULE} bytes{most}"
            raise ArgumentError(name, rule, f"{row} bytes", "Take tiles of another width.")


@functools.lru_cache(maxsize=4096)
def encode_tensor_map(tiling: Tiling, device: int = 0) -> TensorMap:
    """Return the map of a tensor on a GPU; raise ArgumentError for what TMA cannot address.

    A map depends on its numbers alone, so equal calls return the same object, even if the memory
    was freed and allocated again.
    """
    tiling.check()
    with on(device):
        return _encode(tiling)


def _encode(tiling: Tiling) -> TensorMap:
    encode, driver, made = _encoder(), binding(), TensorMap()
    # No extent may be 0. A kernel without elements to load issues no load, so 1 does no harm.
    extents = [max(extent, 1) for extent in tiling.shape]
    swizzle = _swizzle_name(tiling.swizzle)
    status = encode(
        made.address,
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{tiling.dtype.tma}"),
        len(extents),
        tiling.address,
        _fastest_first(ctypes.c_uint64, extents),
        _fastest_first(ctypes.c_uint64, tiling.strides[:-1]),
        _fastest_first(ctypes.c_uint32, tiling.box),
        _fastest_first(ctypes.c_uint32, [1] * len(extents)),
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"),
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

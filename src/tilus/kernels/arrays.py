# SPDX-License-Identifier: Apache-2.0
"""The arrays of a matrix product: what they must be, how they lie in memory, where results go."""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilus import runtime
from tilus.dtypes import bfloat16, float16, float32
from tilus.errors import ArgumentError
from tilus.runtime import Array, DeviceArray

TYPES = (float16, bfloat16)
GRANULE = 16
"""TMA steps from row to row, and begins, at multiples of so many bytes."""
MOST = 2**31 - 512
"""Elements along a dimension, and from row to row: kernels count them in 32 bits."""


@dataclass(frozen=True)
class Operand:
    """An array as TMA takes it: rows whose elements are neighbours, ``pitch`` elements apart.

    ``array`` is [size, k] as it lies in memory; with ``mn`` it is [k, size].
    """

    array: Array
    mn: bool

    @property
    def pitch(self) -> int:
        """Elements from one row to the next."""
        return self.array.strides[0] // self.array.dtype.nbytes


def check(left: Array, right: Array) -> None:
    """Raise :class:`ArgumentError` where two arrays have no product."""
    for name, array in (("a", left), ("b", right)):
        _form(name, array)
    if right.dtype != left.dtype:
        remedy = "Convert one of them; sums are float32 either way."
        raise ArgumentError("b", f"of {left.dtype}, as 'a' is", right.dtype, remedy)
    if right.shape[0] != left.shape[1]:
        rule = f"of shape [{left.shape[1]}, N], as 'a' is of shape {list(left.shape)}"
        remedy = "Pass b.T for weights stored as [N, K]."
        raise ArgumentError("b", rule, list(right.shape), remedy)
    _same_device("b", right, left)


def _form(name: str, array: Array) -> None:
    """Refuse what is no matrix of a type that is multiplied."""
    if len(array.shape) != 2:
        found = f"{len(array.shape)} (shape {list(array.shape)})"
        raise ArgumentError(name, "of 2 dimensions", found, "Reshape it, or loop over the rest.")
    if array.dtype not in TYPES:
        remedy = "Convert it to one of them."
        raise ArgumentError(name, "of float16 or bfloat16", array.dtype, remedy)
    if max(array.shape) > MOST:
        rule = f"of at most {MOST} elements along a dimension"
        raise ArgumentError(name, rule, list(array.shape), "Multiply it in parts.")
    if min(array.strides) < 0:
        found = f"strides of {list(array.strides)} bytes"
        raise ArgumentError(name, "without negative strides", found, "Pass a copy.")


def _same_device(name: str, array: Array, first: Array) -> None:
    if array.device != first.device:
        rule, remedy = f"on {first.device}, where 'a' is", f"Copy it to {first.device}."
        raise ArgumentError(name, rule, f"on {array.device}", remedy)


def check_out(found: Array, a: Array, b: Array) -> None:
    """Raise :class:`ArgumentError` where the product of two arrays cannot go to a third."""
    shape = (a.shape[0], b.shape[1])
    if found.dtype != a.dtype:
        remedy = f"Pass one of {a.dtype}, and convert that."
        raise ArgumentError("out", f"of {a.dtype}, as 'a' is", found.dtype, remedy)
    _form("out", found)
    if found.shape != shape:
        rule = f"of shape {list(shape)}, that of the product"
        raise ArgumentError("out", rule, list(found.shape), "Leave it out to get a new one.")
    _same_device("out", found, a)
    if not found.writable:
        raise ArgumentError("out", "a writable array", "a read-only one", "Pass a copy.")
    if _shares(found):
        found_strides = f"strides of {list(found.strides)} bytes"
        rule = "an array whose elements have a place each"
        raise ArgumentError("out", rule, found_strides, "Pass a contiguous one.")
    for name, array in (("a", a), ("b", b)):
        if _overlap(found, array):
            rule = f"apart from '{name}' in memory, which is read meanwhile"
            raise ArgumentError("out", rule, "one that overlaps it", "Pass another array.")


def _shares(array: Array) -> bool:
    """Say whether two elements may have the same place."""
    (n, far), (m, near) = sorted(zip(array.shape, array.strides, strict=True), key=lambda x: -x[1])
    inner = near * (m - 1) + array.dtype.nbytes if m > 1 else array.dtype.nbytes
    return 0 not in (n, m) and ((m > 1 and near < array.dtype.nbytes) or (n > 1 and far < inner))


def _overlap(x: Array, y: Array) -> bool:
    """Say whether the bytes from first to last element of two arrays meet."""
    ends = [z.address + runtime.span(z.shape, z.strides, z.dtype.nbytes) for z in (x, y)]
    return x.address < ends[1] and y.address < ends[0] and 0 not in (*x.shape, *y.shape)


def transposed(x: Array) -> Array:
    """Return the same elements with rows for columns; what is stacked stays so."""
    *stack, rows, columns = x.shape
    *apart, down, across = x.strides
    return replace(x, shape=(*stack, columns, rows), strides=(*apart, across, down))


def by_rows(x: Array) -> Array | None:
    """Return a matrix whose rows are made of neighbours; None for any other.

    The stride along a dimension of one element means nothing: a legal one takes its place.
    """
    (rows, columns), item = x.shape, x.dtype.nbytes
    least = -(-columns * item // GRANULE) * GRANULE
    pitch = x.strides[0] if rows > 1 else least
    together = columns == 1 or x.strides[1] == item
    if not (columns and together and columns * item <= pitch <= MOST * item):
        return None
    return replace(x, strides=(pitch, item))


def aligned(x: Array) -> bool:
    """Say whether every row begins where TMA can begin."""
    return x.strides[0] % GRANULE == 0 and x.address % GRANULE == 0


def storable(x: Array) -> bool:
    """Say whether TMA can write a matrix, which it does in whole pieces of 16 bytes."""
    return aligned(x) and x.shape[1] * x.dtype.nbytes % GRANULE == 0


def operand(x: Array) -> Operand | None:
    """Return an array [size, k] as TMA takes it, K-major where it may be either; else None."""
    for mn in (False, True):
        lying = by_rows(transposed(x) if mn else x)
        if lying is not None and aligned(lying):
            return Operand(lying, mn)
    return None


def new(like: Any, shape: tuple[int, int]) -> Any:
    """Return a new array from the library, and where, ``like`` comes from."""
    library = runtime.library_of(like)
    if library == "torch":
        return sys.modules["torch"].empty(shape, dtype=like.dtype, device=like.device)
    if library == "cupy":
        with like.device:
            return sys.modules["cupy"].empty(shape, dtype=like.dtype)
    if isinstance(like, np.ndarray):
        return np.empty(shape, dtype=like.dtype)
    if isinstance(like, DeviceArray):
        return DeviceArray(shape, like.dtype, like.device)
    rule = f"given, since arrays of {type(like).__module__} are not made here"
    raise ArgumentError("out", rule, "None", "Pass an array for the result.")


@functools.cache
def _workspace(device: str, queue: Hashable, elements: int) -> Array:
    if device == "sim":
        return runtime.describe(np.empty(elements, np.float32), "workspace")
    index = int(device.removeprefix("cuda:"))
    return DeviceArray((elements,), float32, index).described


def workspace(device: str, handle: int, elements: int) -> Array:
    """Return an array of so many float32, or more, for the work of one stream of a device.

    A stream's launches use it one after another; one of a single element, all streams, as nobody
    writes to it. It is kept for good, since a CUDA graph may have its address: sizes are powers of
    two, so that all of a stream's together are less than twice the largest.
    """
    size = 1 << (elements - 1).bit_length()
    return _workspace(device, runtime.queue_of(handle) if elements > 1 else 0, size)

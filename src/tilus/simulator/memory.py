# SPDX-License-Identifier: Apache-2.0
"""Shared and global memory as NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from tilus import ir
from tilus.errors import ArgumentError
from tilus.layout import RegisterLayout
from tilus.simulator.access import Owners
from tilus.simulator.group import poison

Array = NDArray[Any]


class SharedMemory:
    """The shared memory of one block: poisoned bytes, addressed through the plan's layouts."""

    def __init__(self, plan: ir.Plan) -> None:
        self._plan = plan
        self._bytes = poison((plan.shared_bytes,), np.uint8)
        self._places: dict[object, tuple[Array, Array]] = {}
        self._intervals: dict[object, tuple[tuple[int, int], ...]] = {}
        self._owners: dict[object, Owners] = {}

    def read(self, tensor: ir.SharedTensor, offset: int) -> Array:
        """Return the elements of ``tensor``, which begins ``offset`` elements into its buffer."""
        elements, indices = self._place(tensor, offset)
        values: Array = elements[indices]
        return values

    def write(self, tensor: ir.SharedTensor, offset: int, values: Array) -> None:
        """Write the elements of ``tensor``."""
        elements, indices = self._place(tensor, offset)
        elements[indices] = values

    def intervals(self, tensor: ir.SharedTensor, offset: int) -> tuple[tuple[int, int], ...]:
        """Return the runs of bytes that hold the elements of ``tensor``."""
        key = (tensor.buffer, tensor.shape, tensor.transposed, offset)
        if key not in self._intervals:
            places = np.sort(self._first_bytes(tensor, offset), axis=None)
            gaps = np.flatnonzero(np.diff(places) != tensor.dtype.nbytes)
            begins, ends = places[[0, *(gaps + 1)]], places[[*gaps, -1]] + tensor.dtype.nbytes
            self._intervals[key] = tuple(zip(begins.tolist(), ends.tolist(), strict=True))
        return self._intervals[key]

    def owners(
        self, tensor: ir.SharedTensor, offset: int, layout: RegisterLayout, begin: int
    ) -> Owners:
        """Return which of the threads from ``begin`` on touches which element of ``tensor``, where
        they hold it in ``layout``."""
        key = (tensor.buffer, tensor.shape, tensor.transposed, offset, layout, begin)
        if key not in self._owners:
            places = self._first_bytes(tensor, offset)
            self._owners[key] = Owners(places, tensor.dtype.nbytes, layout, begin)
        return self._owners[key]

    def _first_bytes(self, tensor: ir.SharedTensor, offset: int) -> Array:
        place: Array = self._indices(tensor, offset) * tensor.dtype.nbytes
        return place + self._plan.places[tensor.buffer]

    def _place(self, tensor: ir.SharedTensor, offset: int) -> tuple[Array, Array]:
        key = (tensor.buffer, tensor.shape, tensor.transposed, offset)
        if key not in self._places:
            self._places[key] = self._elements(tensor.buffer), self._indices(tensor, offset)
        return self._places[key]

    def _elements(self, buffer: ir.SharedBuffer) -> Array:
        place = self._plan.places[buffer]
        return self._bytes[place : place + buffer.nbytes].view(buffer.dtype.numpy)

    def _indices(self, tensor: ir.SharedTensor, offset: int) -> Array:
        """Return where each element lies: tiles follow one another, permuted inside."""
        tile = self._plan.shared[tensor.buffer].offsets().reshape(-1)
        logical = offset + np.arange(math.prod(tensor.shape))
        physical: Array = logical // tile.size * tile.size + tile[logical % tile.size]
        if tensor.transposed:
            return physical.reshape(tensor.shape[::-1]).T
        return physical.reshape(tensor.shape)


class GlobalMemory:
    """The arrays that pointers point to; boxes are clipped to the view, and to nothing else."""

    def __init__(self, arrays: Mapping[ir.Var, Array]) -> None:
        self._arrays = arrays

    def read(self, view: ir.GlobalTensor, geometry: Geometry, box: tuple[int, ...]) -> Array:
        """Return a box of the view, zero outside of it."""
        values = np.zeros(box, view.dtype.numpy)
        inside = geometry.clip(box)
        if inside is not None:
            values[inside] = self._window(view, geometry, inside)
        return values

    def write(self, view: ir.GlobalTensor, geometry: Geometry, values: Array) -> None:
        """Write the part of a box that lies inside the view."""
        inside = geometry.clip(values.shape)
        if inside is not None:
            self._window(view, geometry, inside)[...] = values[inside]

    def _window(
        self, view: ir.GlobalTensor, geometry: Geometry, inside: tuple[slice, ...]
    ) -> Array:
        array = self._arrays[view.pointer].view(view.dtype.numpy)
        first, last, extents = geometry.span(inside)
        if not 0 <= first <= last < array.size:
            rule = f"an array of at least {last + 1} elements, as {view.name} reaches that far"
            raise ArgumentError(view.pointer.name, rule, array.size, "Pass the whole array.")
        steps = [s * array.itemsize for s in geometry.strides]
        return as_strided(array[first:], extents, steps)


class Geometry:
    """Where a box begins in a view, and the view's shape and strides, all as numbers."""

    def __init__(
        self, shape: Sequence[int], strides: Sequence[int], offsets: Sequence[int]
    ) -> None:
        self.shape, self.strides, self.offsets = shape, strides, offsets

    def clip(self, box: Sequence[int]) -> tuple[slice, ...] | None:
        """Return the part of the box that lies inside the view, or None."""
        parts = [
            slice(max(0, -o), min(b, n - o))
            for o, b, n in zip(self.offsets, box, self.shape, strict=True)
        ]
        return tuple(parts) if all(p.start < p.stop for p in parts) else None

    def span(self, inside: tuple[slice, ...]) -> tuple[int, int, tuple[int, ...]]:
        """Return the first and last element touched, and the extents."""
        extents = tuple(p.stop - p.start for p in inside)
        first = sum(
            (o + p.start) * s for o, p, s in zip(self.offsets, inside, self.strides, strict=True)
        )
        last = first + sum((e - 1) * s for e, s in zip(extents, self.strides, strict=True))
        return first, last, extents

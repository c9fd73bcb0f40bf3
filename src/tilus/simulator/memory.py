# SPDX-License-Identifier: Apache-2.0
"""Shared and global memory as NumPy arrays."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from tilus import ir
from tilus.errors import ArgumentError
from tilus.layout import RegisterLayout
from tilus.simulator.access import Access, Owners
from tilus.simulator.group import poison
from tilus.simulator.shadow import Conflict, GlobalShadow

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
    """The arrays that pointers point to; boxes are clipped to the view, and to nothing else.

    What happens to arrays that the kernel writes is remembered: ``units`` holds, for each of their
    pointers, how many bytes have one history.
    """

    def __init__(self, arrays: Mapping[ir.Var, Array], units: Mapping[ir.Var, int]) -> None:
        self._arrays, self._units = arrays, units
        self._shadows = {p: GlobalShadow(arrays[p].nbytes // unit) for p, unit in units.items()}

    def remembers(self, view: ir.GlobalTensor) -> bool:
        """Say whether it is remembered what happens to the elements of a view."""
        return view.pointer in self._shadows

    def fresh(self) -> GlobalMemory:
        """Return the same memory with nothing remembered."""
        return GlobalMemory(self._arrays, self._units)

    def read(self, view: ir.GlobalTensor, geometry: Geometry, box: tuple[int, ...]) -> Array:
        """Return a box of the view, zero outside of it."""
        values = np.zeros(box, view.dtype.numpy)
        inside = geometry.clip(box)
        if inside is not None:
            values[inside] = self._window(self._elements(view), view, geometry, inside)
        return values

    def write(self, view: ir.GlobalTensor, geometry: Geometry, values: Array) -> None:
        """Write the part of a box that lies inside the view."""
        inside = geometry.clip(values.shape)
        if inside is not None:
            self._window(self._elements(view), view, geometry, inside)[...] = values[inside]

    def enter(
        self, access: Access, view: ir.GlobalTensor, geometry: Geometry, box: tuple[int, ...]
    ) -> Conflict | None:
        """Check and remember an access of a box of the view; return a conflict."""
        shadow, inside = self._shadows[view.pointer], geometry.clip(box)
        if inside is None:
            return None
        each = view.dtype.nbytes // self._units[view.pointer]
        written, read = (
            self._window(numbers.reshape(-1, each), view, geometry, inside)
            for numbers in (shadow.written, shadow.read)
        )
        return shadow.enter(access, written, read)

    def _elements(self, view: ir.GlobalTensor) -> Array:
        return self._arrays[view.pointer].view(view.dtype.numpy)

    @staticmethod
    def _window(
        array: Array, view: ir.GlobalTensor, geometry: Geometry, inside: tuple[slice, ...]
    ) -> Array:
        """Return the part of a box that lies inside the view, of what an array holds for each
        element."""
        first, last, extents = geometry.span(inside)
        if not 0 <= first <= last < len(array):
            rule = f"an array of at least {last + 1} elements, as {view.name} reaches that far"
            raise ArgumentError(view.pointer.name, rule, len(array), "Pass the whole array.")
        steps = [s * array.strides[0] for s in geometry.strides]
        inner = array.shape[1:], array.strides[1:]
        return as_strided(array[first:], (*extents, *inner[0]), (*steps, *inner[1]))


def written_units(function: ir.Function) -> dict[ir.Var, int]:
    """Return the pointers through which a kernel writes, and the smallest size of an element that
    it sees behind each, in bytes."""
    found = [
        (view, effect.kind == "write")
        for stmt in ir.walk(function.body)
        if isinstance(stmt, ir.Instruction)
        for effect in stmt.effects
        if isinstance(view := getattr(stmt, effect.field), ir.GlobalTensor)
    ]
    sizes: dict[ir.Var, list[int]] = defaultdict(list)
    for view, _ in found:
        sizes[view.pointer].append(view.dtype.nbytes)
    return {view.pointer: min(sizes[view.pointer]) for view, written in found if written}


class Geometry:
    """Where a box begins in a view, and the view's shape and strides, all as numbers."""

    def places(self, box: Sequence[int]) -> Array:
        """Return how many elements behind the pointer each element of a box lies; -1 outside of
        the view."""
        index = np.indices(box, sparse=True)
        at = [i + o for i, o in zip(index, self.offsets, strict=True)]
        inside = np.ones(tuple(box), bool)
        for i, n in zip(at, self.shape, strict=True):
            inside &= (i >= 0) & (i < n)
        found = sum(i * s for i, s in zip(at, self.strides, strict=True))
        return np.where(inside, found, -1)

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

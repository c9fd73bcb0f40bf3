# SPDX-License-Identifier: Apache-2.0
"""Run a candidate on made-up arrays, and compare every byte with what should be there."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilus import compiler, ir, launch, runtime
from tilus.dtypes import DType
from tilus.errors import ArgumentError, TilusError
from tilus.launch import Call

Bytes = NDArray[np.uint8]
Runnable = ir.Kernel | compiler.Program
"""A candidate: a planned kernel for the simulator, a compiled one for a GPU."""

GUARD = 128
"""Bytes before and after an array that must stay as they are."""
POISON = 0xFF
"""Fills what a kernel must write: as a float, a NaN."""

POOL, WINDOW = 2**22, 4999
"""Elements that are drawn for a large array, and how many of them in a row are used at one place: a
prime, so that windows and the rows of an array do not begin together."""


@dataclass(frozen=True, eq=False)
class Image:
    """An array's memory on the host, guards included; ``strides`` count bytes."""

    raw: Bytes
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType

    @classmethod
    def like(cls, array: runtime.Array) -> Image:
        """Return poisoned memory for an array of the same form."""
        pairs = zip(array.shape, array.strides, strict=True)
        span = array.dtype.nbytes + sum((n - 1) * stride for n, stride in pairs)
        raw = np.full(span + 2 * GUARD, POISON, np.uint8)
        return cls(raw, array.shape, array.strides, array.dtype)

    @property
    def elements(self) -> NDArray[Any]:
        """The array itself, a view of the memory."""
        return np.ndarray(self.shape, self.dtype.numpy, self.raw, GUARD, self.strides)

    def copy(self) -> Image:
        """Return the same array in memory of its own."""
        return Image(self.raw.copy(), self.shape, self.strides, self.dtype)

    def place(self, device: str) -> Placed:
        """Copy the memory to ``"sim"`` or ``"cuda:N"``."""
        if device == "sim":
            raw: Any = self.raw.copy()
            address, where = raw.ctypes.data, runtime.CPU
        else:
            raw = runtime.DeviceArray.from_numpy(self.raw, int(device.removeprefix("cuda:")))
            address, where = raw.described.address, device
        array = runtime.Array(
            address + GUARD, self.shape, self.strides, self.dtype, where, owner=raw
        )
        return Placed(array, raw)


@dataclass(frozen=True, eq=False)
class Placed:
    """An image where a kernel can reach it."""

    array: runtime.Array
    memory: Any

    def fetch(self) -> Bytes:
        """Return the memory as it is now, after all work: a kernel's errors come to light here."""
        if isinstance(self.memory, np.ndarray):
            return self.memory
        return self.memory.to_numpy()  # type: ignore[no-any-return]

    def restore(self, image: Image) -> None:
        """Make the memory what it was when ``image`` was placed."""
        if isinstance(self.memory, np.ndarray):
            self.memory[...] = image.raw
        else:
            self.memory.copy_from(image.raw)


def images(call: Call, written: Collection[str], kind: str, seed: int = 0) -> dict[str, Image]:
    """Make up memory for a call's arrays: poison where it writes, else ``kind`` of numbers.

    ``"exact"`` draws from {-1, 0, 1}, so that sums of products have no rounding; ``"normal"`` from
    the normal distribution, which is what times are taken on. Raises :class:`ArgumentError` for
    inputs that are no floats, since made-up indices would lead anywhere.
    """
    rng = np.random.default_rng(seed)
    made = {}
    for name, array in call.arrays.items():
        made[name] = Image.like(array)
        if name not in written:
            if not array.dtype.is_float:
                remedy = "Give the schedule at construction."
                raise ArgumentError(name, "of floats to be tuned for", array.dtype, remedy)
            made[name].elements[...] = _draw(kind, array, rng)
    return made


def _draw(kind: str, array: runtime.Array, rng: np.random.Generator) -> NDArray[Any]:
    """Return numbers for an array; a large one is made of windows into a pool, which is as random
    and takes a tenth of the time."""
    count = math.prod(array.shape)
    size = min(count, POOL)
    if kind == "exact":
        pool = rng.integers(-1, 2, size, np.int8).astype(array.dtype.numpy)
    else:
        pool = rng.standard_normal(size, np.float32).astype(array.dtype.numpy)
    if size == count:
        return pool.reshape(array.shape)
    flat = np.empty(count, pool.dtype)
    starts = range(0, count, WINDOW)
    for start, at in zip(starts, rng.integers(POOL - WINDOW, size=len(starts)), strict=True):
        part = flat[start : start + WINDOW]
        part[...] = pool[at : at + len(part)]
    return flat.reshape(array.shape)


def at(call: Call, arrays: Mapping[str, runtime.Array]) -> Call:
    """Return the call with other arrays."""
    return Call(call.constants, call.scalars, dict(arrays), ())


def runnable(program: Runnable, device: str) -> launch.Program:
    """Make a candidate ready to be called."""
    if isinstance(program, compiler.Program):
        return launch.Cuda(program, int(device.removeprefix("cuda:")))
    return launch.Simulator(program)


@dataclass(eq=False)
class Trial:
    """Tries candidates on one device; ``before`` and ``after`` hold every array of the call.

    ``constants`` and ``scalars`` are the call's. Everything here can be pickled.
    """

    device: str
    constants: Mapping[str, ir.Scalar]
    scalars: Mapping[str, ir.Scalar]
    before: Mapping[str, Image]
    after: Mapping[str, Image]
    _placed: dict[str, Placed] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is placed: addresses mean nothing in another process."""
        return vars(self) | {"_placed": {}}

    def judge(self, program: Runnable) -> str | None:
        """Run a candidate; return what is wrong with what it left behind, or None."""
        for name, image in self.before.items():
            self._placed.setdefault(name, image.place(self.device))
        arrays = {name: placed.array for name, placed in self._placed.items()}
        try:
            runnable(program, self.device)(Call(self.constants, self.scalars, arrays, ()))
        except TilusError:
            self._placed.clear()  # who knows what it wrote before
            raise
        faults = [fault for name in self.before if (fault := self._compare(name)) is not None]
        return "; ".join(faults) or None

    def _compare(self, name: str) -> str | None:
        placed, expected, before = self._placed[name], self.after[name], self.before[name]
        found = placed.fetch()
        if _same(found, expected.raw):
            if expected is not before:
                placed.restore(before)  # the next candidate finds it as it was
            return None
        del self._placed[name]
        wrong = np.flatnonzero(found != expected.raw)
        return _describe(name, expected, int(wrong[0]), len(wrong))


def _same(x: Bytes, y: Bytes) -> bool:
    """Compare by words of eight bytes: candidates leave hundreds of millions of bytes each."""
    whole = len(x) // 8 * 8
    head, other = (part[:whole].view(np.uint64) for part in (x, y))
    return np.array_equal(head, other) and np.array_equal(x[whole:], y[whole:])


def _describe(name: str, image: Image, first: int, count: int) -> str:
    offset, inside = first - GUARD, []
    for stride in image.strides:
        inside.append(offset // stride if stride else 0)
        offset -= inside[-1] * stride
    within = first >= GUARD and all(i < n for i, n in zip(inside, image.shape, strict=True))
    place = f"at {inside}" if within else "outside the array"
    return f"{name} is wrong: {count} of {math.prod(image.raw.shape)} bytes, first {place}"

# SPDX-License-Identifier: Apache-2.0
"""Tiles in registers: each coordinate of an element is a sum of digits of the thread number and of
the register number, so that one object yields NumPy index arrays and C expressions."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

Source = Literal["thread", "register"]


@dataclass(frozen=True)
class Digit:
    """``(number // divisor) % size * stride`` of the thread or register number, added to coordinate
    ``dim``."""

    dim: int
    source: Source
    divisor: int
    size: int
    stride: int

    def of(self, number: np.ndarray) -> np.ndarray:
        """Return the digit of every thread or register number."""
        return number // self.divisor % self.size * self.stride

    def text(self, number: str) -> str:
        """Return the digit as a C expression over ``number``."""
        quotient = f"{number} / {self.divisor}" if self.divisor > 1 else number
        return (
            f"{quotient} % {self.size} * {self.stride}"
            if self.stride > 1
            else f"{quotient} % {self.size}"
        )


@dataclass(frozen=True)
class RegisterLayout:
    """Where the elements of a tile of ``shape`` live: ``registers`` of each of ``threads``
    (numbered within their group)."""

    shape: tuple[int, ...]
    threads: int
    registers: int
    digits: tuple[Digit, ...]

    def coordinates(self) -> np.ndarray:
        """Return an int array ``[threads, registers, dimensions]``: the element each register
        holds."""
        thread, register = np.indices((self.threads, self.registers))
        result = np.zeros((self.threads, self.registers, len(self.shape)), dtype=int)
        for digit in self.digits:
            result[..., digit.dim] += digit.of(thread if digit.source == "thread" else register)
        return result

    def text(self, dim: int, source: Source, number: str) -> str:
        """Return one coordinate's share of the thread or register ``number`` as a C expression."""
        parts = [d.text(number) for d in self.digits if (d.dim, d.source) == (dim, source)]
        return " + ".join(parts) or "0"

    def row_major(self, source: Source, number: str) -> str:
        """Return the share of the thread or register ``number`` in an element's row-major index."""
        step = [math.prod(self.shape[d + 1 :]) for d in range(len(self.shape))]
        parts = [replace(d, stride=d.stride * step[d.dim]) for d in self.digits]
        return " + ".join(d.text(number) for d in parts if d.source == source) or "0"

    def same(self, other: RegisterLayout) -> bool:
        """Say whether both put the same elements into the same registers, however it is written."""
        size = (self.shape, self.threads, self.registers)
        if self == other or size != (other.shape, other.threads, other.registers):
            return self == other
        return np.array_equal(self.coordinates(), other.coordinates())

    def copies(self) -> tuple[tuple[int, int], ...]:
        """Return (divisor, size) of the digits of a thread's number that select no element.

        Threads that differ only in them hold the same elements.
        """
        result, position = [], 1
        sizes = {d.divisor: d.size for d in self.digits if d.source == "thread" and d.size > 1}
        for divisor, size in [*sorted(sizes.items()), (self.threads, 1)]:
            assert divisor % position == 0, "digits of the thread number overlap"
            if divisor > position:
                result.append((position, divisor // position))
            position = divisor * size
        return tuple(result)

    def without(self, dims: Collection[int]) -> RegisterLayout:
        """Return the layout of a tile with one element along ``dims``, its registers closed up."""
        if not dims:
            return self
        shape = tuple(1 if d in dims else n for d, n in enumerate(self.shape))
        places = {d: p.stride for d, p in self._closed(dims)}
        kept = [replace(d, divisor=places.get(d, d.divisor)) for d in self.digits]
        digits = [d for d in kept if d.dim not in dims]
        registers = math.prod(d.size for d in places)
        return RegisterLayout(shape, self.threads, registers, long_digits(digits))

    def register_without(self, dims: Collection[int], number: str) -> str:
        """Return which register of ``without(dims)`` belongs to register ``number``, in C."""
        return " + ".join(p.text(number) for _, p in self._closed(dims) if p.size > 1) or "0"

    def part(self, offsets: Sequence[int], shape: Sequence[int]) -> Part | None:
        """Return where the box of ``shape`` at ``offsets`` lies; None where it is no matter of
        registers only, so that a thread would need elements of others."""
        cuts: list[tuple[Digit, Digit, int]] = []  # a digit, what is left of it, where that begins
        for dim, (offset, size) in enumerate(zip(offsets, shape, strict=True)):
            own = [d for d in self.digits if d.dim == dim]
            for d in sorted(own, key=lambda d: -d.stride):
                begin, offset = divmod(offset, d.stride)
                whole, rest = divmod(size, d.stride)
                kept = max(1, whole)
                cuts.append((d, replace(d, size=kept), begin))
                if begin + kept > d.size or (whole and (rest or offset)):
                    return None
                if kept != d.size and d.source == "thread":
                    return None
                size = min(size, d.stride)
        return _part(tuple(shape), self.threads, sorted(cuts, key=lambda cut: cut[0].divisor))

    def _closed(self, dims: Collection[int]) -> Iterator[tuple[Digit, Digit]]:
        """Yield the register digits of the other dimensions, and what each adds to the number of
        the register where only those count."""
        step = 1
        registers = [d for d in self.digits if d.source == "register" and d.dim not in dims]
        for d in sorted(registers, key=lambda d: d.divisor):
            yield d, replace(d, stride=step)
            step *= d.size

    def reshaped(self, shape: tuple[int, ...]) -> RegisterLayout:
        """Return the layout of the tile with dimensions of one element added or left out."""
        if shape == self.shape:
            return self
        old = [d for d, n in enumerate(self.shape) if n > 1]
        new = dict(zip(old, (d for d, n in enumerate(shape) if n > 1), strict=True))
        digits = (replace(d, dim=new[d.dim]) for d in self.digits if d.size > 1)
        return replace(self, shape=shape, digits=tuple(digits))

    @property
    def vector(self) -> int:
        """How many successive registers hold successive elements of a row."""
        return math.prod(d.size for d in self._contiguous())

    def _contiguous(self) -> Iterator[Digit]:
        run, last = 1, len(self.shape) - 1
        for d in self.digits:
            if (d.dim, d.source, d.divisor, d.stride) == (last, "register", run, run):
                run *= d.size
                yield d


@dataclass(frozen=True)
class Part:
    """A box of a tile: its ``layout``, and ``register``, the number in the tile of the register
    that is ``r`` in the box, as a C expression."""

    layout: RegisterLayout
    register: str


def _part(shape: tuple[int, ...], threads: int, cuts: Sequence[tuple[Digit, Digit, int]]) -> Part:
    """Number the registers of a box anew; ``cuts`` has its digits, the fastest first."""
    digits, terms, first, step = [], [], 0, 1
    for old, left, begin in cuts:
        if old.source == "register":
            left = replace(left, divisor=step)
            step *= left.size
            terms.append(replace(left, stride=old.divisor))
            first += begin * old.divisor
        digits.append(left)
    terms = [d for d in terms if d.size > 1]
    together = all(d.divisor == d.stride for d in terms)
    text = "r" if together else " + ".join(d.text("r") for d in terms)
    layout = RegisterLayout(shape, threads, step, long_digits(digits))
    return Part(layout, f"{text} + {first}" if first else text)


def long_digits(digits: Iterable[Digit]) -> tuple[Digit, ...]:
    """Leave out the digits that are always 0."""
    return tuple(d for d in digits if d.size > 1)


def repeated(shape: tuple[int, ...], wide: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the dimensions of ``wide`` along which NumPy repeats a tile of ``shape``; None where
    it does not broadcast so."""
    missing = len(wide) - len(shape)
    sizes = (1,) * missing + shape
    if missing < 0 or any(n not in (1, w) for n, w in zip(sizes, wide, strict=True)):
        return None
    return tuple(d for d, (n, w) in enumerate(zip(sizes, wide, strict=True)) if n != w)

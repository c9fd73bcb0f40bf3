# SPDX-License-Identifier: Apache-2.0
"""How threads reach shared memory: the widest access, the banks' turns, the layout with fewest.

A turn delivers one 4-byte word from each of 32 banks (CUDA C++ Programming Guide, "Shared Memory").
A warp's access of 4 bytes a thread takes one, if no bank is asked for two words; one of 8 or 16
bytes goes by half and quarter warps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from tilus.layout import RegisterLayout, SharedLayout, Spread

WARP = 32
ROW_BITS = 7  # 32 banks of 4 bytes
SAMPLE = 32  # registers that stand for all of a thread


@dataclass(frozen=True)
class Access:
    """One way to move registers: ``registers`` of a thread at once, ``width`` bytes at an address.

    A thread names the address of register ``register(t) + start`` of thread ``thread(t)``; both
    take thread numbers as an array or as an expression. ``matrices`` is that of ``ldmatrix`` and
    ``stmatrix``: a thread gets parts of rows whose addresses others name.
    """

    registers: int
    width: int
    matrices: Literal["", "plain", "trans"] = ""
    thread: Callable[[Any], Any] = lambda t: t
    register: Callable[[Any], Any] = lambda t: t * 0

    def addresses(self, places: np.ndarray) -> np.ndarray:
        """Return what each thread names in each access; ``places`` [threads, registers] holds
        where registers lie."""
        t = np.arange(places.shape[-2])[:, None]
        starts = np.arange(0, places.shape[-1], self.registers)
        found: np.ndarray = places[..., self.thread(t), self.register(t) + starts]
        return found

    def turns(self, places: np.ndarray) -> int:
        """Return how many turns a warp takes; ``places`` [lanes, registers] are bytes."""
        named = self.addresses(places).T
        parts = math.gcd(self.parts, named.shape[1])
        if self.matrices:
            named = named[:, : 8 * parts]  # the rows of as many matrices
        return turns(named.reshape(len(named) * parts, -1), self.width)

    @property
    def parts(self) -> int:
        """How many turns a warp takes where no bank is asked for two words."""
        return self.registers // 2 if self.matrices else max(1, self.width // 4)


def turns(addresses: np.ndarray, width: int) -> int:
    """Return how many turns accesses [number, lanes] of ``width`` bytes a lane take, each lane in
    reach of all others."""
    words = addresses[..., None] // 4 + np.arange(max(1, width // 4))
    words = np.sort(words.reshape(len(addresses), -1))
    new = np.diff(words, axis=1, prepend=-1) != 0  # a word that several lanes want comes once
    asked = np.zeros((len(words), 32), int)
    np.add.at(asked, (np.nonzero(new)[0], words[new] % 32), 1)
    return int(asked.max(axis=1).sum())


def matrices(places: np.ndarray) -> Access | None:
    """Return the access by 8x8 matrices of 16-bit elements, or None where the layouts are others.

    In a matrix lane l holds elements 2 * (l % 4) and the next of row l / 4; transposed, of column
    l / 4. Lane l names the address of row l % 8 of matrix l / 8 (PTX ISA, "ldmatrix").
    """
    *_, threads, registers = places.shape
    if threads % WARP or registers % 2:
        return None
    count = 4 if registers % 8 == 0 else 2 if registers % 4 == 0 else 1
    lanes = places.reshape(-1, threads // WARP, 8, 4, registers // 2, 2)
    pair = np.arange(4)[:, None, None] * 4 + np.arange(2) * 2
    rows = lanes[:, :, :, :1, :, :1]
    if (rows % 16 == 0).all() and (lanes == rows + pair).all():
        thread, register = (lambda t: t // 32 * 32 + t % 8 * 4), (lambda t: t // 8 % count * 2)
        return Access(2 * count, 16, "plain", thread, register)
    rows = lanes[:, :, :1]
    if (rows % 16 == 0).all() and (lanes == rows + np.arange(8)[:, None, None, None] * 2).all():
        thread, register = (
            (lambda t: t // 32 * 32 + t % 8 // 2),
            (lambda t: t // 8 % count * 2 + t % 2),
        )
        return Access(2 * count, 16, "trans", thread, register)
    return None


def vectors(places: np.ndarray, nbytes: int, alignment: int = 16) -> Access:
    """Return the widest access of registers that lie side by side; ``alignment`` is that of the
    tile."""
    for width in (16, 8, 4, 2):
        count = width // nbytes
        if alignment % width == 0 and count > 1 and places.shape[-1] % count == 0:
            runs = places.reshape(*places.shape[:-1], -1, count)
            even = runs[..., :1] % width == 0
            if even.all() and (runs == runs[..., :1] + nbytes * np.arange(count)).all():
                return Access(count, width)
    return Access(1, nbytes)


def access(places: np.ndarray, nbytes: int, alignment: int = 16, begin: int = 0) -> Access:
    """Return how registers are moved that lie at ``places`` [threads, registers].

    The tile's bytes are aligned to ``alignment``; ``begin`` is the first thread's number.
    """
    fit = nbytes == 2 and alignment % 16 == 0 and begin % WARP == 0
    found = matrices(places) if fit else None
    return found or vectors(places, nbytes, alignment)


@dataclass(frozen=True)
class Use:
    """A tile of shared memory is read into or written from registers that lie as ``registers``
    says."""

    registers: RegisterLayout
    transposed: bool = False

    @cached_property
    def index(self) -> tuple[np.ndarray, np.ndarray]:
        """Row and column in the tile of the first registers of the first warp."""
        coordinates = self.registers.coordinates()[:WARP, :SAMPLE]
        *row, column = np.moveaxis(coordinates, -1, 0)
        pair = (row[0] if row else np.zeros_like(column), column)
        return pair[::-1] if self.transposed else pair

    def turns(self, tile: SharedLayout) -> int:
        """Return how many turns these registers take."""
        places: np.ndarray = tile.offset(*self.index)
        whole = 1 << tile.spread.to if tile.spread else 16  # bytes that no spread tears apart
        return access(places, tile.element_bytes, whole).turns(places)

    def fewest(self, tile: SharedLayout) -> int:
        """Return how many turns they take where no bank is asked for two words."""
        places: np.ndarray = tile.offset(*self.index)
        found = access(places, tile.element_bytes)
        return len(places[0]) // found.registers * found.parts


def least_turns(shape: tuple[int, ...], nbytes: int, uses: Sequence[Use]) -> SharedLayout:
    """Return the layout of a tile in which its ``uses`` take fewest turns: row-major, or with a
    spread."""
    plain = SharedLayout(shape, nbytes)
    fewest = sum(use.fewest(plain) for use in uses)
    best, least = plain, sum(use.turns(plain) for use in uses)
    for spread in _spreads(plain):
        if least <= fewest:
            break
        layout = SharedLayout(shape, nbytes, spread=spread)
        count = sum(use.turns(layout) for use in uses)
        if count < least:
            best, least = layout, count
    return best


def _spreads(tile: SharedLayout) -> Iterator[Spread]:
    """Yield the exchanges that keep elements and the tile whole, those of large pieces first."""
    nbytes = tile.panel_bytes
    for to in range(4, (tile.element_bytes - 1).bit_length() - 1, -1):
        for bits in range(ROW_BITS - to, 0, -1):
            if nbytes % (1 << (to + bits)):
                continue
            for source in range(ROW_BITS, nbytes.bit_length() - 1):
                yield Spread(to, source, bits)

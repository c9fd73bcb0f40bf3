# SPDX-License-Identifier: Apache-2.0
"""Decide whether a matrix product is right: C[m, n] = A[m, k] · B[n, k]ᵀ in float16.

Two questions, each with inputs of its own, and one look at the memory around C:

*exact*
    Entries from {-1, 0, 1}: every partial sum is a small integer, so C must be the integer
    product bit for bit.
*bounded*
    Normal entries. Element by element, against the float64 product c:
    ``|err| <= 2^-11 |c| + 2^-25 + 8 sqrt(K) 2^-24 (|A| |B|ᵀ)``.
    The first two terms are the one rounding to float16, the third is what float32 sums may lose.
    Large products are judged on full rows and full columns.
*memory*
    C began as a NaN that no arithmetic makes, and lies between guards: all of C is written,
    nothing else is, and A and B stay as they were.

Everything here is NumPy on the host and knows nothing of how C was made. :class:`Case` is the
whole procedure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tilus.errors import ArgumentError, TilusError

Kind = Literal["exact", "bounded"]
Half = NDArray[np.float16]
Matrix = NDArray[Any]

GUARD = 64
"""Guard elements before and after C: 128 bytes each."""
BAND = 64
"""A sample has a full row in every band of so many rows, and a full column likewise."""
WHOLE = 2**31
"""Up to so many multiply-adds every element is compared; a larger product is sampled."""
POISON = np.uint16(0x7E5A)
"""What C holds before the kernel runs: a NaN whose payload no arithmetic produces."""
GUARD_FILL = np.uint16(0xA5A5)
"""What lies around C and between its rows."""
OVERFLOW = 65520.0
"""From here on float16 rounds to infinity; its largest finite value is 65504."""
STEP = 2048
"""Rows of one block of the reference product: keeps its float64 copies small."""


@dataclass(frozen=True)
class Verdict:
    """What a check found: right where ``faults`` is empty.

    ``rel_err`` is the relative Frobenius error over the ``checked`` of ``total`` elements,
    ``worst`` the largest |err| / bound among them (NaN for an exact check, which has no bound).
    """

    kind: Kind
    faults: tuple[str, ...]
    rel_err: float
    worst: float
    checked: int
    total: int

    @property
    def right(self) -> bool:
        """Whether nothing was wrong."""
        return not self.faults

    def demand(self, what: str = "C") -> Verdict:
        """Return the verdict, or raise :class:`TilusError` with its faults, one a line."""
        if self.faults:
            lines = "\n".join(f"  {fault}" for fault in self.faults)
            raise TilusError(f"{what} is wrong ({self.kind} check):\n{lines}")
        return self


# ---- inputs -------------------------------------------------------------------------------------


def integers(shape: tuple[int, ...], rng: np.random.Generator) -> Half:
    """Draw entries from {-1, 0, 1}, as float16."""
    return rng.integers(-1, 2, size=shape, dtype=np.int8).astype(np.float16)


def normals(shape: tuple[int, ...], rng: np.random.Generator) -> Half:
    """Draw standard normal entries, as float16."""
    return rng.standard_normal(shape, dtype=np.float32).astype(np.float16)


def scaled(a: Half, factor: float) -> Half:
    """Return ``factor`` times A, rounded to float16 once."""
    return (a.astype(np.float32) * np.float32(factor)).astype(np.float16)


def headroom(a: Half, b: Half) -> float:
    """Return the largest power of two that A may be scaled by while every |C| < 32768."""
    largest = max(float(np.abs(product).max()) for _, product, _ in _products(a, b))
    mantissa, exponent = math.frexp(32768 / largest)
    # A largest |C| that is itself a power of two would be scaled to exactly 32768.
    return math.ldexp(1.0, exponent - (2 if mantissa == 0.5 else 1))


# ---- the memory of C ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Output:
    """The buffer of an ``m`` x ``n`` float16 matrix, rows ``pitch`` elements apart, with guards."""

    m: int
    n: int
    pitch: int

    @property
    def size(self) -> int:
        """Elements of the whole buffer, guards included."""
        return self.m * self.pitch + 2 * GUARD

    def fresh(self) -> Half:
        """Return a new flat buffer: C is poison, the rest the guard pattern."""
        raw = np.full(self.size, GUARD_FILL, np.uint16)
        self.matrix(raw)[:] = POISON
        return raw.view(np.float16)

    def matrix(self, raw: Matrix) -> Matrix:
        """Return C, a view of ``raw``."""
        return self._rows(raw)[:, : self.n]

    def faults(self, raw: Half) -> Iterator[str]:
        """Yield what a kernel did wrong: touched a guard, left an element unwritten."""
        bits = raw.view(np.uint16)
        for side, part in (("before", bits[:GUARD]), ("after", bits[-GUARD:])):
            if (part != GUARD_FILL).any():
                yield f"the {2 * GUARD} bytes {side} C were changed"
        beyond = np.argwhere(self._rows(bits)[:, self.n :] != GUARD_FILL)
        if len(beyond):
            where = _region(beyond + np.array([0, self.n]))
            yield f"memory beyond C's columns was changed, {where}"
        missing = np.argwhere(self.matrix(bits) == POISON)
        if len(missing):
            yield f"{len(missing)} elements were never written, {_region(missing)}"

    def _rows(self, raw: Matrix) -> Matrix:
        return raw[GUARD : self.size - GUARD].reshape(self.m, self.pitch)


# ---- the two checks -----------------------------------------------------------------------------


def exact(c: Matrix, a: Half, b: Half) -> Verdict:
    """Compare all of C with the integer product of A and B, entries {-1, 0, 1}, bit for bit.

    A zero must have the sign of the integer 0. Other entries raise :class:`ArgumentError`.
    """
    for name, x in (("a", a), ("b", b)):
        if not np.isin(x.view(np.uint16) & 0x7FFF, (0x0000, 0x3C00)).all():
            rule = "made of -1, 0 and 1 for an exact check"
            raise ArgumentError(name, rule, "other entries", "Draw it with integers().")
    if (fault := _misfit(c, a, b)) is not None:
        return Verdict("exact", (fault,), math.nan, math.nan, 0, c.size)
    tally = _Tally()
    transposed, columns = b.astype(np.float32).T, np.arange(len(b))
    for top in range(0, len(a), STEP):
        found = np.ascontiguousarray(c[top : top + STEP])
        # float32 is exact here: no partial sum exceeds K, and sums of zeros are +0.
        product = a[top : top + STEP].astype(np.float32) @ transposed
        bad = found.view(np.uint16) != product.astype(np.float16).view(np.uint16)
        tally.add(found, product, bad, np.arange(top, top + len(found)), columns)
    return tally.verdict("exact", math.nan, c.size)


def bounded(
    c: Matrix,
    a: Half,
    b: Half,
    *,
    rng: np.random.Generator | None = None,
    sample: bool | None = None,
) -> Verdict:
    """Compare C with the float64 product of A and B within this module's bound.

    ``sample`` says whether full rows and columns stand for the whole (default: above ``WHOLE``
    multiply-adds), drawn from ``rng`` (default: anew each time). NaN and Inf are looked for
    everywhere; an Inf is right only where the product rounds to it. Raises :class:`ArgumentError`
    where A or B is not finite.
    """
    for name, x in (("a", a), ("b", b)):
        if not np.isfinite(x).all():
            raise ArgumentError(name, "finite", "NaN or Inf", "Draw it with normals().")
    if (fault := _misfit(c, a, b)) is not None:
        return Verdict("bounded", (fault,), math.nan, math.nan, 0, c.size)
    tally = _Tally()
    tally.nans(c)
    every_row, every_column = (np.arange(extent) for extent in c.shape)
    if sample if sample is not None else c.size * a.shape[1] > WHOLE:
        rng = rng or np.random.default_rng()
        _compare(tally, c, a, b, lines(len(a), rng), every_column)
        _compare(tally, c, a, b, every_row, lines(len(b), rng))
        for row in np.flatnonzero(np.isinf(c).any(axis=1))[:STEP]:
            _compare(tally, c, a, b, np.array([row]), np.flatnonzero(np.isinf(c[row])))
    else:
        _compare(tally, c, a, b, every_row, every_column)
    return tally.verdict("bounded", tally.worst, c.size)


def lines(extent: int, rng: np.random.Generator, band: int = BAND) -> NDArray[np.intp]:
    """Draw one index from each band of ``band`` indices below ``extent``, also a short last one."""
    starts = np.arange(0, extent, band)
    return starts + rng.integers(0, np.minimum(band, extent - starts))


@dataclass
class _Tally:
    """Sums over the blocks of one check."""

    wrong: int = 0
    checked: int = 0
    worst: float = 0.0
    error: float = 0.0
    reference: float = 0.0
    nan: str | None = None
    first: str | None = None

    def nans(self, c: Matrix) -> None:
        """Look for NaN in the whole of C."""
        places = np.argwhere(np.isnan(c))
        if len(places):
            self.nan = f"{len(places)} elements are NaN, {_region(places)}"

    def add(
        self, found: Matrix, product: Matrix, bad: Matrix, rows: Matrix, columns: Matrix
    ) -> None:
        """Count a block: ``found`` is C[rows][:, columns], wrong where ``bad``."""
        difference = np.where(np.isfinite(found), found, product).astype(np.float64) - product
        self.checked += found.size
        self.error += float(np.square(difference).sum())
        self.reference += float(np.square(product, dtype=np.float64).sum())
        places = np.argwhere(bad)
        self.wrong += len(places)
        if len(places) and self.first is None:
            i, j = places[0]
            where = _region(np.stack([rows[places[:, 0]], columns[places[:, 1]]], axis=1))
            self.first = f"{where}: got {found[i, j]}, expected about {product[i, j]:.8g}"

    def verdict(self, kind: Kind, worst: float, total: int) -> Verdict:
        """Close the check."""
        wrong = self.first and f"{self.wrong} of {self.checked} compared are wrong, {self.first}"
        faults = tuple(fault for fault in (self.nan, wrong) if fault)
        rel_err = math.sqrt(self.error / (self.reference or 1.0))
        return Verdict(kind, faults, rel_err, worst, self.checked, total)


def _compare(tally: _Tally, c: Matrix, a: Half, b: Half, rows: Matrix, columns: Matrix) -> None:
    """Judge C[rows][:, columns] by the bound."""
    slack = 8 * math.sqrt(a.shape[1]) * 2.0**-24
    for (i, j), product, magnitude in _products(a[rows], b[columns]):
        found = c[np.ix_(rows[i], columns[j])].astype(np.float64)
        room = slack * magnitude
        bound = 2.0**-11 * np.abs(product) + 2.0**-25 + room
        # Near the edge of overflow what float32 sums may lose can tip the balance.
        over = (found == np.copysign(np.inf, product)) & (np.abs(product) + room >= OVERFLOW)
        ratio = np.where(over, 0.0, np.abs(found - product) / bound)
        ratio[np.isnan(ratio)] = np.inf
        tally.worst = max(tally.worst, float(ratio.max(initial=0.0)))
        tally.add(found, product, ratio > 1, rows[i], columns[j])


def _products(a: Half, b: Half) -> Iterator[tuple[tuple[slice, slice], Matrix, Matrix]]:
    """Yield (rows, columns) of a block with its part of A Bᵀ and of |A| |B|ᵀ, in float64."""
    for left in range(0, len(b), STEP):
        right = b[left : left + STEP].astype(np.float64).T
        for top in range(0, len(a), STEP):
            block = a[top : top + STEP].astype(np.float64)
            place = slice(top, top + STEP), slice(left, left + STEP)
            yield place, block @ right, np.abs(block) @ np.abs(right)


def _misfit(c: Matrix, a: Half, b: Half) -> str | None:
    """Say what is wrong with the form of C, if anything."""
    expected = (len(a), len(b))
    if c.dtype != np.float16:
        return f"C is {c.dtype}, not float16"
    return None if c.shape == expected else f"C has the shape {c.shape}, not {expected}"


def _region(places: Matrix) -> str:
    """Describe where elements lie: the first one, and the box around all."""
    first = f"first at [{places[0][0]}, {places[0][1]}]"
    if len(places) == 1:
        return first
    (top, left), (bottom, right) = places.min(axis=0), places.max(axis=0)
    return f"{first}, all within rows {top}-{bottom}, columns {left}-{right}"


# ---- the whole procedure ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Case:
    """One check from inputs to verdict.

    Run the kernel on copies of ``a``, ``b`` and ``output.fresh()``, where ``output.matrix(...)`` is
    C; then hand all three to :meth:`judge` as they are afterwards.
    """

    kind: Kind
    a: Half
    b: Half
    output: Output = field(init=False)
    pitch: int | None = None
    """Elements from one row of C to the next; more than n leaves columns beyond C."""

    def __post_init__(self) -> None:
        m, n = len(self.a), len(self.b)
        object.__setattr__(self, "output", Output(m, n, n if self.pitch is None else self.pitch))

    @classmethod
    def draw(
        cls,
        kind: Kind,
        m: int,
        n: int,
        k: int,
        *,
        seed: int | None = None,
        pitch: int | None = None,
    ) -> Case:
        """Draw the inputs that ``kind`` asks for."""
        rng = np.random.default_rng(seed)
        make = integers if kind == "exact" else normals
        return cls(kind, make((m, k), rng), make((n, k), rng), pitch)

    def judge(self, raw: Half, a_after: Half, b_after: Half) -> Verdict:
        """Return the verdict on the buffer of C and the inputs as a kernel left them."""
        compare = exact if self.kind == "exact" else bounded
        verdict = compare(self.output.matrix(raw), self.a, self.b)
        faults = (*self.output.faults(raw), *self._changed(a_after, b_after), *verdict.faults)
        return replace(verdict, faults=faults)

    def _changed(self, a_after: Half, b_after: Half) -> Iterator[str]:
        for name, before, after in (("A", self.a, a_after), ("B", self.b, b_after)):
            if not np.array_equal(before.view(np.uint16), after.view(np.uint16)):
                yield f"{name} was changed"

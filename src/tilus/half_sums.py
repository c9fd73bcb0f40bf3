# SPDX-License-Identifier: Apache-2.0
"""How wrong a product with sums in float16 may be, and how wrong any product is.

The bound of :mod:`tilus.verify` is one for sums in float32 and refuses these. A tensor core adds
16 products at a time to a sum that it rounds to float16 each time: K/16 roundings, each to nearest,
so each is wrong by at most 2^-11 of the sum so far. The sums of random entries are of the size
``s = sqrt(A² (B²)ᵀ)`` at most, and the errors are as often positive as negative, so that their sum
grows with the root of their number. Element by element, against the float64 product c::

    |err| <= 2^-11 |c| + 2^-25 + 8 sqrt(K/16) 2^-11 s

Like every bound with a root it is one for random entries, not for chosen ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilus.verify import Half, Matrix

STEP_K = 16
"""Products that are added before the sum is rounded: the depth of one WGMMA."""


@dataclass(frozen=True)
class Errors:
    """How far some rows of a product are from the float64 product.

    ``largest`` and ``rms`` are relative to |A| |B|ᵀ, element by element; ``rel_err`` is the
    relative Frobenius error; ``worst`` is the largest |err| / bound, at most 1 where all is well.
    """

    largest: float
    rms: float
    rel_err: float
    worst: float
    checked: int


def errors(c: Matrix, a: Half, b: Half) -> Errors:
    """Compare rows ``c`` [r, n] with the float64 product of ``a`` [r, k] and ``b`` [n, k].

    A NaN or an infinity makes ``worst`` infinite.
    """
    wide = a.astype(np.float64), b.astype(np.float64).T
    product, magnitude, squares = (f(wide[0]) @ f(wide[1]) for f in (_same, np.abs, np.square))
    difference = np.abs(c.astype(np.float64) - product)
    difference[~np.isfinite(difference)] = np.inf
    roundings = 8 * math.sqrt(a.shape[1] / STEP_K) * 2.0**-11
    bound = 2.0**-11 * np.abs(product) + 2.0**-25 + roundings * np.sqrt(squares)
    relative = difference / np.maximum(magnitude, np.finfo(np.float64).tiny)
    return Errors(
        largest=float(relative.max(initial=0.0)),
        rms=float(np.sqrt(np.square(relative).mean())),
        rel_err=float(np.sqrt(np.square(difference).sum() / np.square(product).sum())),
        worst=float((difference / bound).max(initial=0.0)),
        checked=c.size,
    )


def _same(x: Matrix) -> Matrix:
    return x

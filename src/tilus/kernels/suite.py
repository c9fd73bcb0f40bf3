# SPDX-License-Identifier: Apache-2.0
"""The sizes that :func:`tilus.kernels.matmul` is measured at: large and small, wide and deep."""

from __future__ import annotations

from math import exp, fsum, log

from tilus.kernels.schedules import Size

VERSION = "kernels.matmul"
"""Its name in records."""

SUITE: tuple[Size, ...] = (
    (8192, 8192, 8192),
    (4096, 4096, 4096),
    (6144, 6144, 6144),
    (16384, 16384, 1024),
    (2048, 2048, 8192),
    (4096, 6144, 4096),
    (4096, 28672, 4096),
    (4096, 4096, 14336),
    (8192, 10240, 8192),
    (2048, 57344, 8192),
    (4096, 8192, 28672),
    (2048, 16384, 16384),
    (4096, 37888, 3584),
    (4096, 24576, 1536),
    (4096, 32768, 512),
    (4096, 2112, 7168),
    (4096, 7168, 16384),
    (1024, 128256, 4096),
    (512, 4096, 14336),
    (256, 8192, 8192),
    (128, 7168, 16384),
    (64, 8192, 28672),
    (16, 28672, 4096),
    (3000, 5000, 2008),
)
"""M, N, K."""


def geometric_mean(ratios: list[float]) -> float:
    """Return the mean of ratios in which twice as fast and half as fast cancel out."""
    return exp(fsum(map(log, ratios)) / len(ratios))

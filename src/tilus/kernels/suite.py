# SPDX-License-Identifier: Apache-2.0
"""The sizes that :func:`tilus.kernels.matmul` is measured at: large and small, wide and deep."""

from __future__ import annotations

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
"""M, N, K. The package's table has schedules that were chosen at these."""

MORE: tuple[Size, ...] = (
    (768, 768, 768),
    (1536, 1536, 1536),
    (2560, 2560, 2560),
    (5120, 5120, 5120),
    (1000, 4000, 1000),
    (2000, 6000, 4008),
    (6000, 6000, 6008),
    (640, 5120, 5120),
    (384, 4096, 4096),
    (1024, 4096, 4096),
    (512, 1024, 8192),
    (256, 256, 8192),
    (48, 6144, 12288),
    (32, 8192, 8192),
    (8, 8192, 8192),
    (1, 4096, 4096),
)
"""Sizes that the table has schedules for, too, so that other sizes find one that suits them."""

UNSEEN: tuple[Size, ...] = (
    (10240, 10240, 10240),
    (5000, 5000, 5000),
    (3072, 3072, 3072),
    (2048, 2048, 2048),
    (1024, 1024, 1024),
    (4096, 11008, 4096),
    (4096, 5120, 5120),
    (2048, 4096, 4096),
    (8192, 1280, 8192),
    (4096, 50304, 768),
    (776, 4104, 4104),
    (300, 3000, 12288),
    (32, 5120, 13824),
    (8, 14336, 4096),
    (512, 512, 16384),
    (1000, 904, 520),
)
"""Sizes that no schedule was chosen at: what is measured here, the estimate has chosen. Its terms
were found with what schedules took at these sizes in sight."""

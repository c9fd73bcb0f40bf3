# SPDX-License-Identifier: Apache-2.0
"""The instructions, one class each, in a module per hardware unit.

Kernels reach them through ``self``.
"""

from tilus.ops import (
    alloc,
    cluster,
    debug,
    elementwise,
    fence,
    math,
    mbarrier,
    memory,
    mma,
    reduce,
    shared,
    sync,
    tile,
    tma,
    views,
    wgmma,
)

__all__ = [
    "alloc",
    "cluster",
    "debug",
    "elementwise",
    "fence",
    "math",
    "mbarrier",
    "memory",
    "mma",
    "reduce",
    "shared",
    "sync",
    "tile",
    "tma",
    "views",
    "wgmma",
]
